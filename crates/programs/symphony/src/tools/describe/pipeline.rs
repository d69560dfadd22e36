//! A pipeline: its stages, what each has of the budget, and how results fan out.

use symphony_pipeline::{InputData, WiredEdge};
use symphony_protocol::view::{PipelineLoadView, View};

use super::{Description, elements, value};
use crate::cli::What;
use crate::suggestions::unknown;
use crate::tools::get::show;
use crate::tools::pipeline::budget_ms;

/// A version of a pipeline by its name, `NAME@VERSION`, or the latest that is ready, or else the latest.
pub(super) fn describe(view: &View, name: &str) -> Result<Description, String> {
    let versions = view.pipeline_versions(name);
    let Some(pipeline) = versions.into_iter().max_by_key(|known| (known.is_ready(view), known.declaration.version))
    else {
        return Err(unknown("pipeline", name, view.pipelines.keys().map(String::as_str), "symphony get pipelines"));
    };
    let declaration = &pipeline.declaration;
    let split = pipeline.split.as_ref();
    let all = view.pipeline_versions(&declaration.name);
    let loaded: Vec<_> = all.iter().map(|known| known.declaration.version.to_string()).collect();
    let traffic = view.traffic.get(&declaration.name).cloned().unwrap_or_default();
    let inputs = declaration.inputs.iter().map(|input| match &input.data {
        InputData::Picture => format!("{}: a picture", input.name),
        InputData::Tensor { data_type, item_shape } => format!("{}: {data_type} {item_shape:?}", input.name),
    });
    let outputs = declaration.outputs.iter().map(|output| {
        let (tensor, rows) = (&output.tensor, if output.any_rows { "any number of " } else { "" });
        format!("{}: {rows}{} {:?}", tensor.name, tensor.data_type, tensor.item_shape)
    });
    let planned = split.map(|split| {
        let (rate_rps, hop_ms) = (split.rate_millirps as f64 / 1000.0, split.hop().as_millis_f64());
        format!("by {rate_rps:.1} requests per second, hops of {hop_ms:.2} ms")
    });
    let ended = all.iter().filter_map(|known| {
        let PipelineLoadView { ended, bad, .. } = known.load?;
        let version = known.declaration.version;
        Some(format!("version {version}: {ended} requests, {bad} of them refused as too slow or unready, given up, late or failed"))
    });
    let ended: Vec<_> = ended.collect();
    let partial = if declaration.partial { "answers without what is lost" } else { "" };
    let facts = vec![
        ("state", pipeline.unready(view).unwrap_or_else(|| "ready".to_owned())),
        ("version", format!("{}; loaded: {}", declaration.version, loaded.join(", "))),
        ("traffic", traffic.to_string()),
        ("SLO", format!("{} ms", declaration.slo().as_millis_f64())),
        ("value", declaration.value.to_string()),
        ("partial", partial.to_owned()),
        ("inputs", inputs.collect::<Vec<_>>().join(", ")),
        ("outputs", outputs.collect::<Vec<_>>().join(", ")),
        ("budget split", planned.unwrap_or_default()),
    ];
    let ready = pipeline.readiness(view);
    let stages = declaration.stages.iter().zip(&ready).enumerate().map(|(at, (stage, ready))| {
        let budget = budget_ms(pipeline, at).map(|ms| format!(", {ms:.1} ms")).unwrap_or_default();
        let state = ready.unready().unwrap_or_else(|| "ready".to_owned());
        format!("{} asks {}{budget}: {state}", stage.name, stage.model)
    });
    // A loaded pipeline has been checked.
    let wiring = declaration.validate().map(|wiring| wiring.edges).unwrap_or_default();
    let edge = |(at, edge): (usize, &WiredEdge)| {
        let measured = split.and_then(|split| split.gammas.get(at)).map_or(edge.spec.gamma, |gamma| gamma.get());
        let rows = if edge.spec.per_row { ", for each row" } else { "" };
        let condition = edge.spec.condition.as_ref().map(|condition| format!(" where {condition}"));
        let crop = edge.crop.as_ref().map(|crop| format!(", cropped by {}", crop.boxes));
        let (condition, crop) = (condition.unwrap_or_default(), crop.unwrap_or_default());
        format!("{} to {}: {measured:.2} requests per result{rows}{condition}{crop}", edge.spec.from, edge.spec.to)
    };
    let edges = wiring.iter().enumerate().map(edge).collect();
    let lists = vec![("stages", stages.collect()), ("edges", edges), ("ended", ended)];
    let (own, loaded_as) = (declaration.name.as_str(), declaration.versioned().loaded_as());
    let is_it = |one: &serde_json::Value| one["name"] == own && one["version"] == declaration.version;
    let json = value("pipeline", own, &elements(show(view, What::Pipelines).2, is_it));
    let title = format!("pipeline {loaded_as}");
    Ok(Description { title, facts, lists, json }.with_events(view, &[own, &loaded_as]))
}
