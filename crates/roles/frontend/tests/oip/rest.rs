//! REST.

use std::time::Duration;

use reqwest::{Client, Response};
use serde_json::{Value, json};
use symphony_frontend::oip::Limits;
use symphony_frontend::oip::limits::BODY_READ_MAX;
use symphony_types::Nanos;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fake::{Running, every_type, refusals};

const JSON_LENGTH: &str = "inference-header-content-length";

fn x(shape: &[i64], data: &Value) -> Value {
    json!({ "inputs": [{ "name": "x", "datatype": "FP32", "shape": shape, "data": data }] })
}

fn two_items() -> Value {
    x(&[2, 2, 2], &json!([1, 2, 3, 4, 5, 6, 7, 8.5]))
}

async fn post(running: &Running, path: &str, body: &Value) -> Response {
    Client::new().post(running.url(path)).json(body).send().await.unwrap()
}

async fn get(running: &Running, path: &str) -> (u16, Value) {
    let response = reqwest::get(running.url(path)).await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// A body of JSON with bytes behind it.
async fn post_binary(running: &Running, path: &str, json: &Value, binary: &[u8]) -> Response {
    let json = serde_json::to_vec(json).unwrap();
    let length = json.len();
    let body = [json.as_slice(), binary].concat();
    Client::new().post(running.url(path)).header(JSON_LENGTH, length).body(body).send().await.unwrap()
}

async fn refusal(response: Response) -> (u16, String, String) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
    (status, text("reason"), text("error"))
}

#[tokio::test]
async fn flat_and_nested_json_give_the_same_answer() {
    let running = Running::start().await;
    let flat = two_items();
    let nested = x(&[2, 2, 2], &json!([[[1, 2], [3, 4]], [[5, 6], [7, 8.5]]]));
    for (name, mut body) in [("f3/ab/1", flat), ("f3/ab/2", nested)] {
        body["id"] = json!("forty-two");
        let answer = post(&running, "/v2/models/double/infer", &body).await;
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["content-type"]),
            (200, &"application/json".parse().unwrap())
        );
        assert_eq!(answer.headers()["symphony-request-id"], name);
        let answer: Value = answer.json().await.unwrap();
        let expected = json!({
            "id": "forty-two",
            "model_name": "double",
            "model_version": "1",
            "parameters": { "symphony_batch": 3, "symphony_execution_us": 1500, "symphony_request_id": name },
            "outputs": [{
                "name": "y",
                "datatype": "FP32",
                "shape": [2, 2, 2],
                "data": [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 17.0],
            }],
        });
        assert_eq!(answer, expected);
    }
}

#[tokio::test]
async fn binary_tensors_of_every_type_pass_through_and_come_back_as_each_output_asks() {
    let running = Running::start().await;
    let specs = every_type();
    let mut binary = Vec::new();
    let mut inputs = Vec::new();
    // Sent in another order than the signature's: names count, not places.
    for spec in specs.iter().rev() {
        let size = spec.item_bytes();
        binary.extend((0..size).map(|index| u8::from(index % spec.data_type.size_bytes() == 0)));
        inputs.push(json!({
            "name": spec.name, "datatype": spec.data_type, "shape": [1, 2], "parameters": { "binary_data_size": size },
        }));
    }
    let outputs = json!([
        { "name": "fp16", "parameters": { "binary_data": true } },
        { "name": "int64" },
        { "name": "bool", "parameters": { "binary_data": false } },
        { "name": "uint8", "parameters": { "binary_data": true } },
    ]);
    let body = json!({ "inputs": inputs, "outputs": outputs });
    let answer = post_binary(&running, "/v2/models/every-type/versions/1/infer", &body, &binary).await;

    assert_eq!(answer.status(), 200);
    let length: usize = answer.headers()[JSON_LENGTH].to_str().unwrap().parse().unwrap();
    let answer = answer.bytes().await.unwrap();
    let (json, behind) = answer.split_at(length);
    let json: Value = serde_json::from_slice(json).unwrap();
    let expected = json!([
        { "name": "fp16", "datatype": "FP16", "shape": [1, 2], "parameters": { "binary_data_size": 4 } },
        { "name": "int64", "datatype": "INT64", "shape": [1, 2], "data": [1, 1] },
        { "name": "bool", "datatype": "BOOL", "shape": [1, 2], "data": [true, true] },
        { "name": "uint8", "datatype": "UINT8", "shape": [1, 2], "parameters": { "binary_data_size": 2 } },
    ]);
    assert_eq!(json["outputs"], expected);
    assert_eq!(behind, [1, 0, 1, 0, 1, 1]);
}

