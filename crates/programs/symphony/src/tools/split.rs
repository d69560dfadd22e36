//! `symphony plan split`: the latency budget of a pipeline, divided among its stages, without a cluster.

use std::path::Path;

use serde_json::json;
use symphony_pipeline::{Cost, Pipeline, PipelineFile, Split, Stage, StageBudget, split};
use symphony_types::LatencyProfile;
use symphony_workload::{profile_from_batches, profile_from_csv};

use crate::cli::{Output, SplitArgs, SplitCost};
use crate::exit::bad_input;
use crate::inspect::table;

pub(crate) fn run(args: &SplitArgs) -> anyhow::Result<()> {
    let PipelineFile { pipeline, rate_rps, step, hop } = read(&args.pipeline)?;
    let cost = match args.cost {
        SplitCost::Execution => Cost::Execution,
        SplitCost::Waiting => Cost::Waiting,
        SplitCost::Deferred => Cost::Deferred,
    };
    let split = split(&pipeline, rate_rps, cost, step, hop)?;
    match args.output {
        Output::Json => {
            let stage = |(stage, found): (&Stage, &StageBudget)| {
                let (budget_ms, batch, gpus) = (found.budget.as_millis_f64(), found.batch, found.gpus);
                json!({ "name": stage.name, "budget_ms": budget_ms, "batch": batch, "gpus": gpus })
            };
            let stages: Vec<_> = pipeline.stages().iter().zip(&split.stages).map(stage).collect();
            println!("{}", serde_json::to_string_pretty(&json!({ "gpus": split.gpus, "stages": stages }))?);
        }
        Output::Table => show(&pipeline, rate_rps, &split),
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<PipelineFile> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| bad_input(format!("{file}: {error}")))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let read_profile = |csv: &str, kind: Option<&str>| -> Result<LatencyProfile, String> {
        let text = std::fs::read_to_string(folder.join(csv)).map_err(|error| error.to_string())?;
        match kind {
            Some(kind) => profile_from_csv(&text, kind),
            None => profile_from_batches(&text),
        }
    };
    PipelineFile::parse(&file, &text, &read_profile).map_err(bad_input)
}

fn show(pipeline: &Pipeline, rate_rps: f64, split: &Split) {
    let requests = pipeline.requests_per_request();
    let rows: Vec<_> = pipeline
        .stages()
        .iter()
        .zip(&split.stages)
        .zip(requests)
        .map(|((stage, found), requests)| {
            vec![
                stage.name.clone(),
                format!("{:.1}", rate_rps * requests),
                format!("{:.1}", found.budget.as_millis_f64()),
                found.batch.to_string(),
                format!("{:.1}", stage.profile.latency(found.batch).as_millis_f64()),
                format!("{:.2}", found.gpus),
            ]
        })
        .collect();
    table::print(&["STAGE", "RATE R/S", "BUDGET MS", "BATCH", "RUNS MS", "GPUS"], &rows);
    println!("{:.2} GPUs for {rate_rps} requests per second within {}", split.gpus, pipeline.slo());
}
