//! `symphony apply`: has a cluster serve models as files declare them.
//!
//! All files are read and compared with the cluster before anything is changed. `document` is the text, `wanted` the
//! comparison.

mod document;
mod wanted;

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use symphony_protocol::control as pb;
use symphony_repository::{ApplyError, Next, Rollout, change_model, set_traffic};
use symphony_transport::{ControlClient, ControlError, fresh_operation_id};
use symphony_types::{Nanos, RequestValue};

use self::document::{Declared, Syntax, parse};
use self::wanted::{Plan, Source, Step, Wanted, check_names, plan};
use super::model::load_and_wait;
use super::operation::{asked, not_done};
use crate::cli::ApplyArgs;
use crate::exit::{bad_input, words};

/// The timeout of the cluster's confirmation.
const AGREE_WITHIN: Duration = Duration::from_secs(10);
/// The largest file accepted: a model has some hundred bytes, and a cluster 4096 models.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The most files of a folder: as many as a cluster has models.
const FILES_MAX: usize = 4096;

pub(crate) async fn run(args: &ApplyArgs) -> anyhow::Result<()> {
    let (mut wanted, mut tenants) = (Vec::new(), Vec::new());
    for file in &args.files {
        for (path, syntax) in files(file)? {
            read(&path, syntax, &mut wanted, &mut tenants)?;
        }
    }
    check_names(&wanted).map_err(bad_input)?;
    // What is set of a model, and how it is split, may be declared before the versions that are to be loaded.
    wanted.sort_by_key(|wanted| wanted.source.is_none());
    if !wanted.is_empty() {
        apply(args, &wanted).await?;
    }
    for (path, names) in tenants {
        println!(
            "tenants {} are valid, and not applied: frontends read them from the file that frontend.tenants names; put {} there",
            names.join(", "),
            path.display()
        );
    }
    Ok(())
}

