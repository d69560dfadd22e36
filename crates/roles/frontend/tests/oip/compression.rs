//! Requests and answers that travel compressed.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use hyper_util::rt::TokioExecutor;
use prost::Message as _;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use symphony_frontend::oip::Limits;
use symphony_frontend::oip::limits::PACKED_MESSAGE_BYTES_MAX;
use symphony_protocol::inference::{ModelInferRequest, ModelInferResponse, RepositoryIndexRequest, ServerReadyRequest};
use tonic::codec::CompressionEncoding;
use tonic::{Code, Status};

use super::fake::Running;
use super::grpc::{connect, raw};

const JSON_LENGTH: &str = "inference-header-content-length";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packing = GzEncoder::new(Vec::new(), Compression::best());
    packing.write_all(bytes).unwrap();
    packing.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut packing = ZlibEncoder::new(Vec::new(), Compression::best());
    packing.write_all(bytes).unwrap();
    packing.finish().unwrap()
}

/// Eight items of JSON: the answer has more than a packet.
fn eight_items() -> Value {
    let data: Vec<f64> = (0..32).map(|n| f64::from(n) + 0.5).collect();
    let output = json!({ "name": "y", "parameters": { "binary_data": false } });
    json!({
        "id": "i".repeat(1024),
        "inputs": [{ "name": "x", "datatype": "FP32", "shape": [8, 2, 2], "data": data }],
        "outputs": [output],
    })
}

async fn post(running: &Running, headers: &[(&str, &str)], body: Vec<u8>) -> Response {
    let request = Client::new().post(running.url("/v2/models/double/infer"));
    let request = headers.iter().fold(request, |request, &(name, value)| request.header(name, value));
    request.body(body).send().await.unwrap()
}

