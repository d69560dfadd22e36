//! gRPC.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use hyper_util::rt::TokioExecutor;
use symphony_frontend::oip::Limits;
use symphony_protocol::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use symphony_protocol::inference::infer_parameter::ParameterChoice;
use symphony_protocol::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use symphony_protocol::inference::{
    InferParameter, InferTensorContents, ModelConfigRequest, ModelInferRequest, ModelMetadataRequest,
    ModelReadyRequest, ModelStatisticsRequest, RepositoryIndexRequest, RepositoryModelLoadRequest,
    RepositoryModelUnloadRequest, ServerMetadataRequest, ServerReadyRequest, ServerReadyResponse,
};
use symphony_types::Nanos;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::fake::{Running, every_type, refusals};

pub(crate) type Client = GrpcInferenceServiceClient<Channel>;

pub(crate) async fn connect(running: &Running) -> Client {
    Client::connect(format!("http://{}", running.grpc)).await.unwrap()
}

fn le(values: &[f32]) -> bytes::Bytes {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn input(name: &str, datatype: &str, shape: &[i64]) -> InferInputTensor {
    InferInputTensor {
        name: name.to_owned(),
        datatype: datatype.to_owned(),
        shape: shape.to_vec(),
        ..InferInputTensor::default()
    }
}

/// One item for a model with input `x`.
pub(crate) fn raw(model: &str) -> ModelInferRequest {
    ModelInferRequest {
        model_name: model.to_owned(),
        id: "forty-two".to_owned(),
        inputs: vec![input("x", "FP32", &[1, 2, 2])],
        raw_input_contents: vec![le(&[1.0, 2.0, 3.0, 4.0])],
        ..ModelInferRequest::default()
    }
}

fn typed(model: &str) -> ModelInferRequest {
    let mut request = raw(model);
    let contents = InferTensorContents { fp32_contents: vec![1.0, 2.0, 3.0, 4.0], ..Default::default() };
    request.inputs[0].contents = Some(contents);
    request.raw_input_contents.clear();
    request
}

fn parameter(choice: ParameterChoice) -> InferParameter {
    InferParameter { parameter_choice: Some(choice) }
}

fn reason(status: &Status) -> &str {
    status.metadata().get("symphony-reason").map_or("", |reason| reason.to_str().unwrap())
}

fn request_id(metadata: &tonic::metadata::MetadataMap) -> &str {
    metadata.get("symphony-request-id").map_or("", |id| id.to_str().unwrap())
}

#[tokio::test]
async fn errors_name_their_request_if_it_was_accepted() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    for (model, expected) in [("refuse-protect_batch", "f3/ab/1"), ("late", "f3/ab/2"), ("loading", "")] {
        let status = client.model_infer(raw(model)).await.unwrap_err();
        assert_eq!(request_id(status.metadata()), expected, "{model}: {status}");
    }
}

#[tokio::test]
async fn the_answer_is_raw_or_typed_as_the_request_was() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    let answer = client.model_infer(raw("double")).await.unwrap();
    assert_eq!(request_id(answer.metadata()), "f3/ab/1");
    let answer = answer.into_inner();
    assert_eq!(answer.parameters["symphony_request_id"], parameter(ParameterChoice::StringParam("f3/ab/1".into())));
    assert_eq!(
        (answer.model_name.as_str(), answer.model_version.as_str(), answer.id.as_str()),
        ("double", "1", "forty-two")
    );
    assert_eq!(answer.raw_output_contents, [le(&[2.0, 4.0, 6.0, 8.0])]);
    assert_eq!((answer.outputs[0].name.as_str(), answer.outputs[0].shape.as_slice()), ("y", [1, 2, 2].as_slice()));
    assert!(answer.outputs[0].contents.is_none());
    assert_eq!(answer.parameters["symphony_batch"], parameter(ParameterChoice::Int64Param(2)));

    let answer = client.model_infer(typed("double")).await.unwrap().into_inner();
    assert!(answer.raw_output_contents.is_empty());
    assert_eq!(answer.outputs[0].contents.as_ref().unwrap().fp32_contents, [2.0, 4.0, 6.0, 8.0]);
}

