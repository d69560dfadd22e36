//! Pictures in, classes out: what the protocol makes of both, over gRPC and REST.

use bytes::Bytes;
use image::{DynamicImage, ImageBuffer, ImageFormat, Luma};
use serde_json::{Value, json};
use symphony_client::{Client, Request, Tensor};
use symphony_protocol::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use symphony_protocol::inference::infer_parameter::ParameterChoice;
use symphony_protocol::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use symphony_protocol::inference::{InferParameter, InferTensorContents, ModelConfigRequest, ModelInferRequest};

use super::fake::Running;

/// A picture of one colour.
fn picture(grey: u8, format: ImageFormat) -> Vec<u8> {
    let image: ImageBuffer<Luma<u8>, _> = ImageBuffer::from_pixel(20, 10, Luma([grey]));
    let mut bytes = std::io::Cursor::new(Vec::new());
    DynamicImage::from(image).write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

async fn client(running: &Running) -> Client {
    Client::builder().frontend(running.grpc.to_string()).unwatched().build().unwrap()
}

fn pictures(shape: &[u64], encoded: &[Vec<u8>]) -> Request {
    Request::new("pictures").input(Tensor::bytes("x", shape, encoded).unwrap())
}

/// What the model `pictures` answers for each item.
const CLASSES: [&str; 3] = ["0.400000:1:dog", "0.300000:2:cow", "0.200000:3:ant"];

#[tokio::test]
async fn pictures_reach_the_service_as_they_are_one_for_each_item() {
    let running = Running::start().await;
    let client = client(&running).await;
    let encoded = vec![picture(7, ImageFormat::Png), picture(9, ImageFormat::Jpeg)];
    for shape in [&[2][..], &[2, 1]] {
        let answer = client.infer(pictures(shape, &encoded)).await.unwrap();
        assert_eq!(answer.output("y").unwrap().shape(), [2, 2, 2]);
        let request = running.service.last();
        let pictures = request.pictures.unwrap();
        assert!(pictures.encoded.iter().eq(encoded.iter()) && request.payload.is_empty());
        assert_eq!((request.items, pictures.at), (2, 0));
    }
    // The tensor itself is taken all the same.
    let tensor = Tensor::new("x", &[1, 2, 2], &[1.0_f32; 4]).unwrap();
    client.infer(Request::new("pictures").input(tensor)).await.unwrap();
    let request = running.service.last();
    assert_eq!((request.pictures, request.payload.len()), (None, 16));
}

#[tokio::test]
async fn typed_contents_and_binary_data_behind_json_carry_pictures_too() {
    let running = Running::start().await;
    let mut grpc = GrpcInferenceServiceClient::connect(format!("http://{}", running.grpc)).await.unwrap();
    let png = picture(7, ImageFormat::Png);
    let contents = InferTensorContents { bytes_contents: vec![png.clone()], ..InferTensorContents::default() };
    let input = InferInputTensor {
        name: "x".into(),
        datatype: "BYTES".into(),
        shape: vec![1],
        contents: Some(contents),
        ..InferInputTensor::default()
    };
    let classification = InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(3)) };
    let output = InferRequestedOutputTensor {
        name: "y".into(),
        parameters: [("classification".to_owned(), classification)].into(),
    };
    let (inputs, outputs) = (vec![input], vec![output]);
    let message = ModelInferRequest { model_name: "pictures".into(), inputs, outputs, ..ModelInferRequest::default() };
    let answer = grpc.model_infer(message).await.unwrap().into_inner();
    assert_eq!((answer.outputs[0].datatype.as_str(), answer.outputs[0].shape.as_slice()), ("BYTES", [1, 3].as_slice()));
    let classes = &answer.outputs[0].contents.as_ref().unwrap().bytes_contents;
    assert!(classes.iter().eq(CLASSES.iter().map(|class| class.as_bytes())), "{classes:?}");

    let head = |output: Value| {
        let size = 4 + png.len();
        let input =
            json!({ "name": "x", "datatype": "BYTES", "shape": [1], "parameters": { "binary_data_size": size } });
        json!({ "inputs": [input], "outputs": [output] }).to_string()
    };
    let post = async |head: String| {
        let data = [head.as_bytes(), &(png.len() as u32).to_le_bytes()[..], &png].concat();
        let request = reqwest::Client::new().post(running.url("/v2/models/pictures/infer"));
        request.header("inference-header-content-length", head.len()).body(data).send().await.unwrap()
    };
    let answer: Value =
        post(head(json!({ "name": "y", "parameters": { "classification": 2 } }))).await.json().await.unwrap();
    assert_eq!(answer["outputs"][0]["data"], json!(CLASSES[..2]), "{answer}");
    assert_eq!((&answer["outputs"][0]["datatype"], &answer["outputs"][0]["shape"]), (&json!("BYTES"), &json!([1, 2])));
    let binary = head(json!({ "name": "y", "parameters": { "classification": 1, "binary_data": true } }));
    let body = post(binary).await.bytes().await.unwrap();
    let expected = [&(CLASSES[0].len() as u32).to_le_bytes()[..], CLASSES[0].as_bytes()].concat();
    assert!(body.ends_with(&expected), "{body:?}");
}