#[tokio::test]
async fn every_end_of_a_request_has_its_status_reason_and_advice() {
    let running = Running::start().await;
    for (model, error) in refusals() {
        let expected = error.error_status();
        let response = post(&running, &format!("/v2/models/{model}/infer"), &two_items()).await;
        let retry_after = response.headers().get("retry-after").cloned();
        assert_eq!(retry_after.is_some(), expected.retry.after().is_some(), "{model}");
        let (status, reason, message) = refusal(response).await;
        assert_eq!((status, reason.as_str()), (expected.http.as_u16(), expected.reason), "{model}");
        assert_eq!(message, error.to_string());
    }
    let (status, reason, _) = refusal(post(&running, "/v2/models/short/infer", &two_items()).await).await;
    assert_eq!((status, reason.as_str()), (500, "execution_failed"));
}

#[tokio::test]
async fn a_late_answer_is_refused_unless_the_client_takes_it() {
    let running = Running::start().await;
    let (status, reason, message) = refusal(post(&running, "/v2/models/late/infer", &two_items()).await).await;
    assert_eq!((status, reason.as_str()), (504, "late"));
    assert!(message.contains("symphony_accept_late"), "{message}");

    let mut body = two_items();
    body["parameters"] = json!({ "symphony_accept_late": true });
    let answer = post(&running, "/v2/models/late/infer", &body).await;
    assert_eq!(answer.status(), 200);
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["parameters"]["symphony_late"], json!(true));
}

#[tokio::test]
async fn what_does_not_fit_the_signature_is_refused_with_what_was_expected() {
    let running = Running::start().await;
    let input = |name: &str, datatype: &str, shape: Value, data: Value| json!({ "name": name, "datatype": datatype, "shape": shape, "data": data });
    let good = || input("x", "FP32", json!([1, 2, 2]), json!([1, 2, 3, 4]));
    let inputs = |inputs: Vec<Value>| json!({ "inputs": inputs });
    let cases = [
        (inputs(vec![]), "input `x` is missing; model `double` expects `x` FP32[-1,2,2]"),
        (inputs(vec![good(), good()]), "got 2 inputs"),
        (
            inputs(vec![input("z", "FP32", json!([1, 2, 2]), json!([1]))]),
            "has no input `z`; it expects `x` FP32[-1,2,2]",
        ),
        (inputs(vec![input("x", "FP64", json!([1, 2, 2]), json!([1]))]), "data type FP64; expected FP32"),
        (inputs(vec![input("x", "BYTES", json!([1]), json!(["a"]))]), "BYTES, and the model declares no picture there"),
        (inputs(vec![input("x", "fp32", json!([1, 2, 2]), json!([1]))]), "unknown data type `fp32`"),
        (inputs(vec![input("x", "FP32", json!([2, 2]), json!([1, 2, 3, 4]))]), "shape [2,2]; expected [-1,2,2]"),
        (inputs(vec![input("x", "FP32", json!([]), json!([]))]), "shape []; expected [-1,2,2]"),
        (inputs(vec![input("x", "FP32", json!([1, 2, -2]), json!([]))]), "shape [1,2,-2]"),
        (inputs(vec![input("x", "FP32", json!([-1, 2, 2]), json!([]))]), "has -1 items"),
        (inputs(vec![input("x", "FP32", json!([0, 2, 2]), json!([]))]), "has 0 items"),
        (inputs(vec![input("x", "FP32", json!([9, 2, 2]), json!([]))]), "takes 1 to 8"),
        (inputs(vec![input("x", "FP32", json!([i64::MAX, 2, 2]), json!([]))]), "takes 1 to 8"),
        (inputs(vec![input("x", "FP32", json!([1, 2, 2]), json!([1, 2, 3]))]), "has 3 elements; expected 4"),
        (inputs(vec![input("x", "FP32", json!([1, 2, 2]), json!([1, 2, 3, 4, 5]))]), "more than the 4 elements"),
        (inputs(vec![input("x", "FP32", json!([1, 2, 2]), json!([1, 2, "3", 4]))]), "expected an array of FP32"),
        (inputs(vec![input("x", "FP32", json!([1, 2, 2]), json!(null))]), "has no data"),
        (json!({ "outputs": [] }), "missing field `inputs`"),
        (json!([]), "not an inference request"),
        (json!({ "inputs": [good()], "outputs": [{ "name": "q" }] }), "there is no output `q`; model `double` has `y`"),
        (json!({ "inputs": [good()], "outputs": [{ "name": "y" }, { "name": "y" }] }), "got 2 requested outputs"),
        (json!({ "inputs": [good()], "parameters": { "timeout": -1 } }), "whole number of microseconds"),
        (json!({ "inputs": [good()], "parameters": { "timeout": [1] } }), "not an inference request"),
    ];
    for (body, expected) in cases {
        let (status, reason, message) = refusal(post(&running, "/v2/models/double/infer", &body).await).await;
        assert_eq!((status, reason.as_str()), (400, "invalid_request"), "{body}");
        assert!(message.contains(expected), "{body}\n  said: {message}\n  expected: {expected}");
    }
    assert_eq!(running.service.count(), 0, "nothing of this may reach the service");
}