#[tokio::test]
async fn raw_tensors_of_every_type_pass_through_in_any_order() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    let specs = every_type();
    let mut request = ModelInferRequest { model_name: "every-type".into(), ..Default::default() };
    for spec in specs.iter().rev() {
        request.inputs.push(input(&spec.name, spec.data_type.name(), &[3, 2]));
        request.raw_input_contents.push(vec![1; 3 * spec.item_bytes()].into());
    }
    for name in ["uint64", "bool"] {
        request.outputs.push(InferRequestedOutputTensor { name: name.into(), parameters: HashMap::new() });
    }
    let answer = client.model_infer(request).await.unwrap().into_inner();
    let names: Vec<&str> = answer.outputs.iter().map(|output| output.name.as_str()).collect();
    assert_eq!(names, ["uint64", "bool"]);
    let lengths: Vec<usize> = answer.raw_output_contents.iter().map(|bytes| bytes.len()).collect();
    assert_eq!(lengths, [48, 6]);
}

#[tokio::test]
async fn every_end_of_a_request_has_its_code_reason_and_advice() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    for (model, error) in refusals() {
        let expected = error.error_status();
        let status = client.model_infer(raw(&model)).await.unwrap_err();
        assert_eq!((status.code(), reason(&status)), (expected.grpc, expected.reason), "{model}");
        assert_eq!(status.message(), error.to_string());
        let pushback = status.metadata().get("grpc-retry-pushback-ms");
        assert_eq!(pushback.is_some(), expected.retry.after().is_some(), "{model}");
    }
    let status = client.model_infer(raw("late")).await.unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::DeadlineExceeded, "late"));
    let mut accepts = raw("late");
    accepts.parameters.insert("symphony_accept_late".into(), parameter(ParameterChoice::BoolParam(true)));
    let answer = client.model_infer(accepts).await.unwrap().into_inner();
    assert_eq!(answer.parameters["symphony_late"], parameter(ParameterChoice::BoolParam(true)));

    let status = client.model_infer(raw("nope")).await.unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::NotFound, "unknown_model"));
    let version = ModelInferRequest { model_version: "2".into(), ..raw("double") };
    assert_eq!(client.model_infer(version).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn what_does_not_fit_the_signature_is_refused_with_what_was_expected() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    let with_shape = |shape: &[i64]| ModelInferRequest { inputs: vec![input("x", "FP32", shape)], ..raw("double") };
    let mut both = typed("double");
    both.raw_input_contents = raw("double").raw_input_contents;
    let mut two_raw = raw("double");
    two_raw.raw_input_contents.push(bytes::Bytes::new());
    let mut twice = raw("every-type");
    twice.inputs = vec![input("bool", "BOOL", &[1, 2]), input("bool", "BOOL", &[1, 2])];
    twice.raw_input_contents = vec![vec![0; 2].into(), vec![0; 2].into()];
    let mut wrong_list = typed("double");
    wrong_list.inputs[0].contents = Some(InferTensorContents { fp64_contents: vec![1.0; 4], ..Default::default() });
    let mut no_contents = typed("double");
    no_contents.inputs[0].contents = None;
    let cases = [
        (with_shape(&[]), "shape []; expected [-1,2,2]"),
        (with_shape(&[-1, 2, 2]), "has -1 items"),
        (with_shape(&[9, 2, 2]), "takes 1 to 8"),
        (with_shape(&[i64::MIN, 2, 2]), "takes 1 to 8"),
        (with_shape(&[i64::MAX, i64::MAX, i64::MAX]), "expected [-1,2,2]"),
        (with_shape(&[2, 2, 2]), "has 16 bytes of data; expected 32"),
        (both, "has contents beside raw_input_contents"),
        (two_raw, "2 entries for 1 inputs"),
        (twice, "input `bool` is given twice"),
        (wrong_list, "fp32_contents has 0 elements; expected 4"),
        (no_contents, "fp32_contents has 0 elements; expected 4"),
        (ModelInferRequest { inputs: vec![], raw_input_contents: vec![], ..raw("double") }, "input `x` is missing"),
    ];
    for (request, expected) in cases {
        let status = client.model_infer(request).await.unwrap_err();
        assert_eq!((status.code(), reason(&status)), (Code::InvalidArgument, "invalid_request"), "{status}");
        assert!(status.message().contains(expected), "{}\n  expected: {expected}", status.message());
    }
    assert_eq!(running.service.count(), 0, "nothing of this may reach the service");
}

