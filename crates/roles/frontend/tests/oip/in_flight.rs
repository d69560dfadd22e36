//! One limit on requests in flight, however they come.

use symphony_protocol::inference::ModelInferRequest;
use symphony_protocol::inference::grpc_inference_service_client::GrpcInferenceServiceClient as Client;

use super::fake::Running;

fn request(model: &str) -> ModelInferRequest {
    let input = symphony_protocol::inference::model_infer_request::InferInputTensor {
        name: "x".to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![1, 2, 2],
        ..Default::default()
    };
    let raw_input_contents = vec![vec![0; 16].into()];
    ModelInferRequest { model_name: model.to_owned(), inputs: vec![input], raw_input_contents, ..Default::default() }
}

/// The status of a request over REST.
async fn over_rest(running: &Running) -> u16 {
    let body = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2,2],"data":[1,2,3,4]}]}"#;
    let response = reqwest::Client::new().post(running.url("/v2/models/double/infer")).body(body).send().await.unwrap();
    response.status().as_u16()
}

#[tokio::test]
async fn calls_streams_and_rest_count_against_one_limit() {
    let running = Running::start_for(3).await;
    let client = Client::connect(format!("http://{}", running.grpc)).await.unwrap();
    assert_eq!(over_rest(&running).await, 200);

    // Phase 1: a call, a stream, and a request in it.
    let mut calling = client.clone();
    let call = tokio::spawn(async move { calling.model_infer(request("stuck")).await });
    running.service.stuck_is(1).await;
    let mut streaming = client.clone();
    let stream = tokio::spawn(async move {
        let one = futures::stream::iter([request("stuck")]);
        streaming.model_stream_infer(one).await.unwrap().into_inner().message().await
    });
    running.service.stuck_is(2).await;
    assert_eq!(over_rest(&running).await, 429);

    // Phase 2: the call goes, and there is room for one.
    call.abort();
    running.service.stuck_is(1).await;
    assert_eq!(over_rest(&running).await, 200);

    // Phase 3: a stream is open and the limit is reached: its next request is refused, and the stream goes on.
    stream.abort();
    running.service.stuck_is(0).await;
    let mut streaming = client.clone();
    let requests = ["stuck", "stuck", "double"].map(request);
    let stream = tokio::spawn(async move {
        let mut answers = streaming.model_stream_infer(futures::stream::iter(requests)).await.unwrap().into_inner();
        answers.message().await
    });
    running.service.stuck_is(2).await;
    assert_eq!(over_rest(&running).await, 429);
    assert_eq!(running.service.count(), 6, "the third request of the stream did not reach the service");
    stream.abort();
    running.service.stuck_is(0).await;
}