#[tokio::test]
async fn binary_data_of_a_wrong_length_is_refused() {
    let running = Running::start().await;
    let with_size = |size: i64| {
        json!({ "inputs": [{
        "name": "x", "datatype": "FP32", "shape": [1, 2, 2], "parameters": { "binary_data_size": size },
    }] })
    };
    for (size, bytes, expected) in [
        (16, 15, "but only 15 are left"),
        (16, 17, "1 bytes of binary data belong to no input"),
        (12, 12, "has 12 bytes of data; expected 16"),
        (-1, 16, "expected a number of bytes"),
        (i64::MAX, 16, "but only 16 are left"),
    ] {
        let response = post_binary(&running, "/v2/models/double/infer", &with_size(size), &vec![0; bytes]).await;
        let (status, _, message) = refusal(response).await;
        assert_eq!(status, 400);
        assert!(message.contains(expected), "{message}");
    }
    for length in ["1000000", "-1", "many", "18446744073709551616"] {
        let request = Client::new().post(running.url("/v2/models/double/infer")).header(JSON_LENGTH, length);
        let (status, _, message) = refusal(request.body("{}").send().await.unwrap()).await;
        assert_eq!(status, 400, "{length}: {message}");
    }
}

#[tokio::test]
async fn what_is_not_served_says_so() {
    let running = Running::start().await;
    let (status, reason, _) = refusal(post(&running, "/v2/models/nope/infer", &two_items()).await).await;
    assert_eq!((status, reason.as_str()), (404, "unknown_model"));
    let (status, _, message) = refusal(post(&running, "/v2/models/double/versions/2/infer", &two_items()).await).await;
    assert_eq!((status, message.as_str()), (404, "model `double` has version 1, not `2`"));
    for path in ["/v2/models/%ff", "/v2/models/%ff/ready"] {
        let (status, body) = get(&running, path).await;
        assert_eq!((status, &body["reason"]), (400, &json!("invalid_request")), "{path}");
    }
    let (status, body) = get(&running, "/v2/nothing").await;
    assert_eq!((status, &body["reason"]), (404, &json!("unknown_path")));
    let (status, body) = get(&running, "/v2/models/double/infer").await;
    assert_eq!((status, &body["reason"]), (405, &json!("wrong_method")));

    for path in ["/v2/trace/setting", "/v2/models/double/trace/setting", "/v2/logging", "/v1/models/double:predict"] {
        let (status, body) = get(&running, path).await;
        assert_eq!((status, &body["reason"]), (501, &json!("unsupported")), "{path}");
        let (status, reason, _) = refusal(post(&running, path, &json!({ "log_verbose_level": 1 })).await).await;
        assert_eq!((status, reason.as_str()), (501, "unsupported"), "{path}");
    }

    let mut sequence = two_items();
    sequence["parameters"] = json!({ "sequence_id": 7 });
    let mut region = two_items();
    region["inputs"][0]["parameters"] = json!({ "shared_memory_region": "r", "shared_memory_byte_size": 32 });
    region["inputs"][0].as_object_mut().unwrap().remove("data");
    for body in [sequence, region] {
        let (status, reason, _) = refusal(post(&running, "/v2/models/double/infer", &body).await).await;
        assert_eq!((status, reason.as_str()), (501, "unsupported"), "{body}");
    }
}