#[tokio::test]
async fn inputs_of_different_numbers_of_items_are_refused() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    let mut request = ModelInferRequest { model_name: "every-type".into(), ..Default::default() };
    for (index, spec) in every_type().iter().enumerate() {
        let items = if index == 3 { 2 } else { 1 };
        request.inputs.push(input(&spec.name, spec.data_type.name(), &[items, 2]));
        request.raw_input_contents.push(vec![0; items as usize * spec.item_bytes()].into());
    }
    let status = client.model_infer(request).await.unwrap_err();
    assert_eq!(status.message(), "input `bool` has 1 items and input `uint32` has 2; expected as many in all inputs");
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_before_it_is_held() {
    let running = Running::start_with(Limits { request_bytes_max: 1000, ..Limits::default() }).await;
    let mut client = connect(&running).await;
    let request = ModelInferRequest { raw_input_contents: vec![vec![0; 2000].into()], ..raw("double") };
    let status = client.model_infer(request).await.unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::ResourceExhausted, "request_too_large"), "{status}");
    assert_eq!(*running.service.refused.lock().unwrap(), [(String::new(), "request_too_large")], "it is counted");
}

#[tokio::test]
async fn a_passed_deadline_is_told_as_such_and_cancels_the_request() {
    let running = Running::start().await;
    // A client that does not keep the time itself, so that the server's answer arrives.
    let mut builder = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
    let http = builder.http2_only(true).build_http::<tonic::body::Body>();
    let origin = format!("http://{}", running.grpc).parse().unwrap();
    let mut client = GrpcInferenceServiceClient::with_origin(http, origin);
    let mut request = Request::new(raw("stuck"));
    request.metadata_mut().insert("grpc-timeout", "50m".parse().unwrap());
    request.metadata_mut().insert("x-slo-ms", "20".parse().unwrap());
    let status = client.model_infer(request).await.unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::DeadlineExceeded, "deadline_passed"), "{status}");
    assert_eq!(request_id(status.metadata()), "f3/ab/1");
    running.service.stuck_is(0).await;
    let deadline = running.service.last().deadline;
    assert_eq!((deadline.grpc, deadline.slo), (Some(Nanos::from_millis(50)), Some(Nanos::from_millis(20))));
    assert_eq!(deadline.shortest(), Some(Nanos::from_millis(20)));
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_its_request_and_frees_its_place() {
    let running = Running::start_for(1).await;
    let mut client = connect(&running).await;

    // Phase 1: a request is stuck and takes the only place.
    let mut other = client.clone();
    let waiting = tokio::spawn(async move { other.model_infer(raw("stuck")).await });
    running.service.stuck_is(1).await;
    let status = client.model_infer(raw("double")).await.unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::ResourceExhausted, "too_many_requests"));

    // Phase 2: the client goes, and the place is free.
    waiting.abort();
    running.service.stuck_is(0).await;
    client.model_infer(raw("double")).await.unwrap();
}

