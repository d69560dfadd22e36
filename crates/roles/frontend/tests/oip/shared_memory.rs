//! Tensors in shared memory of clients.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use reqwest::Client as Http;
use serde_json::{Value, json};
use symphony_frontend::oip::{Limits, SHARED_MEMORY_EXTENSION, rest_router};
use symphony_protocol::inference::infer_parameter::ParameterChoice;
use symphony_protocol::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use symphony_protocol::inference::system_shared_memory_status_response::RegionStatus;
use symphony_protocol::inference::{
    CudaSharedMemoryStatusRequest, CudaSharedMemoryUnregisterRequest, InferParameter, ModelInferRequest,
    ServerMetadataRequest, SystemSharedMemoryRegisterRequest, SystemSharedMemoryStatusRequest,
    SystemSharedMemoryUnregisterRequest,
};
use tonic::codegen::Service as _;
use tonic::{Code, Status};

use super::fake::Running;
use super::grpc::{Client, connect};

/// Shared memory of a test's own; its name is gone when this is dropped.
struct Object(String);

impl Object {
    fn new(test: &str, bytes: &[u8]) -> Self {
        let object = Self(format!("symphony-oip-{test}-{}", std::process::id()));
        std::fs::write(object.path(), bytes).unwrap();
        object
    }

    fn path(&self) -> String {
        format!("/dev/shm/{}", self.0)
    }

    fn key(&self) -> String {
        format!("/{}", self.0)
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    fn cut(&self, bytes: u64) {
        File::options().write(true).open(self.path()).unwrap().set_len(bytes).unwrap();
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path());
    }
}

