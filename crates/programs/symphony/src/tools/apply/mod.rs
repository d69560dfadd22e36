//! `symphony apply`: has a cluster serve models as files declare them.
//!
//! All files are read and compared with the cluster before anything is changed. Requests are split among versions when
//! all of them are loaded. `document` is the text, `wanted` the comparison.

mod document;
mod wanted;

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use symphony_protocol::control as pb;
use symphony_protocol::view::Traffic;
use symphony_repository::{ApplyError, Next, Rollout, change_model, set_traffic};
use symphony_transport::{AGREE_WITHIN, ControlClient, ControlError, fresh_operation_id};
use symphony_types::{Nanos, RequestValue};

use self::document::{Declared, Syntax, parse};
use self::wanted::{ApplyPlan, Source, Step, Wanted, check_names, plan};
use super::model::{load_and_wait, until_ready};
use super::operation::{not_done, query_error};
use crate::cli::ApplyArgs;
use crate::exit::{bad_input, words};

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
    // Settings of a model, and its traffic split, may be declared before the versions that are to be loaded.
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
    let view = control.get(true, AGREE_WITHIN).await.map_err(query_error)?;
    let plans: Vec<_> = wanted.iter().map(|one| plan(&view, one, wanted)).collect();
    let refused: Vec<_> = plans.iter().filter_map(|plan| plan.as_ref().err().cloned()).collect();
    if !refused.is_empty() {
        return Err(bad_input(format!("nothing is changed: {}", refused.join("; "))));
    }
    if args.dry_run {
        for (one, plan) in wanted.iter().zip(plans.into_iter().flatten()) {
            print_plan(one, &plan);
            println!("model {} {}", one.name, outcome(&plan, true));
        }
        return Ok(());
    }
    let wait = Duration::from_secs(args.wait_s);
    let mut to_split = Vec::new();
    for (place, one) in wanted.iter().enumerate() {
        match make(&control, one, wanted, wait).await {
            Ok(plan) => match &one.traffic {
                Some(traffic) => to_split.push((one, plan, traffic)),
                None => println!("model {} {}", one.name, outcome(&plan, false)),
            },
            Err(error) => {
                let (before, after) = wanted.split_at(place + 1);
                warn_not_tried(after, before);
                return Err(error);
            }
        }
    }
    // Only now are all versions there.
    for (place, (one, plan, traffic)) in to_split.iter().enumerate() {
        if let Err(error) = split(&control, &one.name, traffic).await {
            let left: Vec<_> = to_split[place + 1..].iter().map(|(one, ..)| (*one).clone()).collect();
            warn_not_tried(&[], &left);
            return Err(error);
        }
        println!("model {} {}", one.name, outcome(plan, false));
    }
    Ok(())
}

/// What is to be known of a model beside its steps.
fn print_plan(one: &Wanted, plan: &ApplyPlan) {
    if let Some(Source::Repository(model)) = &one.source {
        for note in &model.notes {
            eprintln!("note: model {}: {note}", one.name);
        }
    }
    for note in &plan.notes {
        eprintln!("note: {note}");
    }
}

/// After a failure, says what else is not as declared.
fn warn_not_tried(models: &[Wanted], to_split: &[Wanted]) {
    let left = not_tried(models, to_split);
    if !left.is_empty() {
        eprintln!("note: not tried: {}", left.join(", "));
    }
}

fn not_tried(models: &[Wanted], to_split: &[Wanted]) -> Vec<String> {
    let models = models.iter().map(|one| format!("model {}", one.name));
    let to_split = to_split.iter().filter(|one| one.traffic.is_some());
    models.chain(to_split.map(|one| format!("the traffic of {}", one.name))).collect()
}

/// Makes a model as it is declared, except its traffic; returns what was done.
async fn make(control: &ControlClient, one: &Wanted, wanted: &[Wanted], wait: Duration) -> anyhow::Result<ApplyPlan> {
    let view = control.get(true, AGREE_WITHIN).await.map_err(query_error)?;
    let plan = plan(&view, one, wanted).map_err(bad_input)?;
    print_plan(one, &plan);
    carry_out(control, one, &plan, wait).await?;
    Ok(plan)
}

/// What became of a model, or would.
fn outcome(plan: &ApplyPlan, is_dry_run: bool) -> String {
    let done = match (plan.steps.is_empty(), plan.is_new) {
        (true, _) if plan.unready.is_empty() => return "is unchanged".to_owned(),
        (true, _) if is_dry_run => return "would be waited for: it is not ready".to_owned(),
        (true, _) => return "is ready now, and otherwise unchanged".to_owned(),
        (false, true) => "created",
        (false, false) => "changed",
    };
    let steps: Vec<_> = plan.steps.iter().map(ToString::to_string).collect();
    let is = if is_dry_run { "would be" } else { "is" };
    format!("{is} {done}: {}", steps.join("; "))
}

async fn carry_out(control: &ControlClient, wanted: &Wanted, plan: &ApplyPlan, wait: Duration) -> anyhow::Result<()> {
    let is_split = |step: &Step| matches!(step, Step::SetTraffic(_));
    match &wanted.source {
        // A roll-out loads again what failed.
        Some(Source::Repository(model)) if !plan.unready.is_empty() || !plan.steps.iter().all(is_split) => {
            let report = |next: &Next| {
                if let Next::Wait(Some((name, why))) = next {
                    eprintln!("model {name} waits: {why}");
                }
            };
            let applied = symphony_repository::apply(control, Rollout::to(model), wait, report).await;
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
            for name in &plan.unready {
                if let Err(reason) = until_ready(control, name, wait).await? {
                    anyhow::bail!(
                        "model `{name}` failed to load, and stays so until it is unloaded: {reason}; `symphony model \
                         unload {name}` does that"
                    );
                }
            }
        }
    }
    Ok(())
}

/// Splits a model's requests; a roll-out may have split them differently meanwhile.
async fn split(control: &ControlClient, name: &str, traffic: &Traffic) -> anyhow::Result<()> {
    let view = control.get(true, AGREE_WITHIN).await.map_err(query_error)?;
    if view.traffic.get(name).cloned().unwrap_or_default() != *traffic {
        let operation = fresh_operation_id();
        let set = set_traffic(control, name, traffic, operation.to_string(), AGREE_WITHIN).await;
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

#[cfg(test)]
mod tests {
    use super::wanted::Change;
    use super::*;

    #[test]
    fn what_is_not_tried_is_named() {
        let one = |name: &str, traffic: Option<Traffic>| Wanted {
            name: name.into(),
            source: None,
            change: Change::default(),
            traffic,
        };
        let (split, whole) = (one("a", Some(Traffic::default())), one("b", None));
        assert_eq!(not_tried(&[one("c", None)], &[split, whole]), ["model c", "the traffic of a"]);
    }

    #[test]
    fn a_model_that_is_not_ready_is_not_unchanged() {
        let loading = ApplyPlan { unready: vec!["m".into()], ..ApplyPlan::default() };
        assert_eq!(outcome(&ApplyPlan::default(), false), "is unchanged");
        assert_eq!(outcome(&loading, false), "is ready now, and otherwise unchanged");
        assert!(outcome(&loading, true).contains("not ready"));
    }
}