async fn refusal(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    (status, body["reason"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn bodies_of_rest_are_unpacked_and_answers_packed_for_who_asks() {
    let running = Running::start().await;
    let body = serde_json::to_vec(&eight_items()).unwrap();
    let plain = post(&running, &[], body.clone()).await;
    assert!(!plain.headers().contains_key("content-encoding"), "nobody asked");
    assert_eq!(plain.headers()["vary"], "accept-encoding");
    let plain: Value = plain.json().await.unwrap();
    assert_eq!(plain["outputs"][0]["data"].as_array().unwrap().len(), 32);

    for (coding, packed) in [("gzip", gzip(&body)), ("deflate", deflate(&body))] {
        let answer = post(&running, &[("content-encoding", coding), ("accept-encoding", coding)], packed).await;
        assert_eq!(
            (answer.status().as_u16(), answer.headers()["content-encoding"].as_bytes()),
            (200, coding.as_bytes())
        );
        let packed = answer.bytes().await.unwrap();
        let mut text = String::new();
        match coding {
            "gzip" => GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap(),
            _ => ZlibDecoder::new(&packed[..]).read_to_string(&mut text).unwrap(),
        };
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["outputs"], plain["outputs"], "{coding}");
    }
    for path in ["/v2/repository/index", "/v2/systemsharedmemory/unregister"] {
        let packed = Client::new().post(running.url(path)).header("content-encoding", "gzip").body(gzip(b"{}"));
        let refused = refusal(packed.send().await.unwrap()).await;
        assert_eq!(refused, (501, "unsupported".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn lengths_are_those_of_what_is_unpacked() {
    let running = Running::start().await;
    let input =
        json!({ "name": "x", "datatype": "FP32", "shape": [8, 2, 2], "parameters": { "binary_data_size": 128 } });
    let head = serde_json::to_vec(&json!({
        "id": "i".repeat(1024), "inputs": [input], "parameters": { "binary_data_output": true },
    }))
    .unwrap();
    let data: Vec<u8> = (0..32).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let length = head.len().to_string();
    let headers = [(JSON_LENGTH, length.as_str()), ("content-encoding", "gzip"), ("accept-encoding", "gzip")];
    let answer = post(&running, &headers, gzip(&[head, data].concat())).await;
    assert_eq!(answer.status().as_u16(), 200);
    let json_bytes: usize = answer.headers()[JSON_LENGTH].to_str().unwrap().parse().unwrap();
    let mut unpacked = Vec::new();
    GzDecoder::new(&answer.bytes().await.unwrap()[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked.len(), json_bytes + 128);
    let expected: Vec<u8> = (0..32).flat_map(|n| (2.0 * n as f32).to_le_bytes()).collect();
    assert_eq!(unpacked[json_bytes..], expected);
}

#[tokio::test]
async fn few_bytes_are_answered_as_they_are() {
    let running = Running::start().await;
    let body = json!({ "inputs": [{ "name": "x", "datatype": "FP32", "shape": [1, 2, 2], "data": [1, 2, 3, 4] }] });
    let answer = post(&running, &[("accept-encoding", "gzip")], serde_json::to_vec(&body).unwrap()).await;
    assert!(!answer.headers().contains_key("content-encoding"));
}

#[tokio::test]
async fn what_becomes_too_large_or_is_not_what_it_says_is_refused() {
    let running = Running::start_with(Limits { request_bytes_max: 1 << 16, ..Limits::default() }).await;
    let zeros = vec![0; 16 << 20];
    for (coding, bomb) in [("gzip", gzip(&zeros)), ("deflate", deflate(&zeros))] {
        assert!(bomb.len() < 1 << 16, "{coding}: as it travels it is within the limit");
        let refused = refusal(post(&running, &[("content-encoding", coding)], bomb).await).await;
        assert_eq!(refused, (413, "request_too_large".to_owned()), "{coding}");
        let refused = refusal(post(&running, &[("content-encoding", coding)], b"{}".to_vec()).await).await;
        assert_eq!(refused, (400, "invalid_request".to_owned()), "{coding}");
    }
    let refused = refusal(post(&running, &[("content-encoding", "zstd")], b"{}".to_vec()).await).await;
    assert_eq!(refused, (501, "unsupported".to_owned()));
    // It may not be too large as it travels either.
    let refused = refusal(post(&running, &[("content-encoding", "gzip")], vec![0; (1 << 16) + 1]).await).await;
    assert_eq!(refused, (413, "request_too_large".to_owned()));
    let body = serde_json::to_vec(&eight_items()).unwrap();
    assert_eq!(post(&running, &[], body).await.status().as_u16(), 200, "the next one is served");
}

fn reason(status: &Status) -> &str {
    status.metadata().get("symphony-reason").map_or("", |reason| reason.to_str().unwrap())
}

#[tokio::test]
async fn messages_of_grpc_are_unpacked_and_answered_as_they_came() {
    let running = Running::start().await;
    for encoding in [CompressionEncoding::Gzip, CompressionEncoding::Deflate] {
        let plain = connect(&running).await.accept_compressed(encoding);
        // It could read a compressed answer, as most clients say of themselves, and does not ask for one.
        let answer = plain.clone().model_infer(raw("double")).await.unwrap();
        assert!(!answer.metadata().contains_key("grpc-encoding"));
        let expected = answer.into_inner().raw_output_contents;

        let mut packed = plain.send_compressed(encoding);
        let answer = packed.model_infer(raw("double")).await.unwrap();
        assert_eq!(answer.metadata().get("grpc-encoding").unwrap().to_str().unwrap(), encoding.to_string());
        assert_eq!(answer.into_inner().raw_output_contents, expected);
        assert!(packed.server_ready(ServerReadyRequest {}).await.unwrap().into_inner().ready);

        let requests = futures::stream::iter(["double", "double"].map(raw));
        let answers = packed.model_stream_infer(requests).await.unwrap();
        assert!(!answers.metadata().contains_key("grpc-encoding"), "answers of a stream are not compressed");
        let mut answers = answers.into_inner();
        for _ in 0..2 {
            let answer = answers.message().await.unwrap().unwrap();
            assert_eq!(answer.infer_response.unwrap().raw_output_contents, expected);
        }
        assert!(answers.message().await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_message_that_becomes_too_large_is_refused_while_it_is_unpacked() {
    let running = Running::start_with(Limits { request_bytes_max: 1 << 16, ..Limits::default() }).await;
    let mut client = connect(&running).await.send_compressed(CompressionEncoding::Gzip);
    let bomb = || ModelInferRequest { raw_input_contents: vec![vec![0; 16 << 20].into()], ..raw("double") };
    let refused = client.model_infer(bomb()).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::ResourceExhausted, "request_too_large"), "{refused}");
    assert_eq!(*running.service.refused.lock().unwrap(), [(String::new(), "request_too_large")], "it is counted");

    let mut answers = client.model_stream_infer(futures::stream::iter([bomb()])).await.unwrap().into_inner();
    let refused = answers.message().await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::ResourceExhausted, "request_too_large"), "{refused}");
    let noticed = running.service.refused.lock().unwrap().clone();
    assert_eq!(noticed, ["request_too_large"; 2].map(|reason| (String::new(), reason)), "in a stream, too");
    client.model_infer(raw("double")).await.unwrap();
}

#[tokio::test]
async fn what_the_transport_would_unpack_for_too_long_is_refused_and_may_come_as_it_is() {
    let running = Running::start().await;
    let plain = connect(&running).await;
    let large =
        || ModelInferRequest { raw_input_contents: vec![vec![0; PACKED_MESSAGE_BYTES_MAX].into()], ..raw("double") };
    let mut packed = plain.clone().send_compressed(CompressionEncoding::Gzip);
    let refused = packed.model_infer(large()).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::ResourceExhausted, "request_too_large"), "{refused}");
    assert!(refused.message().contains("send it uncompressed, or over REST"), "{refused}");
    // It is read, and fits no model; as well from a client that would compress, and sends this one as it is.
    let mut as_it_is = tonic::Request::new(large());
    as_it_is.metadata_mut().insert("grpc-encoding", "gzip".parse().unwrap());
    for plain_message in [tonic::Request::new(large()), as_it_is] {
        let refused = plain.clone().model_infer(plain_message).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused)), (Code::InvalidArgument, "invalid_request"), "{refused}");
    }
}

/// A message of gRPC, or what stands for one that is compressed, behind its flag and length.
fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[flag][..], &length, message].concat()
}