fn le(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// An item of the model `double`, and room for what it becomes.
const ITEM: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
const DOUBLED: [f32; 4] = [2.0, 4.0, 6.0, 8.0];

fn item_and_room(test: &str) -> Object {
    Object::new(test, &[le(&ITEM), vec![0; 16]].concat())
}

fn placed(region: &str, offset: i64, bytes: i64) -> HashMap<String, InferParameter> {
    let entries = [
        ("shared_memory_region", ParameterChoice::StringParam(region.to_owned())),
        ("shared_memory_offset", ParameterChoice::Int64Param(offset)),
        ("shared_memory_byte_size", ParameterChoice::Int64Param(bytes)),
    ];
    entries.map(|(name, value)| (name.to_owned(), InferParameter { parameter_choice: Some(value) })).into()
}

/// A request for `double` whose item and answer are in the region `r`.
fn in_region(output_bytes: i64) -> ModelInferRequest {
    let input = InferInputTensor {
        name: "x".into(),
        datatype: "FP32".into(),
        shape: vec![1, 2, 2],
        parameters: placed("r", 0, 16),
        contents: None,
    };
    let output = InferRequestedOutputTensor { name: "y".into(), parameters: placed("r", 16, output_bytes) };
    ModelInferRequest {
        model_name: "double".into(),
        inputs: vec![input],
        outputs: vec![output],
        ..ModelInferRequest::default()
    }
}

async fn register(client: &mut Client, object: &Object, byte_size: u64) -> Result<(), Status> {
    let request = SystemSharedMemoryRegisterRequest { name: "r".into(), key: object.key(), offset: 0, byte_size };
    client.system_shared_memory_register(request).await.map(drop)
}

fn reason(status: &Status) -> &str {
    status.metadata().get("symphony-reason").map_or("", |reason| reason.to_str().unwrap())
}

#[tokio::test]
async fn over_grpc_inputs_are_read_and_outputs_written_where_they_are() {
    let running = Running::start_with_shared_memory().await;
    let mut client = connect(&running).await;
    let server = client.server_metadata(ServerMetadataRequest {}).await.unwrap().into_inner();
    assert!(server.extensions.iter().any(|name| name == SHARED_MEMORY_EXTENSION));
    let object = item_and_room("grpc");
    let refused = client.model_infer(in_region(16)).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::NotFound, "unknown_region"), "{refused}");

    register(&mut client, &object, 32).await.unwrap();
    let again = register(&mut client, &object, 32).await.unwrap_err();
    assert_eq!((again.code(), reason(&again)), (Code::AlreadyExists, "region_exists"));
    let status = SystemSharedMemoryStatusRequest::default();
    let regions = client.system_shared_memory_status(status).await.unwrap().into_inner().regions;
    let known = RegionStatus { name: "r".into(), key: object.key(), offset: 0, byte_size: 32 };
    assert_eq!(regions, HashMap::from([("r".to_owned(), known)]));

    let answer = client.model_infer(in_region(16)).await.unwrap().into_inner();
    assert_eq!(object.bytes()[16..], le(&DOUBLED));
    // As Triton has it: an output has its entry, which is empty.
    assert_eq!(answer.raw_output_contents, [bytes::Bytes::new()]);
    assert_eq!(answer.outputs[0].parameters, placed("r", 16, 16));
    assert_eq!((answer.outputs[0].shape.as_slice(), answer.outputs[0].contents.clone()), (&[1, 2, 2][..], None));

    // The one in shared memory, the other with the request.
    object.cut(16);
    object.cut(32);
    let one_of_each = ModelInferRequest { outputs: vec![], ..in_region(16) };
    let answer = client.model_infer(one_of_each).await.unwrap().into_inner();
    assert_eq!(answer.raw_output_contents, [le(&DOUBLED)]);
    let mut stream = client.model_stream_infer(futures::stream::iter([in_region(16)])).await.unwrap().into_inner();
    let answer = stream.message().await.unwrap().unwrap();
    assert_eq!(answer.error_message, "");
    assert_eq!(object.bytes()[16..], le(&DOUBLED));

    for _ in 0..2 {
        let request = SystemSharedMemoryUnregisterRequest { name: "r".into() };
        client.system_shared_memory_unregister(request).await.unwrap();
    }
    let refused = client.model_infer(in_region(16)).await.unwrap_err();
    assert_eq!(reason(&refused), "unknown_region");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_before_it_is_run() {
    let running = Running::start_with_shared_memory().await;
    let mut client = connect(&running).await;
    let object = item_and_room("unfit");
    register(&mut client, &object, 32).await.unwrap();
    let mut cases = vec![(in_region(15), "shared_memory_byte_size is 15"), (in_region(17), "has 32 bytes; got")];
    for (parameters, words) in [
        (placed("r", 0, 12), "it has 12 bytes in shared memory; expected 16"),
        (placed("r", 20, 16), "region `r` has 32 bytes; got"),
        (placed("r", i64::MAX, 16), "region `r` has 32 bytes; got"),
        (placed("r", -1, 16), "expected a number of bytes"),
        (placed("r", 0, 16).into_iter().filter(|(name, _)| name.ends_with("region")).collect(), "needs both"),
    ] {
        let mut request = in_region(16);
        request.inputs[0].parameters = parameters;
        cases.push((request, words));
    }
    let both = ModelInferRequest { raw_input_contents: vec![le(&ITEM).into()], ..in_region(16) };
    cases.push((both, "1 entries for 0 inputs"));
    for (request, words) in cases {
        let refused = client.model_infer(request).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused)), (Code::InvalidArgument, "invalid_request"), "{refused}");
        assert!(refused.message().contains(words), "{}\n  expected: {words}", refused.message());
    }
    assert_eq!(running.service.count(), 0);

    // Its client cuts it short.
    object.cut(10);
    let refused = client.model_infer(in_region(16)).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::InvalidArgument, "invalid_request"));
    assert!(refused.message().contains("was cut short"), "{refused}");
    object.cut(0);
    std::fs::write(object.path(), [le(&ITEM), vec![0; 16]].concat()).unwrap();
    client.model_infer(in_region(16)).await.unwrap();
    assert_eq!(object.bytes()[16..], le(&DOUBLED));
}

fn rest_body() -> Value {
    let at = |offset: u64| json!({ "shared_memory_region": "r", "shared_memory_offset": offset, "shared_memory_byte_size": 16 });
    json!({
        "inputs": [{ "name": "x", "datatype": "FP32", "shape": [1, 2, 2], "parameters": at(0) }],
        "outputs": [{ "name": "y", "parameters": at(16) }],
    })
}