#[tokio::test]
async fn a_request_over_the_limit_is_refused_whether_or_not_it_says_its_length() {
    let running = Running::start_with(Limits { request_bytes_max: 1000, ..Limits::default() }).await;
    let url = running.url("/v2/models/double/infer");
    let stated = Client::new().post(&url).body(vec![b' '; 1001]).send().await.unwrap();
    assert_eq!(stated.headers()["connection"], "close", "the unread rest ends it");
    assert_eq!(refusal(stated).await.1, "request_too_large");

    // Without a length: chunks, the second of which goes too far.
    let mut stream = TcpStream::connect(running.rest).await.unwrap();
    let chunk = format!("258\r\n{}\r\n", " ".repeat(600));
    let request = format!(
        "POST /v2/models/double/infer HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");

    // A small text that stands for many bytes: 8 items of FP64 in `every-type` are not the limit, 1000 bytes are.
    let just_fits = post(&running, "/v2/models/double/infer", &two_items()).await;
    assert_eq!(just_fits.status(), 200);
}

/// Paused time advances when all tasks wait.
#[tokio::test(start_paused = true)]
async fn a_body_that_stops_arriving_is_given_up_in_time() {
    let running = Running::start().await;
    let mut stream = TcpStream::connect(running.rest).await.unwrap();
    let head = "POST /v2/models/double/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{";
    let began = tokio::time::Instant::now();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"), "{answer}");
    assert!(began.elapsed() >= BODY_READ_MAX);
    assert_eq!(running.service.count(), 0);
}

