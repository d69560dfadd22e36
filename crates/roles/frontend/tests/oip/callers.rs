//! Which callers are let in, and what the others get.

use futures::SinkExt as _;
use serde_json::{Value, json};
use symphony_frontend::oip::Limits;
use symphony_protocol::inference::infer_parameter::ParameterChoice;
use symphony_protocol::inference::{
    InferParameter, ModelReadyRequest, ModelStatisticsRequest, RepositoryIndexRequest, RepositoryModelLoadRequest,
    ServerLiveRequest, ServerReadyRequest,
};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::fake::Running;
use super::grpc::{connect, raw};

/// A call that shows a key, which is the right that it has.
fn showing<T>(key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-api-key", key.parse().unwrap());
    request
}

fn reason(status: &Status) -> (Code, &str) {
    let reason = status.metadata().get("symphony-reason").and_then(|reason| reason.to_str().ok());
    (status.code(), reason.unwrap_or_default())
}

fn body() -> Value {
    json!({ "inputs": [{ "name": "x", "datatype": "FP32", "shape": [1, 2, 2], "data": [1.0, 2.0, 3.0, 4.0] }] })
}

#[tokio::test]
async fn rest_asks_for_a_key_before_the_body_and_says_what_is_missing() {
    let running = Running::start().await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async |method: reqwest::Method, path: &str, key: &str| {
        let request = http.request(method, running.url(path)).header("authorization", format!("Bearer {key}"));
        let answer = request.json(&body()).send().await.unwrap();
        let (status, challenge) = (answer.status().as_u16(), answer.headers().contains_key("www-authenticate"));
        let body: Value = answer.json().await.unwrap_or_default();
        (status, body["reason"].as_str().unwrap_or_default().to_owned(), challenge)
    };
    let (get, post) = (reqwest::Method::GET, reqwest::Method::POST);
    let refused = |status, reason: &str, challenge| (status, reason.to_owned(), challenge);
    let infer = "/v2/models/double/infer";
    assert_eq!(ask(post.clone(), infer, "none").await, refused(401, "no_key", true));
    assert_eq!(ask(post.clone(), infer, "unknown").await, refused(401, "unknown_key", true));
    assert_eq!(ask(post.clone(), infer, "status").await, refused(403, "no_right", false));
    assert_eq!(running.service.count(), 0, "nobody was heard");
    assert_eq!(ask(post.clone(), infer, "infer").await.0, 200);
    for (method, path, right, others) in [
        (&get, "/v2/models/stats", "status", ["infer", "repository"]),
        (&get, "/v2/models/double/stats", "status", ["infer", "repository"]),
        (&get, "/v2/models/double/versions/1/stats", "status", ["infer", "repository"]),
        (&post, "/v2/repository/index", "status", ["infer", "none"]),
        (&post, "/v2/repository/index", "repository", ["infer", "none"]),
        (&post, "/v2/models/double/versions/1/infer", "infer", ["status", "repository"]),
    ] {
        assert_eq!(ask(method.clone(), path, right).await.0, 200, "{path}");
        for other in others {
            assert!(matches!(ask(method.clone(), path, other).await.0, 401 | 403), "{path} for {other}");
        }
    }
    // The service of these tests takes another token for loading: what counts is that the caller is let in.
    let load = "/v2/repository/models/double/load";
    assert_eq!(ask(post.clone(), load, "infer").await, refused(403, "no_right", false));
    assert_eq!(ask(post.clone(), load, "repository").await, refused(401, "unauthenticated", true));
    for path in ["/v2", "/v2/models/double", "/v2/models/double/ready", "/v2/models/double/config"] {
        for right in ["infer", "status", "repository"] {
            assert_eq!(ask(get.clone(), path, right).await.0, 200, "{path}");
        }
        assert_eq!(ask(get.clone(), path, "none").await.0, 401, "{path}");
    }
    for path in ["/v2/health/live", "/v2/health/ready"] {
        assert_eq!(ask(get.clone(), path, "none").await.0, 200, "{path} is for balancers");
    }
    running.stop().await;
}