async fn post(running: &Running, path: &str, body: &Value) -> (u16, Value) {
    let answer = Http::new().post(running.url(path)).json(body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn over_rest_as_over_grpc() {
    let running = Running::start_with_shared_memory().await;
    let object = item_and_room("rest");
    let region = json!({ "key": object.key(), "byte_size": 32 });
    assert_eq!(post(&running, "/v2/systemsharedmemory/region/r/register", &region).await, (200, json!({})));
    let (status, answer) = post(&running, "/v2/systemsharedmemory/region/r/register", &region).await;
    assert_eq!((status, &answer["reason"]), (409, &json!("region_exists")));
    for path in ["/v2/systemsharedmemory/status", "/v2/systemsharedmemory/region/r/status"] {
        let listed: Value = reqwest::get(running.url(path)).await.unwrap().json().await.unwrap();
        assert_eq!(listed, json!([{ "name": "r", "key": object.key(), "offset": 0, "byte_size": 32 }]));
    }

    let (status, answer) = post(&running, "/v2/models/double/infer", &rest_body()).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(object.bytes()[16..], le(&DOUBLED));
    // No parameters: clients of Triton's take an output that has some for one with binary data.
    assert_eq!(answer["outputs"], json!([{ "name": "y", "datatype": "FP32", "shape": [1, 2, 2] }]));
    let mut both = rest_body();
    both["inputs"][0]["data"] = json!(ITEM);
    assert_eq!(post(&running, "/v2/models/double/infer", &both).await.0, 400);
    let mut both = rest_body();
    both["outputs"][0]["parameters"]["binary_data"] = json!(true);
    let (status, answer) = post(&running, "/v2/models/double/infer", &both).await;
    assert_eq!((status, &answer["reason"]), (400, &json!("invalid_request")), "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("binary_data goes with no shared memory"), "{answer}");
    both["outputs"][0]["parameters"]["binary_data"] = json!(false);
    assert_eq!(post(&running, "/v2/models/double/infer", &both).await.0, 200);

    let (status, answer) = post(&running, "/v2/systemsharedmemory/region/s/register", &json!({ "key": "/x" })).await;
    assert_eq!((status, &answer["reason"]), (400, &json!("invalid_request")), "{answer}");
    for path in ["/v2/systemsharedmemory/region/r/unregister", "/v2/systemsharedmemory/unregister"] {
        assert_eq!(post(&running, path, &json!({})).await, (200, json!({})));
    }
    let (status, answer) = post(&running, "/v2/models/double/infer", &rest_body()).await;
    assert_eq!((status, &answer["reason"]), (404, &json!("unknown_region")));
    let (status, answer) = post(&running, "/v2/cudasharedmemory/region/r/register", &json!({})).await;
    assert_eq!((status, &answer["reason"]), (501, &json!("unsupported")));
}

/// Asks the pipeline `rows` for its outputs `y` and `label` with these parameters, and reads what of each came with the
/// answer as Triton's C++ client does, and perf_analyzer with it: an output that has parameters must say in them how
/// many bytes it has behind the JSON.
async fn ask_as_cpp_client(running: &Running, y: &Value, label: &Value) -> Vec<Vec<u8>> {
    let body = json!({
        "inputs": [{ "name": "x", "datatype": "FP32", "shape": [1, 2, 2], "data": ITEM }],
        "outputs": [{ "name": "y", "parameters": y }, { "name": "label", "parameters": label }],
    });
    let answer = Http::new().post(running.url("/v2/models/rows/infer")).json(&body).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let json_bytes = answer.headers().get("inference-header-content-length");
    let json_bytes: Option<usize> = json_bytes.map(|bytes| bytes.to_str().unwrap().parse().unwrap());
    let body = answer.bytes().await.unwrap();
    let (json, mut behind) = body.split_at(json_bytes.unwrap_or(body.len()));
    let json: Value = serde_json::from_slice(json).unwrap();
    let mut outputs = Vec::new();
    for output in json["outputs"].as_array().unwrap() {
        assert_eq!(output.get("data"), None, "{json}");
        let bytes = output.get("parameters").map_or(0, |said| said["binary_data_size"].as_u64().unwrap());
        let (own, others) = behind.split_at(bytes as usize);
        outputs.push(own.to_vec());
        behind = others;
    }
    assert!(behind.is_empty(), "{json}");
    outputs
}

#[tokio::test]
async fn over_rest_tritons_cpp_client_reads_answers_whichever_of_their_outputs_are_in_shared_memory() {
    let running = Running::start_with_shared_memory().await;
    let object = item_and_room("cpp");
    let region = json!({ "key": object.key(), "byte_size": 32 });
    assert_eq!(post(&running, "/v2/systemsharedmemory/region/r/register", &region).await, (200, json!({})));
    let at = |offset: u64| json!({ "shared_memory_region": "r", "shared_memory_offset": offset, "shared_memory_byte_size": 16 });
    let binary = json!({ "binary_data": true });

    assert_eq!(ask_as_cpp_client(&running, &binary, &at(16)).await, [le(&DOUBLED), vec![]]);
    assert_eq!(object.bytes()[16..18], [7, 9], "as many rows as there are");
    assert_eq!(ask_as_cpp_client(&running, &at(16), &binary).await, [vec![], vec![7_u8, 9]]);
    assert_eq!(object.bytes()[16..], le(&DOUBLED));
    assert_eq!(ask_as_cpp_client(&running, &at(0), &at(16)).await, [vec![], Vec::<u8>::new()]);
    assert_eq!((&object.bytes()[..16], &object.bytes()[16..18]), (&le(&DOUBLED)[..], &[7, 9][..]));
}

#[tokio::test]
async fn clients_that_begin_by_forgetting_all_of_cudas_may() {
    let running = Running::start().await;
    for path in ["/v2/cudasharedmemory/unregister", "/v2/cudasharedmemory/region/r/unregister"] {
        assert_eq!(post(&running, path, &json!({})).await, (200, json!({})), "{path}");
    }
    for path in ["/v2/cudasharedmemory/status", "/v2/cudasharedmemory/region/r/status"] {
        let listed: Value = reqwest::get(running.url(path)).await.unwrap().json().await.unwrap();
        assert_eq!(listed, json!([]), "{path}");
    }
    let mut client = connect(&running).await;
    client.cuda_shared_memory_unregister(CudaSharedMemoryUnregisterRequest::default()).await.unwrap();
    client.cuda_shared_memory_status(CudaSharedMemoryStatusRequest::default()).await.unwrap();
}

#[tokio::test]
async fn who_does_not_come_over_the_loopback_gets_none_of_it() {
    let running = Running::start_with_shared_memory().await;
    let object = item_and_room("far");
    register(&mut connect(&running).await, &object, 32).await.unwrap();
    // A call that bypasses the server has no address, so it is not local.
    let mut router = rest_router(Arc::clone(&running.service), Limits::default(), &[]);
    let region = json!({ "key": object.key(), "byte_size": 32 });
    for (method, path, body) in [
        ("POST", "/v2/systemsharedmemory/region/s/register", region.to_string()),
        ("POST", "/v2/systemsharedmemory/unregister", "{}".to_owned()),
        ("GET", "/v2/systemsharedmemory/status", String::new()),
        ("POST", "/v2/models/double/infer", rest_body().to_string()),
    ] {
        let request = Request::builder().method(method).uri(path).body(Body::from(body)).unwrap();
        let answer = router.call(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
        let body = axum::body::to_bytes(answer.into_body(), 1 << 16).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["reason"], "not_local", "{path}");
    }
    // Nor does what a proxy passes on, or a page sends.
    for (name, value) in [("x-forwarded-for", "192.0.2.1"), ("x-real-ip", "192.0.2.1")] {
        let mut client = connect(&running).await;
        let mut infer = tonic::Request::new(in_region(16));
        infer.metadata_mut().insert(name, value.parse().unwrap());
        let refused = client.model_infer(infer).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused)), (Code::PermissionDenied, "not_local"), "{name}: {refused}");
        let mut all = tonic::Request::new(SystemSharedMemoryUnregisterRequest::default());
        all.metadata_mut().insert(name, value.parse().unwrap());
        let refused = client.system_shared_memory_unregister(all).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused)), (Code::PermissionDenied, "not_local"), "{name}: {refused}");
    }
    let register = Http::new().post(running.url("/v2/systemsharedmemory/region/s/register")).json(&region);
    let page = register.header("host", "evil.example").header("origin", "http://evil.example");
    let refused: Value = page.send().await.unwrap().json().await.unwrap();
    assert_eq!(refused["reason"], "foreign_origin", "its name leads to the loopback by now");
    assert_eq!(object.bytes()[16..], [0; 16]);
    assert_eq!(running.service.count(), 0);
}

#[tokio::test]
async fn where_it_is_not_allowed_nobody_gets_any() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    let object = item_and_room("off");
    let refused = register(&mut client, &object, 32).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::Unimplemented, "unsupported"), "{refused}");
    let refused = client.model_infer(in_region(16)).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::Unimplemented, "unsupported"), "{refused}");
    let server = client.server_metadata(ServerMetadataRequest {}).await.unwrap().into_inner();
    assert!(!server.extensions.iter().any(|name| name == SHARED_MEMORY_EXTENSION));
}