#[tokio::test]
async fn classes_of_any_output_can_be_asked_for_raw() {
    let running = Running::start().await;
    let client = client(&running).await;
    let answer = client.infer(pictures(&[1], &[picture(1, ImageFormat::Png)]).classification("y", 99)).await.unwrap();
    let classes = answer.output("y").unwrap().byte_strings().unwrap();
    assert_eq!((classes.len(), &classes[0][..], &classes[3][..]), (4, CLASSES[0].as_bytes(), &b"0.100000:0:cat"[..]));
    // Without labels, and of numbers that were never meant as classes.
    let tensor = Tensor::new("x", &[1, 2, 2], &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    let answer = client.infer(Request::new("double").input(tensor).classification("y", 1)).await.unwrap();
    assert_eq!(answer.output("y").unwrap().byte_strings().unwrap(), [Bytes::from_static(b"8.000000:3")]);
}

#[tokio::test]
async fn what_is_no_picture_is_refused_before_it_is_accepted() {
    let running = Running::start().await;
    let client = client(&running).await;
    let png = picture(1, ImageFormat::Png);
    let mut huge = png.clone();
    // 65 536 × 65 536 pixels, by a header whose checksum is then wrong: PNG's decoder may say that first.
    huge[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let cases = [
        (pictures(&[1], &[b"GIF89a".to_vec()]), "input `x`, picture 0: its first bytes are neither"),
        (pictures(&[2], &[png.clone(), png[..20].to_vec()]), "input `x`, picture 1: its header is not that of a PNG"),
        (pictures(&[1], &[huge]), "input `x`, picture 0: its header"),
        (pictures(&[1, 1, 1], std::slice::from_ref(&png)), "expected [-1] or [-1,1] of BYTES"),
        (pictures(&[9], &vec![png.clone(); 9]), "takes 1 to 8"),
        (
            Request::new("double").input(Tensor::bytes("x", &[1], &[png]).unwrap()),
            "the model declares no picture there",
        ),
    ];
    for (request, expected) in cases {
        let error = client.infer(request).await.unwrap_err();
        let refusal = error.refusal().unwrap();
        assert_eq!((refusal.reason.as_str(), error.was_not_accepted()), ("invalid_request", true), "{error}");
        assert!(refusal.message.contains(expected), "{}\n  expected: {expected}", refusal.message);
    }
    let http = reqwest::Client::new();
    for (body, expected) in [
        (
            json!({ "inputs": [{ "name": "x", "datatype": "BYTES", "shape": [1], "data": ["GIF"] }] }),
            "expected binary data",
        ),
        (
            json!({ "inputs": [{ "name": "x", "datatype": "FP32", "shape": [1, 2, 2], "data": [1, 2, 3, 4] }],
                    "outputs": [{ "name": "y", "parameters": { "classification": -1 } }] }),
            "parameter classification is -1; expected a number of classes",
        ),
    ] {
        let reply = http.post(running.url("/v2/models/pictures/infer")).json(&body).send().await.unwrap();
        assert_eq!(reply.status().as_u16(), 400);
        let message = reply.text().await.unwrap();
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(running.service.count(), 0, "nothing of this may reach the service");
}

#[tokio::test]
async fn the_configuration_says_which_input_takes_pictures() {
    let running = Running::start().await;
    let mut grpc = GrpcInferenceServiceClient::connect(format!("http://{}", running.grpc)).await.unwrap();
    let mut image_input = async |name: &str| {
        let request = ModelConfigRequest { name: name.to_owned(), version: String::new() };
        let config = grpc.model_config(request).await.unwrap().into_inner().config.unwrap();
        config.parameters.get("image_input").map(|parameter| parameter.string_value.clone())
    };
    assert_eq!((image_input("pictures").await, image_input("double").await), (Some("x".to_owned()), None));
    let page = reqwest::get(running.url("/v2/models/pictures/config")).await.unwrap();
    let page: Value = page.json().await.unwrap();
    assert_eq!(page["parameters"]["image_input"]["string_value"], "x");
}