#[tokio::test]
async fn behind_a_message_that_comes_as_it_is_none_is_unpacked() {
    let running = Running::start().await;
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let large =
        ModelInferRequest { raw_input_contents: vec![vec![0; PACKED_MESSAGE_BYTES_MAX].into()], ..raw("double") };
    let bomb = gzip(&large.encode_to_vec());
    let body = [framed(0, &raw("double").encode_to_vec()), framed(1, &bomb)].concat();
    let url = format!("http://{}/inference.GRPCInferenceService/ModelInfer", running.grpc);
    let call = axum::http::Request::post(url)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-encoding", "gzip")
        .body(axum::body::Body::from(body))
        .unwrap();
    let answer = http.request(call).await.unwrap();
    let refused = Status::from_header_map(answer.headers()).expect("it is refused before it is answered");
    assert_eq!((refused.code(), reason(&refused)), (Code::InvalidArgument, "invalid_request"), "{refused}");
    assert!(refused.message().contains("compressed-flag"), "{refused}");
}

#[tokio::test]
async fn what_is_no_message_or_in_no_known_encoding_is_its_senders_doing() {
    let running = Running::start().await;
    let mut strange = tonic::Request::new(raw("double"));
    strange.metadata_mut().insert("grpc-encoding", "zstd".parse().unwrap());
    let refused = connect(&running).await.model_infer(strange).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::Unimplemented, "unsupported"), "{refused}");
    assert!(refused.metadata().contains_key("grpc-accept-encoding"), "{refused:?}");

    let channel = tonic::transport::Endpoint::new(format!("http://{}", running.grpc)).unwrap().connect().await.unwrap();
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<RepositoryIndexRequest, ModelInferResponse>::default();
    // Its second field is a number, where a version is expected.
    let other = tonic::Request::new(RepositoryIndexRequest { ready: true, ..RepositoryIndexRequest::default() });
    let path = "/inference.GRPCInferenceService/ModelInfer".parse().unwrap();
    let refused = client.unary(other, path, codec).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::InvalidArgument, "invalid_request"), "{refused}");
    let noticed = running.service.refused.lock().unwrap().clone();
    assert_eq!(noticed, ["unsupported", "invalid_request"].map(|reason| (String::new(), reason)));
}