#[tokio::test]
async fn a_large_body_of_json_is_answered_like_a_small_one() {
    let running = Running::start().await;
    let mut text = serde_json::to_string(&two_items()).unwrap();
    text.push_str(&" ".repeat(1 << 20));
    let response = Client::new().post(running.url("/v2/models/double/infer")).body(text).send().await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_its_request_and_frees_its_place() {
    let running = Running::start_for(1).await;

    // Phase 1: a request is stuck and takes the only place.
    let (url, body) = (running.url("/v2/models/stuck/infer"), two_items());
    let waiting = tokio::spawn(async move { Client::new().post(url).json(&body).send().await });
    running.service.stuck_is(1).await;
    let response = post(&running, "/v2/models/double/infer", &two_items()).await;
    assert!(response.headers().contains_key("retry-after"));
    let (status, reason, _) = refusal(response).await;
    assert_eq!((status, reason.as_str()), (429, "too_many_requests"));

    // Phase 2: health and metadata have a place of their own.
    assert_eq!(get(&running, "/v2/health/ready").await.0, 200);

    // Phase 3: the client goes, and the place is free.
    waiting.abort();
    running.service.stuck_is(0).await;
    assert_eq!(post(&running, "/v2/models/double/infer", &two_items()).await.status(), 200);
}

#[tokio::test]
async fn a_connection_over_the_limit_is_closed_until_another_one_ends() {
    const LIVE: &[u8] = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n";
    let running = Running::start_with(Limits { connections_per_address_max: 1, ..Limits::default() }).await;
    let mut head = [0; 12];

    // Phase 1: the first connection is served and stays.
    let mut first = TcpStream::connect(running.rest).await.unwrap();
    first.write_all(LIVE).await.unwrap();
    first.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");

    // Phase 2: the second one is closed, so that its client tries another frontend.
    let mut second = TcpStream::connect(running.rest).await.unwrap();
    let closed = second.read_to_end(&mut Vec::new()).await;
    assert!(closed.map_or(true, |read| read == 0), "a connection over the limit was served");

    // Phase 3: there is a place again.
    drop(first);
    let served = async {
        loop {
            let mut third = TcpStream::connect(running.rest).await.unwrap();
            if third.write_all(LIVE).await.is_ok() && third.read_exact(&mut head).await.is_ok() {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), served).await.expect("the place stays taken");
    assert_eq!(&head, b"HTTP/1.1 200");
}

#[tokio::test]
async fn words_about_time_reach_the_service() {
    let running = Running::start().await;
    let mut body = two_items();
    body["parameters"] = json!({ "timeout": 30_000, "symphony_exceed_slo": true });
    let request = Client::new().post(running.url("/v2/models/double/infer")).header("x-slo-ms", "12.5").json(&body);
    assert_eq!(request.send().await.unwrap().status(), 200);
    let deadline = running.service.last().deadline;
    assert_eq!((deadline.timeout, deadline.slo), (Some(Nanos::from_millis(30)), Some(Nanos::from_micros(12_500))));
    assert_eq!(deadline.shortest(), Some(Nanos::from_micros(12_500)));
    assert!(deadline.exceed_slo);

    let request = Client::new().post(running.url("/v2/models/double/infer")).header("x-slo-ms", "soon");
    assert_eq!(request.json(&two_items()).send().await.unwrap().status(), 400);
}

#[tokio::test]
async fn metadata_configuration_statistics_and_the_repository_are_as_other_servers_have_them() {
    let running = Running::start().await;
    let (_, server) = get(&running, "/v2").await;
    assert_eq!((&server["name"], &server["version"]), (&json!("fake"), &json!("7")));
    let (_, model) = get(&running, "/v2/models/double").await;
    let expected = json!({
        "name": "double",
        "versions": ["1"],
        "platform": "fake",
        "inputs": [{ "name": "x", "datatype": "FP32", "shape": [-1, 2, 2] }],
        "outputs": [{ "name": "y", "datatype": "FP32", "shape": [-1, 2, 2] }],
    });
    assert_eq!(model, expected);
    let (_, config) = get(&running, "/v2/models/double/config").await;
    assert_eq!(config["max_batch_size"], json!(8));
    assert_eq!(config["input"], json!([{ "name": "x", "data_type": "TYPE_FP32", "dims": [2, 2] }]));
    assert_eq!(config["parameters"]["slo_ms"]["string_value"], json!("50"));
    let (_, statistics) = get(&running, "/v2/models/double/stats").await;
    assert_eq!(statistics["model_stats"][0]["inference_stats"]["queue"], json!({ "count": 6, "ns": 20_000_000 }));
    for stats in ["inference_stats", "batch_stats"] {
        let of = &statistics["model_stats"][0][stats];
        let of = if of.is_array() { &of[0] } else { of };
        assert_eq!((&of["compute_infer"]["count"], &of["compute_input"]), (&json!(3), &json!({ "count": 3, "ns": 0 })));
        assert_eq!(of["compute_output"], of["compute_input"], "{stats}");
    }
    let (_, all) = get(&running, "/v2/models/stats").await;
    assert!(all["model_stats"].as_array().unwrap().len() > 10);
    assert_eq!(get(&running, "/v2/models/nope/stats").await.0, 404);

    let every: Value = post(&running, "/v2/repository/index", &json!({})).await.json().await.unwrap();
    let loading = json!({ "name": "loading", "version": "1", "state": "LOADING", "reason": "" });
    assert!(every.as_array().unwrap().contains(&loading), "{every}");
    let only_ready = json!({ "ready": true });
    let ready: Value = post(&running, "/v2/repository/index", &only_ready).await.json().await.unwrap();
    assert!(!ready.as_array().unwrap().contains(&loading));
    assert_eq!(post(&running, "/v2/repository/models/double/load", &json!({})).await.status(), 200);
    assert_eq!(post(&running, "/v2/repository/models/nope/unload", &json!({})).await.status(), 404);
    let with_config = json!({ "parameters": { "config": "{}" } });
    assert_eq!(post(&running, "/v2/repository/models/double/load", &with_config).await.status(), 400);
}

#[tokio::test]
async fn a_draining_server_is_alive_but_not_ready() {
    let running = Running::start().await;
    assert_eq!(get(&running, "/v2/health/live").await, (200, json!({ "live": true })));
    assert_eq!(get(&running, "/v2/health/ready").await, (200, json!({ "live": true, "ready": true })));
    assert_eq!(get(&running, "/v2/models/double/ready").await.0, 200);
    assert_eq!(get(&running, "/v2/models/loading/ready").await.0, 503);
    assert_eq!(get(&running, "/v2/models/nope/ready").await.0, 404);
    running.service.drain();
    assert_eq!(get(&running, "/v2/health/live").await.0, 200);
    assert_eq!(get(&running, "/v2/health/ready").await, (503, json!({ "live": true, "ready": false })));
    assert_eq!(get(&running, "/v2/models/double/ready").await.0, 503);
}

#[tokio::test]
async fn a_server_that_stops_lets_the_calls_in_flight_end() {
    let running = Running::start().await;
    let service = std::sync::Arc::clone(&running.service);
    let rest = running.rest;
    let (url, body) = (running.url("/v2/models/stuck/infer"), two_items());
    let waiting = tokio::spawn(async move { Client::new().post(url).json(&body).send().await });
    service.stuck_is(1).await;

    let mut stopping = Box::pin(running.stop());
    // Polled so that the stop is under way; the stuck call holds it.
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut stopping).await.is_err());
    assert!(TcpStream::connect(rest).await.is_err(), "a stopping server must not accept");
    waiting.abort();
    service.stuck_is(0).await;
    tokio::time::timeout(Duration::from_secs(60), stopping).await.expect("the server did not stop");
}