#[tokio::test]
async fn grpc_does_the_same() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    for (key, expected) in [
        ("none", (Code::Unauthenticated, "no_key")),
        ("unknown", (Code::Unauthenticated, "unknown_key")),
        ("status", (Code::PermissionDenied, "no_right")),
    ] {
        let refused = client.model_infer(showing(key, raw("double"))).await.unwrap_err();
        assert_eq!(reason(&refused), expected);
        let messages = futures::stream::iter([raw("double")]);
        let refused = client.model_stream_infer(showing(key, messages)).await.unwrap_err();
        assert_eq!(reason(&refused), expected, "of a stream");
    }
    assert_eq!(running.service.count(), 0, "nobody was heard");
    client.model_infer(showing("infer", raw("double"))).await.unwrap();
    client.server_live(showing("none", ServerLiveRequest {})).await.unwrap();
    client.server_ready(showing("none", ServerReadyRequest {})).await.unwrap();
    let ready = || ModelReadyRequest { name: "double".into(), version: String::new() };
    assert_eq!(client.model_ready(showing("none", ready())).await.unwrap_err().code(), Code::Unauthenticated);
    client.model_ready(showing("repository", ready())).await.unwrap();
    let statistics = || ModelStatisticsRequest { name: "double".into(), version: String::new() };
    assert_eq!(
        client.model_statistics(showing("infer", statistics())).await.unwrap_err().code(),
        Code::PermissionDenied
    );
    client.model_statistics(showing("status", statistics())).await.unwrap();
    let index = RepositoryIndexRequest::default;
    assert_eq!(client.repository_index(showing("infer", index())).await.unwrap_err().code(), Code::PermissionDenied);
    client.repository_index(showing("repository", index())).await.unwrap();
    let load = RepositoryModelLoadRequest { model_name: "double".into(), ..Default::default() };
    let refused = client.repository_model_load(showing("status", load)).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::PermissionDenied, "no_right"));
    running.stop().await;
}

#[tokio::test]
async fn a_stream_does_not_outlive_the_key_that_opened_it() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    let (mut ask, requests) = futures::channel::mpsc::channel(1);
    ask.send(raw("double")).await.unwrap();
    let mut answers = client.model_stream_infer(showing("infer", requests)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    assert_eq!(answer.error_message, "");
    running.service.revoke();
    ask.send(raw("double")).await.unwrap();
    let answer = answers.message().await.unwrap().unwrap();
    assert_eq!(answer.error_message, "the key is not known here");
    let reason = answer.infer_response.unwrap().parameters["symphony_reason"].parameter_choice.clone();
    assert_eq!(reason, Some(ParameterChoice::StringParam("unknown_key".into())));
    assert_eq!(running.service.count(), 1, "the second one was not heard");
    drop((ask, answers));
    running.stop().await;
}

#[tokio::test]
async fn calls_without_tensors_are_small() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    let ready = |bytes| ModelReadyRequest { name: "m".repeat(bytes), version: String::new() };
    assert!(!client.model_ready(showing("infer", ready(60 << 10))).await.unwrap().into_inner().ready);
    let refused = client.model_ready(showing("infer", ready(65 << 10))).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::ResourceExhausted, "request_too_large"));
    assert!(refused.message().contains("65536 bytes"), "{refused}");
    let mut large = raw("double");
    large.id = "i".repeat(65 << 10);
    client.model_infer(showing("infer", large)).await.unwrap();

    let channel = Channel::from_shared(format!("http://{}", running.grpc)).unwrap().connect().await.unwrap();
    let mut health = HealthClient::new(channel);
    let check = |bytes| HealthCheckRequest { service: "s".repeat(bytes) };
    assert_eq!(health.check(check(3 << 10)).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(health.check(check(5 << 10)).await.unwrap_err().code(), Code::OutOfRange);
    drop((client, health));
    running.stop().await;
}

#[tokio::test]
async fn what_is_said_beside_the_tensors_counts_or_is_refused_by_name() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    let with = |name: &str, value: ParameterChoice| {
        let mut request = raw("double");
        request.parameters.insert(name.into(), InferParameter { parameter_choice: Some(value) });
        request
    };
    let refused = client.model_infer(with("colour", ParameterChoice::BoolParam(true))).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::InvalidArgument, "invalid_request"));
    assert!(refused.message().contains("`colour`"), "{refused}");
    client.model_infer(with("priority", ParameterChoice::Uint64Param(4))).await.unwrap();
    assert_eq!(running.service.last().weight.number(), 0.25);
    let says_final = with("triton_enable_empty_final_response", ParameterChoice::BoolParam(true));
    let answer = client.model_infer(says_final).await.unwrap().into_inner();
    let final_response = answer.parameters["triton_final_response"].parameter_choice.clone();
    assert_eq!(final_response, Some(ParameterChoice::BoolParam(true)));

    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for (parameters, expected) in [
        (json!({ "colour": 1, "age": 2 }), "`age`, `colour`"),
        (json!({ "priority": -1 }), "expected 1, the highest, to 1000"),
    ] {
        let mut body = body();
        body["parameters"] = parameters;
        let answer = http.post(running.url("/v2/models/double/infer")).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 400);
        let reply: Value = answer.json().await.unwrap();
        assert!(reply["error"].as_str().unwrap().contains(expected), "{reply}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_priority_that_a_model_does_not_heed_is_refused_and_noticed() {
    let running = Running::start().await;
    let mut client = connect(&running).await;
    let mut request = raw("by-deadline");
    client.model_infer(request.clone()).await.unwrap();
    let priority = InferParameter { parameter_choice: Some(ParameterChoice::Uint64Param(4)) };
    request.parameters.insert("priority".into(), priority);
    let refused = client.model_infer(request).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::InvalidArgument, "invalid_request"));
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut body = body();
    body["parameters"] = json!({ "priority": 4 });
    let answer = http.post(running.url("/v2/models/by-deadline/infer")).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), 400);
    assert_eq!(running.service.count(), 1, "the service is not asked");
    let noticed = running.service.refused.lock().unwrap().clone();
    assert_eq!(noticed, vec![("by-deadline".to_owned(), "invalid_request"); 2]);
    running.stop().await;
}

