//! `symphony pipeline`: load, unload; and pipelines as `get` and `describe` show them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use symphony_pipeline::PipelineDeclaration;
use symphony_protocol::control::LoadPipelineReply;
use symphony_protocol::view::{PipelineView, View};
use symphony_repository::{ApplyError, Repository, Rollout, load_pipeline, unload_pipeline};
use symphony_transport::ControlClient;
use symphony_types::{Nanos, OperationId};

use super::operation::not_done;
use super::roll_out::{roll_out, tried_out};
use crate::cli::{FederationArgs, PipelineCommand, PipelineLoadArgs, PipelineUnloadArgs};
use crate::exit::bad_input;
use crate::inspect::Shown;

pub(crate) async fn run(command: PipelineCommand) -> anyhow::Result<()> {
    match command {
        PipelineCommand::Load(args) => load(&args).await,
        PipelineCommand::Unload(args) => unload(&args).await,
    }
}

/// A federation moves models, and has no place for pipelines of them.
fn refuse_federation(args: &FederationArgs) -> anyhow::Result<()> {
    match args.federation {
        Some(_) => Err(bad_input(
            "--federation: a federation holds no pipelines; load it in each cluster whose frontends are asked for it, after its models",
        )),
        None => Ok(()),
    }
}

async fn load(args: &PipelineLoadArgs) -> anyhow::Result<()> {
    refuse_federation(&args.federation)?;
    let has_canary = !args.canary.canary.is_empty();
    if has_canary && args.wait_s == 0 {
        return Err(bad_input("--wait-s 0: a canary has to be watched; expected 1 or more"));
    }
    let read = Repository::open(&args.repository).and_then(|repository| repository.pipeline(&args.name));
    let pipeline = read.map_err(bad_input)?;
    for note in &pipeline.notes {
        eprintln!("note: {note}");
    }
    let (control, declaration) = (args.cluster.control()?, &pipeline.declaration);
    let mut rollout = tried_out(Rollout::to_pipeline(declaration), &args.canary)?;
    // A canary has the others keep the traffic before the new one is loaded.
    if !has_canary {
        ask(&control, declaration, args.operation.id()).await?;
        rollout = rollout.given();
    }
    if args.wait_s == 0 {
        println!("pipeline {} is to be served; see `symphony get pipelines`", args.name);
        return Ok(());
    }
    let within = Duration::from_secs(args.wait_s);
    let folder = (args.repository.as_path(), Some(declaration.version));
    roll_out(&control, ("pipeline", &args.name), rollout, folder, within).await?;
    println!("pipeline {} is ready at version {}", args.name, declaration.version);
    Ok(())
}

/// Makes the cluster agree to a version of a pipeline. Others stay.
pub(crate) async fn ask(
    control: &ControlClient,
    declaration: &PipelineDeclaration,
    operation: OperationId,
) -> anyhow::Result<()> {
    let result = load_pipeline(control, declaration, operation).await;
    let LoadPipelineReply { warning, .. } = result.map_err(|error| not_done(operation, error))?;
    if !warning.is_empty() {
        eprintln!("warning: pipeline {}: {warning}", declaration.name);
    }
    Ok(())
}

/// Waits until any version of a pipeline can be asked.
pub(crate) async fn until_ready(control: &ControlClient, name: &str, within: Duration) -> anyhow::Result<()> {
    let mut view = control.watch(&format!("pipeline load {name}"));
    let mut why = "no replica has shown it".to_owned();
    let ready = async {
        loop {
            let current = Arc::clone(&view.borrow_and_update());
            let unready: Vec<_> =
                current.pipeline_versions(name).into_iter().map(|known| known.unready(&current)).collect();
            if unready.contains(&None) {
                return anyhow::Ok(());
            }
            // That of the latest one.
            if let Some(reason) = unready.into_iter().flatten().last() {
                why = reason;
            }
            view.changed().await?;
        }
    };
    match tokio::time::timeout(within, ready).await {
        Ok(ended) => ended,
        Err(_) => Err(ApplyError::Unready { pipeline: name.to_owned(), within, why }.into()),
    }
}

async fn unload(args: &PipelineUnloadArgs) -> anyhow::Result<()> {
    refuse_federation(&args.federation)?;
    let (control, operation) = (args.cluster.control()?, args.operation.id());
    unload_pipeline(&control, &args.name, operation).await.map_err(|error| not_done(operation, error))?;
    println!("pipeline {} is unloaded", args.name);
    Ok(())
}

/// A stage's part of the budget, in milliseconds.
pub(super) fn budget_ms(pipeline: &PipelineView, stage: usize) -> Option<f64> {
    let budget = pipeline.split.as_ref()?.budgets_ns.get(stage)?;
    Some(Nanos::new(*budget).as_millis_f64())
}

/// The edges, with γ as the split has it.
fn edges(pipeline: &PipelineView) -> Vec<Value> {
    // A loaded pipeline has been checked.
    let wiring = pipeline.declaration.validate().map(|wiring| wiring.edges).unwrap_or_default();
    let edge = |(at, edge): (usize, &symphony_pipeline::WiredEdge)| {
        let measured = pipeline.split.as_ref().and_then(|split| split.gammas.get(at)).map(|gamma| gamma.get());
        json!({ "from": edge.spec.from, "to": edge.spec.to, "gamma": measured.unwrap_or(edge.spec.gamma) })
    };
    wiring.iter().enumerate().map(edge).collect()
}

/// All pipelines, as `symphony get pipelines` shows them.
pub(super) fn show(view: &View) -> Shown {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for pipeline in view.pipelines.values() {
        let declaration = &pipeline.declaration;
        let (slo_ms, why) = (declaration.slo().as_millis_f64(), pipeline.unready(view));
        let ready = pipeline.readiness(view);
        let stages = declaration.stages.iter().enumerate().zip(&ready);
        let budget = |at: usize| budget_ms(pipeline, at).map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
        let words: Vec<_> = stages.clone().map(|((at, stage), _)| format!("{} {}", stage.name, budget(at))).collect();
        let stages = stages.map(|((at, stage), ready)| {
            json!({ "name": stage.name, "model": stage.model, "budget_ms": budget_ms(pipeline, at),
                    "ready": ready.unready().is_none() })
        });
        let split = pipeline.split.as_ref();
        json.push(json!({
            "name": declaration.name, "version": declaration.version, "slo_ms": slo_ms, "value": declaration.value.number(),
            "partial": declaration.partial, "ready": why.is_none(), "reason": why,
            "rate_rps": split.map(|split| split.rate_millirps as f64 / 1000.0),
            "hop_ms": split.map(|split| split.hop().as_millis_f64()),
            "ended": pipeline.load.map(|load| load.ended), "bad": pipeline.load.map(|load| load.bad),
            "stages": stages.collect::<Vec<_>>(), "edges": edges(pipeline),
        }));
        rows.push(vec![
            declaration.name.clone(),
            declaration.version.to_string(),
            format!("{slo_ms} ms"),
            declaration.value.to_string(),
            words.join(", "),
            why.unwrap_or_else(|| "ready".to_owned()),
        ]);
    }
    (&["NAME", "VERSION", "SLO", "VALUE", "BUDGETS (ms)", "STATE"], rows, Value::Array(json))
}