#[tokio::test]
async fn a_stream_answers_in_order_and_survives_errors_in_it() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    let requests = ["double", "refuse-queue_full", "double"].map(raw);
    let mut answers = client.model_stream_infer(futures::stream::iter(requests)).await.unwrap().into_inner();
    let mut seen = Vec::new();
    while let Some(answer) = answers.next().await {
        let answer = answer.unwrap();
        let inner = answer.infer_response.unwrap();
        assert_eq!(inner.id, "forty-two");
        assert!(["double", "refuse-queue_full"].contains(&inner.model_name.as_str()), "errors name it, too");
        assert!(inner.parameters.contains_key("symphony_request_id"), "answers and errors alike");
        assert_eq!(inner.parameters["triton_final_response"], parameter(ParameterChoice::BoolParam(true)));
        let parameter_of = |name: &str| inner.parameters.get(name).and_then(|value| value.parameter_choice.clone());
        let reason =
            parameter_of("symphony_reason").map(|reason| (reason, parameter_of("symphony_retry_after_ms").is_some()));
        seen.push((answer.error_message.is_empty(), inner.raw_output_contents.len(), reason));
    }
    let refused = (ParameterChoice::StringParam("queue_full".into()), true);
    assert_eq!(seen, [(true, 1, None), (false, 0, Some(refused)), (true, 1, None)]);
}

#[tokio::test]
async fn metadata_configuration_statistics_and_the_repository_are_as_other_servers_have_them() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    let server = client.server_metadata(ServerMetadataRequest {}).await.unwrap().into_inner();
    assert_eq!((server.name.as_str(), server.version.as_str()), ("fake", "7"));

    let (name, version) = ("double".to_owned(), String::new());
    let request = ModelMetadataRequest { name: name.clone(), version: "1".into() };
    let model = client.model_metadata(request).await.unwrap().into_inner();
    assert_eq!((model.inputs[0].datatype.as_str(), model.inputs[0].shape.as_slice()), ("FP32", [-1, 2, 2].as_slice()));
    let request = ModelConfigRequest { name: name.clone(), version: version.clone() };
    let config = client.model_config(request).await.unwrap().into_inner().config.unwrap();
    assert_eq!((config.max_batch_size, config.input[0].dims.as_slice()), (8, [2, 2].as_slice()));
    assert_eq!(config.parameters["slo_ms"].string_value, "50");
    let request = ModelStatisticsRequest { name, version: version.clone() };
    let statistics = client.model_statistics(request).await.unwrap().into_inner().model_stats;
    assert_eq!((statistics.len(), statistics[0].inference_count, statistics[0].batch_stats[0].batch_size), (1, 12, 4));
    // Else perf_analyzer gives a measurement up.
    let spans = statistics[0].inference_stats.unwrap();
    let infer = spans.compute_infer.unwrap();
    assert_eq!([spans.compute_input, spans.compute_output].map(|span| span.unwrap().count), [infer.count; 2]);
    let batch = &statistics[0].batch_stats[0];
    let counts = [batch.compute_input, batch.compute_infer, batch.compute_output].map(|span| span.unwrap().count);
    assert_eq!(counts, [counts[1]; 3]);
    assert!(counts[1] > 0);
    let request = ModelStatisticsRequest { name: "nope".into(), version };
    assert_eq!(client.model_statistics(request).await.unwrap_err().code(), Code::NotFound);

    let index = RepositoryIndexRequest { ready: true, ..Default::default() };
    let models = client.repository_index(index).await.unwrap().into_inner().models;
    assert!(models.iter().any(|model| model.name == "double" && model.state == "READY"));
    assert!(!models.iter().any(|model| model.name == "loading"));
    let load = RepositoryModelLoadRequest { model_name: "double".into(), ..Default::default() };
    client.repository_model_load(load).await.unwrap();
    let unload = RepositoryModelUnloadRequest { model_name: "nope".into(), ..Default::default() };
    assert_eq!(client.repository_model_unload(unload).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn health_follows_readiness() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    let channel = Channel::from_shared(format!("http://{}", running.grpc)).unwrap().connect().await.unwrap();
    let mut health = HealthClient::new(channel);
    let request = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let mut watched = health.watch(request("inference.GRPCInferenceService")).await.unwrap().into_inner();
    let serving = i32::from(ServingStatus::Serving);
    let not_serving = i32::from(ServingStatus::NotServing);
    assert_eq!(watched.message().await.unwrap().unwrap().status, serving);
    assert_eq!(health.check(request("")).await.unwrap().into_inner().status, serving);
    assert_eq!(health.check(request("nope")).await.unwrap_err().code(), Code::NotFound);

    running.service.drain();
    assert_eq!(health.check(request("")).await.unwrap().into_inner().status, not_serving);
    let change = tokio::time::timeout(Duration::from_secs(60), watched.message()).await;
    assert_eq!(change.expect("no change was told").unwrap().unwrap().status, not_serving);
    assert!(!client.server_ready(ServerReadyRequest {}).await.unwrap().into_inner().ready);
}