/// The files that are meant, and their syntax. Of a folder those of a known syntax, by name.
fn files(given: &Path) -> anyhow::Result<Vec<(PathBuf, Syntax)>> {
    let refuse = |problem: &dyn std::fmt::Display| bad_input(format!("{}: {problem}", given.display()));
    if given == Path::new("-") {
        return Ok(vec![(given.to_owned(), Syntax::Yaml)]);
    }
    if !fs::metadata(given).map_err(|error| refuse(&error))?.is_dir() {
        let syntax = Syntax::of(given).ok_or_else(|| refuse(&"expected a name that ends with .yaml, .yml or .toml"))?;
        return Ok(vec![(given.to_owned(), syntax)]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(given).map_err(|error| refuse(&error))? {
        let path = entry.map_err(|error| refuse(&error))?.path();
        let is_hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if let Some(syntax) = Syntax::of(&path).filter(|_| !is_hidden && path.is_file()) {
            files.push((path, syntax));
        }
    }
    if files.is_empty() || files.len() > FILES_MAX {
        let found = files.len();
        return Err(refuse(&format!("it has {found} files .yaml, .yml or .toml; expected 1 to {FILES_MAX}")));
    }
    files.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    Ok(files)
}

/// Reads a file, and the files that it names.
fn read(
    path: &Path,
    syntax: Syntax,
    wanted: &mut Vec<Wanted>,
    tenants: &mut Vec<(PathBuf, Vec<String>)>,
) -> anyhow::Result<()> {
    let at = |problem: &dyn std::fmt::Display| bad_input(format!("{}: {problem}", path.display()));
    let is_input = path == Path::new("-");
    let mut text = String::new();
    let was_read = if is_input {
        std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
    };
    was_read.map_err(|error| at(&error))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(at(&format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    // Relative paths begin at the file that has them.
    let folder = if is_input { Path::new("") } else { path.parent().unwrap_or(Path::new("")) };
    match parse(&text, syntax).map_err(|problem| at(&problem))? {
        Declared::Models(documents) => {
            if documents.is_empty() {
                return Err(at(&"it declares no model"));
            }
            for document in documents {
                let model = document.wanted(folder).map_err(|error| at(&words(&error)))?;
                wanted.push(model);
            }
        }
        Declared::Tenants(names) => tenants.push((path.to_owned(), names)),
    }
    Ok(())
}

async fn apply(args: &ApplyArgs, wanted: &[Wanted]) -> anyhow::Result<()> {
    let control = args.cluster.control()?;
    let view = control.get(true, AGREE_WITHIN).await.map_err(asked)?;
    let plans: Vec<_> = wanted.iter().map(|one| plan(&view, one, wanted)).collect();
    let refused: Vec<_> = plans.iter().filter_map(|plan| plan.as_ref().err().cloned()).collect();
    if !refused.is_empty() {
        return Err(bad_input(format!("nothing is changed: {}", refused.join("; "))));
    }
    for (one, first) in wanted.iter().zip(plans.into_iter().flatten()) {
        let name = &one.name;
        // With what came of the ones before.
        let plan = match args.dry_run {
            true => first,
            false => plan(&control.get(true, AGREE_WITHIN).await.map_err(asked)?, one, &[]).map_err(bad_input)?,
        };
        if let Some(Source::Repository(model)) = &one.source {
            for note in &model.notes {
                eprintln!("note: model {name}: {note}");
            }
        }
        for note in &plan.notes {
            eprintln!("note: {note}");
        }
        if !args.dry_run {
            carry_out(&control, one, &plan, Duration::from_secs(args.wait_s)).await?;
        }
        println!("model {name} {}", outcome(&plan, args.dry_run));
    }
    Ok(())
}

/// What became of a model, or would.
fn outcome(plan: &Plan, is_dry_run: bool) -> String {
    let done = match (plan.steps.is_empty(), plan.is_new) {
        (true, _) => return "is unchanged".to_owned(),
        (false, true) => "created",
        (false, false) => "changed",
    };
    let steps: Vec<_> = plan.steps.iter().map(ToString::to_string).collect();
    let is = if is_dry_run { "would be" } else { "is" };
    format!("{is} {done}: {}", steps.join("; "))
}

async fn carry_out(control: &ControlClient, wanted: &Wanted, plan: &Plan, wait: Duration) -> anyhow::Result<()> {
    let is_split = |step: &Step| matches!(step, Step::SetTraffic(_));
    match &wanted.source {
        Some(Source::Repository(model)) if !plan.steps.iter().all(is_split) => {
            let told = |next: &Next| {
                if let Next::Wait(Some((name, why))) = next {
                    eprintln!("model {name} waits: {why}");
                }
            };
            let applied = symphony_repository::apply(control, Rollout::to(model), wait, told).await;
            let _ = applied.map_err(|error| match error {
                ApplyError::Failed { .. } | ApplyError::Control(ControlError::Refused(_)) => {
                    bad_input(format!("model `{}` is not served as its repository says: {error}", wanted.name))
                }
                other => other.into(),
            })?;
        }
        _ => {
            for step in &plan.steps {
                carry_out_step(control, step, wait).await?;
            }
        }
    }
    let Some(traffic) = &wanted.traffic else { return Ok(()) };
    // A roll-out may have split it otherwise meanwhile.
    let view = control.get(true, AGREE_WITHIN).await.map_err(asked)?;
    if view.traffic.get(&wanted.name).cloned().unwrap_or_default() != *traffic {
        let operation = fresh_operation_id();
        let set = set_traffic(control, &wanted.name, traffic, operation.to_string(), AGREE_WITHIN).await;
        set.map_err(|error| not_done(operation, error))?;
    }
    Ok(())
}

async fn carry_out_step(control: &ControlClient, step: &Step, wait: Duration) -> anyhow::Result<()> {
    match step {
        Step::Load(spec) => load_and_wait(control, spec, fresh_operation_id(), wait).await,
        Step::Change { name, change, .. } => {
            let operation = fresh_operation_id();
            let request = pb::ChangeModelRequest {
                name: name.clone(),
                slo_ns: change.slo.map(Nanos::get),
                policy: change.policy.map(|policy| policy.to_string()),
                value_thousandths: change.value.map(RequestValue::thousandths),
                operation_id: operation.to_string(),
            };
            let changed = change_model(control, request, AGREE_WITHIN).await;
            let warning = changed.map_err(|error| not_done(operation, error))?;
            if !warning.is_empty() {
                eprintln!("warning: model {name}: {warning}");
            }
            Ok(())
        }
        // Only a roll-out unloads, and it does so itself; the split comes last.
        Step::Unload(_) | Step::SetTraffic(_) => Ok(()),
    }
}
