//! Everything but inference: health, metadata, configuration, statistics, the repository.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use symphony_types::TensorSpec;

use super::infer_handler::{ModelPath, read_body};
use super::{REPOSITORY_BYTES_MAX, Shared, reply};
use crate::oip::call::{self, find_model, is_ready};
use crate::oip::inputs::input_metadata;
use crate::oip::refusal_text::{invalid, spec_dims};
use crate::oip::{
    Caller, IMAGE_PARAMETER, IndexEntry, InferError, InferenceService, ModelInfo, ModelStatistics, Parameter,
    PipelineInfo, PipelineStep, RepositoryError, SLO_PARAMETER, Span, extensions,
};

type Shape<S> = State<Shared<S>>;

fn when(ready: bool, body: Value) -> Response {
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(body)).into_response()
}

/// `GET /v2`.
pub(crate) async fn server<S: InferenceService>(State(shared): Shape<S>) -> Response {
    let server = shared.service.server();
    let extensions = extensions(&*shared.service);
    Json(json!({ "name": server.name, "version": server.version, "extensions": extensions })).into_response()
}

/// `GET /v2/health/live`.
pub(crate) async fn live<S: InferenceService>(State(shared): Shape<S>) -> Response {
    let live = shared.service.server().live;
    when(live, json!({ "live": live }))
}

/// `GET /v2/health/ready`. The protocol's text calls the field `live`, its examples `ready`: both are there.
pub(crate) async fn ready<S: InferenceService>(State(shared): Shape<S>) -> Response {
    let server = shared.service.server();
    when(server.ready, json!({ "live": server.live, "ready": server.ready }))
}

/// Triton's settings of traces, `/v2[/models/{model}]/trace/setting`, and of the log, `/v2/logging`.
pub(crate) async fn no_settings() -> Response {
    let words = "traces and the log are not set by clients: an operator configures them \
                 (telemetry.otlp_endpoint, telemetry.sample_ratio, log.level)";
    reply::of_infer(&InferError::Unsupported(words.into()))
}

/// `KServe`'s protocol before the Open Inference Protocol, `/v1/models/{model}:predict` and the like.
pub(crate) async fn no_first_protocol() -> Response {
    let words = "version 1 of KServe's protocol is not served, as its requests give no types or shapes; its SDK and \
                 Triton's clients speak version 2: POST /v2/models/MODEL/infer";
    reply::of_infer(&InferError::Unsupported(words.into()))
}

/// Runs `page` with the model in the path.
fn with_model<S: InferenceService>(
    shared: &Shared<S>,
    path: &ModelPath,
    page: impl FnOnce(&ModelInfo) -> Response,
) -> Response {
    match find_model(&*shared.service, &path.model, &path.version) {
        Ok(model) => page(&model),
        Err(refused) => reply::of_infer(&refused),
    }
}

/// `GET /v2/models/{model}[/versions/{version}]`.
pub(crate) async fn model<S: InferenceService>(State(shared): Shape<S>, path: ModelPath) -> Response {
    let tensors = |specs: &[TensorSpec]| -> Value {
        let tensor =
            |spec: &TensorSpec| json!({ "name": spec.name, "datatype": spec.data_type, "shape": spec_dims(spec) });
        specs.iter().map(tensor).collect()
    };
    let input = |model: &ModelInfo, spec: &TensorSpec| {
        let (data_type, shape) = input_metadata(model, spec);
        json!({ "name": spec.name, "datatype": data_type, "shape": shape })
    };
    with_model(&shared, &path, |model| {
        let versions: Vec<_> = shared.service.versions(&model.name).iter().map(u64::to_string).collect();
        let metadata = json!({
            "name": model.name,
            "versions": versions,
            "platform": model.platform,
            "inputs": model.signature.inputs.iter().map(|spec| input(model, spec)).collect::<Value>(),
            "outputs": tensors(&model.signature.outputs),
        });
        Json(metadata).into_response()
    })
}

/// `GET /v2/models/{model}[/versions/{version}]/ready`.
pub(crate) async fn model_ready<S: InferenceService>(State(shared): Shape<S>, path: ModelPath) -> Response {
    with_model(&shared, &path, |model| {
        let ready = is_ready(&*shared.service, model);
        when(ready, json!({ "name": model.name, "ready": ready }))
    })
}

/// `GET /v2/models/{model}[/versions/{version}]/config`.
pub(crate) async fn config<S: InferenceService>(State(shared): Shape<S>, path: ModelPath) -> Response {
    let tensors = |specs: &[TensorSpec]| -> Value {
        let tensor = |spec: &TensorSpec| {
            let data_type = format!("TYPE_{}", spec.data_type);
            json!({ "name": spec.name, "data_type": data_type, "dims": spec.item_shape })
        };
        specs.iter().map(tensor).collect()
    };
    with_model(&shared, &path, |model| {
        let mut config = json!({
            "name": model.name,
            "platform": model.platform,
            "backend": "",
            "max_batch_size": model.batch_max,
            "input": tensors(&model.signature.inputs),
            "output": tensors(&model.signature.outputs),
            "dynamic_batching": { "preferred_batch_size": [], "max_queue_delay_microseconds": 0 },
            "parameters": { SLO_PARAMETER: { "string_value": model.slo.as_millis_f64().to_string() } },
        });
        if let Some(image) = &model.transforms.image {
            config["parameters"][IMAGE_PARAMETER] = json!({ "string_value": image.input });
        }
        if let Some(pipeline) = &model.pipeline {
            as_ensemble(&mut config, model, pipeline);
        }
        Json(config).into_response()
    })
}