#[tokio::test]
async fn readiness_of_a_model_that_is_unknown_is_no_error() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    for (name, expected) in [("double", true), ("loading", false), ("nope", false)] {
        let request = ModelReadyRequest { name: name.to_owned(), version: String::new() };
        assert_eq!(client.model_ready(request).await.unwrap().into_inner().ready, expected, "{name}");
    }
}

#[tokio::test]
async fn a_call_that_is_not_served_is_named() {
    let running = Running::start().await;
    let channel = tonic::transport::Endpoint::new(format!("http://{}", running.grpc)).unwrap().connect().await.unwrap();
    for path in [
        "/inference.GRPCInferenceService/CudaSharedMemoryRegister",
        "/grpc.health.v1.Health/Nothing",
        "/nobody.Service/Call",
    ] {
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<ServerReadyRequest, ServerReadyResponse>::default();
        let request = tonic::Request::new(ServerReadyRequest {});
        let status = client.unary(request, path.parse().unwrap(), codec).await.unwrap_err();
        assert_eq!((status.code(), reason(&status)), (Code::Unimplemented, "unsupported"), "{path}");
        assert_eq!(status.message(), format!("`{path}` is not served here"));
    }
}

#[tokio::test]
async fn what_a_client_calls_its_request_reaches_the_service_and_a_refused_call_is_noticed() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut traced = Request::new(raw("double"));
    traced.metadata_mut().insert("traceparent", parent.parse().unwrap());
    let answer = client.model_infer(traced).await.unwrap();
    let context = running.service.last().context;
    assert_eq!((context.id.as_str(), context.trace.unwrap().to_string().as_str()), ("forty-two", parent));
    assert_eq!(answer.metadata().get("traceparent").unwrap(), parent, "the service traces it");

    client.model_infer(raw("nobody")).await.unwrap_err();
    client.model_infer(ModelInferRequest { inputs: vec![], ..raw("double") }).await.unwrap_err();
    let refused = std::mem::take(&mut *running.service.refused.lock().unwrap());
    assert_eq!(refused, [(String::new(), "unknown_model"), ("double".to_owned(), "invalid_request")]);

    // What is refused before it is read belongs to its client's trace, too.
    let mut hasty = Request::new(raw("double"));
    hasty.metadata_mut().insert("traceparent", parent.parse().unwrap());
    hasty.metadata_mut().insert("x-slo-ms", "soon".parse().unwrap());
    client.model_infer(hasty).await.unwrap_err();
    let traces = running.service.refused_traces.lock().unwrap().clone();
    assert_eq!(traces.last().unwrap().unwrap().to_string(), parent);
}

#[tokio::test]
async fn a_pipeline_says_which_rows_its_outputs_have() {
    let running = Running::start().await;
    let answer = connect(&running).await.model_infer(raw("rows")).await.unwrap().into_inner();
    let text = |text: &str| Some(ParameterChoice::StringParam(text.to_owned()));
    let rows = &answer.outputs[1];
    assert_eq!((&rows.shape[..], &rows.parameters["symphony_rows"].parameter_choice), (&[2][..], &text("0.1,0.4")));
    assert!(answer.outputs[0].parameters.is_empty());
    assert_eq!(&answer.raw_output_contents[1][..], [7, 9]);
    assert_eq!(answer.parameters["symphony_stages"].parameter_choice, text("double=f3/ab/9"));
    assert_eq!(answer.parameters["symphony_partial"].parameter_choice, Some(ParameterChoice::BoolParam(true)));
}