#[tokio::test]
async fn headers_beyond_the_limit_and_absurd_keys_are_refused_and_others_are_served() {
    let running = Running::start_with(Limits::default()).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async |key: &str| {
        let post = http.post(running.url("/v2/models/double/infer")).header("x-api-key", key);
        post.json(&body()).send().await.map(|answer| answer.status().as_u16())
    };
    // Beyond the buffer of a connection: it ends, or its answer is 431.
    let huge = ask(&"k".repeat(1 << 20)).await;
    assert!(huge.as_ref().map_or(true, |status| *status == 431), "{huge:?}");
    let absurd = ["k".repeat(8 << 10), "infer infer".into(), "'; --".into(), "infer,".repeat(99)];
    for key in &absurd {
        assert_eq!(ask(key).await.unwrap(), 401, "{key}");
    }
    let mut client = connect(&running).await;
    let refused = client.model_infer(showing(&absurd[0], raw("double"))).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::Unauthenticated, "unknown_key"));
    let huge = client.model_infer(showing(&"k".repeat(64 << 10), raw("double"))).await;
    assert!(huge.is_err(), "{huge:?}");
    assert_eq!(running.service.count(), 0, "nobody was heard");
    assert_eq!(ask("infer").await.unwrap(), 200);
    connect(&running).await.model_infer(showing("infer", raw("double"))).await.unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_page_of_another_origin_is_served_if_it_is_named_or_shows_a_key() {
    let (named, foreign) = ("https://console.example", "https://evil.example");
    let running = Running::start_for_pages(&[named.to_owned()]).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    // What a page of that origin gets, and whose pages may read it.
    let ask = async |path: &str, origin: &str, key: Option<&str>| {
        let post = http.post(running.url(path)).header("origin", origin).json(&body());
        let post = key.into_iter().fold(post, |post, key| post.header("x-api-key", key));
        let answer = post.send().await.unwrap();
        let readers = answer.headers().get("access-control-allow-origin");
        let readers = readers.map(|readers| readers.to_str().unwrap().to_owned()).unwrap_or_default();
        let status = answer.status().as_u16();
        let reply: Value = answer.json().await.unwrap();
        (status, reply["reason"].as_str().unwrap_or_default().to_owned(), readers)
    };
    let (infer, own) = ("/v2/models/double/infer", running.url(""));
    for path in [infer, "/v2/repository/models/double/unload"] {
        for origin in [foreign, "null"] {
            assert_eq!(ask(path, origin, None).await, (403, "foreign_origin".into(), String::new()), "{path}");
        }
        assert_eq!(ask(path, &own, None).await, (200, String::new(), String::new()), "{path}");
        assert_eq!(ask(path, named, None).await, (200, String::new(), named.into()), "{path}");
    }
    assert_eq!(running.service.count(), 2, "of the page's own origin and the named one");
    assert_eq!(ask(infer, foreign, Some("infer")).await, (200, String::new(), String::new()), "it is no browser's");

    let preflight = async |origin: &str| {
        let request = http.request(reqwest::Method::OPTIONS, running.url(infer)).header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        let answer = request.header("access-control-request-headers", "x-api-key,traceparent").send().await.unwrap();
        let text =
            |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        ["access-control-allow-origin", "access-control-allow-headers", "access-control-allow-methods"].map(text)
    };
    let [origin, headers, methods] = preflight(named).await;
    assert_eq!((origin.as_str(), methods.contains("POST")), (named, true), "{methods}");
    for header in ["authorization", "x-api-key", "content-type", "traceparent", "x-slo-ms"] {
        assert!(headers.split(',').any(|allowed| allowed.trim() == header), "{header}: {headers}");
    }
    assert_eq!(preflight(foreign).await[0], "", "a browser asks no further");
    let shown = http.get(running.url("/v2")).header("origin", named).send().await.unwrap();
    let exposed = shown.headers()["access-control-expose-headers"].to_str().unwrap();
    assert!(exposed.contains("traceparent") && exposed.contains("symphony-request-id"), "{exposed}");

    let mut call = Request::new(raw("double"));
    call.metadata_mut().insert("origin", foreign.parse().unwrap());
    let refused = connect(&running).await.model_infer(call).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::PermissionDenied, "foreign_origin"), "a browser can speak HTTP/2, too");
    running.stop().await;
}