#[tokio::test]
async fn errors_name_their_request_if_it_was_accepted() {
    let running = Running::start().await;
    let name_of = async |model: &str| {
        let response = post(&running, &format!("/v2/models/{model}/infer"), &two_items()).await;
        let name = response.headers().get("symphony-request-id").map(|name| name.to_str().unwrap().to_owned());
        (response.status().as_u16(), name)
    };
    assert_eq!(name_of("refuse-protect_batch").await, (504, Some("f3/ab/1".to_owned())));
    assert_eq!(name_of("late").await, (504, Some("f3/ab/2".to_owned())));
    assert_eq!(name_of("loading").await, (503, None), "it was not accepted");
    assert_eq!(name_of("nobody").await, (404, None));
}

#[tokio::test]
async fn what_a_client_calls_its_request_reaches_the_service_and_a_refused_call_is_noticed() {
    let running = Running::start().await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut body = two_items();
    body["id"] = json!("forty-two");
    let url = running.url("/v2/models/double/infer");
    let traced = |parent: &str| Client::new().post(&url).header("traceparent", parent).json(&body).send();
    let answer = traced(parent).await.unwrap();
    let context = running.service.last().context;
    assert_eq!((context.id.as_str(), context.trace.unwrap().to_string().as_str()), ("forty-two", parent));
    assert_eq!(answer.headers()["traceparent"], parent, "the service traces it");
    assert_eq!(traced("rubbish").await.unwrap().status().as_u16(), 200);
    assert_eq!(running.service.last().context.trace, None, "no request is refused for its trace");

    let refused = || std::mem::take(&mut *running.service.refused.lock().unwrap());
    assert_eq!(refused(), []);
    post(&running, "/v2/models/nobody/infer", &two_items()).await;
    post(&running, "/v2/models/double/infer", &json!({ "inputs": [] })).await;
    let encoded = Client::new().post(&url).header("content-encoding", "br").body("x").send().await.unwrap();
    assert_eq!(encoded.status().as_u16(), 501);
    let known = |model: &str, reason| (model.to_owned(), reason);
    assert_eq!(refused(), [known("", "unknown_model"), known("double", "invalid_request"), known("", "unsupported")]);

    let encoded = Client::new().post(&url).header("content-encoding", "br").header("traceparent", parent).body("x");
    assert_eq!(encoded.send().await.unwrap().status().as_u16(), 501);
    let traces = running.service.refused_traces.lock().unwrap().clone();
    assert_eq!(traces.last().unwrap().unwrap().to_string(), parent, "although it was not read");
}

#[tokio::test]
async fn a_pipeline_says_which_rows_its_outputs_have_and_what_it_is_made_of() {
    let running = Running::start().await;
    let answer = post(&running, "/v2/models/rows/infer", &x(&[1, 2, 2], &json!([1, 2, 3, 4]))).await;
    let body: Value = answer.json().await.unwrap();
    let label = json!({
        "name": "label", "datatype": "UINT8", "shape": [2], "parameters": { "symphony_rows": "0.1,0.4" }, "data": [7, 9],
    });
    assert_eq!((&body["outputs"][0]["shape"], &body["outputs"][1]), (&json!([1, 2, 2]), &label));
    let parameters = &body["parameters"];
    assert_eq!(
        (&parameters["symphony_partial"], &parameters["symphony_stages"]),
        (&json!(true), &json!("double=f3/ab/9"))
    );

    let (_, metadata) = get(&running, "/v2/models/rows").await;
    assert_eq!((&metadata["platform"], &metadata["outputs"][1]["shape"]), (&json!("ensemble"), &json!([-1])));
    let (_, config) = get(&running, "/v2/models/rows/config").await;
    let step =
        json!({ "model_name": "double", "model_version": -1, "input_map": { "x": "x" }, "output_map": { "y": "y" } });
    assert_eq!((&config["ensemble_scheduling"]["step"][0], &config["output"][1]["dims"]), (&step, &json!([-1])));
    assert!(config.get("dynamic_batching").is_none());
}