/// Describes a pipeline as Triton describes an ensemble, and leaves out the rest.
fn as_ensemble(config: &mut Value, model: &ModelInfo, pipeline: &PipelineInfo) {
    let step = |step: &PipelineStep| {
        // -1: the newest.
        let version = step.version.and_then(|version| i64::try_from(version).ok()).unwrap_or(-1);
        json!({
            "model_name": step.model, "model_version": version, "input_map": step.inputs, "output_map": step.outputs,
        })
    };
    config["ensemble_scheduling"] = json!({ "step": pipeline.steps.iter().map(step).collect::<Value>() });
    if let Some(config) = config.as_object_mut() {
        config.remove("dynamic_batching");
    }
    for (at, spec) in
        model.signature.inputs.iter().enumerate().filter(|(_, spec)| model.takes_only_pictures(&spec.name))
    {
        config["input"][at] = json!({ "name": spec.name, "data_type": "TYPE_STRING", "dims": [1] });
    }
    for (at, spec) in model.signature.outputs.iter().enumerate().filter(|&(at, _)| model.has_any_rows(at)) {
        config["output"][at]["dims"] = json!(spec_dims(spec));
    }
}

/// `GET /v2/models/{model}[/versions/{version}]/stats`.
pub(crate) async fn statistics<S: InferenceService>(State(shared): Shape<S>, path: ModelPath) -> Response {
    with_model(&shared, &path, |model| {
        let version = (!path.version.is_empty()).then_some(model.version);
        statistics_page(shared.service.statistics(Some((&model.name, version))))
    })
}

/// `GET /v2/models/stats`.
pub(crate) async fn all_statistics<S: InferenceService>(State(shared): Shape<S>) -> Response {
    statistics_page(shared.service.statistics(None))
}

fn statistics_page(statistics: Vec<ModelStatistics>) -> Response {
    let span = |span: Span| json!({ "count": span.count, "ns": span.total.get() });
    let batch = |(size, compute): &(u32, Span)| {
        let beside = span(compute.beside());
        json!({
            "batch_size": size, "compute_input": beside, "compute_infer": span(*compute), "compute_output": beside,
        })
    };
    let model = |of: &ModelStatistics| {
        json!({
            "name": of.model,
            "version": of.version.to_string(),
            "last_inference": of.last_inference_ms,
            "inference_count": of.inference_count,
            "execution_count": of.execution_count,
            "inference_stats": {
                "success": span(of.success),
                "fail": span(of.fail),
                "queue": span(of.queue),
                "compute_input": span(of.compute.beside()),
                "compute_infer": span(of.compute),
                "compute_output": span(of.compute.beside()),
            },
            "batch_stats": of.batches.iter().map(batch).collect::<Value>(),
        })
    };
    Json(json!({ "model_stats": statistics.iter().map(model).collect::<Value>() })).into_response()
}

#[derive(Default, Deserialize)]
struct IndexBody {
    #[serde(default)]
    ready: bool,
}

#[derive(Default, Deserialize)]
struct LoadBody {
    #[serde(default)]
    parameters: BTreeMap<String, Parameter>,
}

/// Reads a JSON body that may be left away.
async fn optional_body<T: Default + for<'de> Deserialize<'de>>(request: Request) -> Result<T, InferError> {
    let body = read_body(request, REPOSITORY_BYTES_MAX).await?;
    if body.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&body).map_err(|error| invalid(format!("the body is not what this path expects: {error}")))
}

/// `POST /v2/repository/index`.
pub(crate) async fn index<S: InferenceService>(State(shared): Shape<S>, request: Request) -> Response {
    let caller = match Caller::of(request.extensions()) {
        Ok(caller) => caller,
        Err(refused) => return reply::of_access(&refused),
    };
    let only_ready = match optional_body::<IndexBody>(request).await {
        Ok(body) => body.ready,
        Err(refused) => return reply::of_infer(&refused),
    };
    let entries = match call::index(&*shared.service, only_ready, &caller).await {
        Ok(entries) => entries,
        Err(refused) => return reply::of_repository(&refused),
    };
    let entry = |entry: &IndexEntry| {
        let (state, reason) = (entry.state.label(), entry.state.reason());
        json!({ "name": entry.name, "version": entry.version_text(), "state": state, "reason": reason })
    };
    Json(entries.iter().map(entry).collect::<Value>()).into_response()
}

/// `POST /v2/repository/models/{model}/load`.
pub(crate) async fn load<S: InferenceService>(State(shared): Shape<S>, path: ModelPath, request: Request) -> Response {
    let caller = match Caller::of(request.extensions()) {
        Ok(caller) => caller,
        Err(refused) => return reply::of_access(&refused),
    };
    match optional_body::<LoadBody>(request).await {
        Ok(body) => done(shared.service.load_model(&path.model, body.parameters, caller).await),
        Err(refused) => reply::of_infer(&refused),
    }
}

/// `POST /v2/repository/models/{model}/unload`.
pub(crate) async fn unload<S: InferenceService>(
    State(shared): Shape<S>,
    path: ModelPath,
    request: Request,
) -> Response {
    let caller = match Caller::of(request.extensions()) {
        Ok(caller) => caller,
        Err(refused) => return reply::of_access(&refused),
    };
    // Its only parameter, `unload_dependents`, has no effect here: no model depends on another.
    match optional_body::<LoadBody>(request).await {
        Ok(_) => done(shared.service.unload_model(&path.model, caller).await),
        Err(refused) => reply::of_infer(&refused),
    }
}

fn done(outcome: Result<(), RepositoryError>) -> Response {
    match outcome {
        Ok(()) => Json(json!({})).into_response(),
        Err(refused) => reply::of_repository(&refused),
    }
}
