//! Requests of clients, and answers to them.

use std::sync::LazyLock;

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message as _;
use symphony_client::{Answer, ElementType, Tensor};
use symphony_frontend::oip::{InferError, Limits, ModelInfo, ModelState, check_grpc_infer, check_rest_infer};
use symphony_images::{ImageLimits, Pipeline, inspect};
use symphony_protocol::inference::infer_parameter::ParameterChoice;
use symphony_protocol::inference::model_infer_request::InferInputTensor;
use symphony_protocol::inference::model_infer_response::InferOutputTensor;
use symphony_protocol::inference::{InferParameter, ModelInferRequest, ModelInferResponse};
use symphony_types::{
    Colour, DataType, Filter, Finite, Fit, ImageInput, Layout, Nanos, Signature, TensorSpec, Transforms,
};

/// The largest request that the checks of inference requests allow here.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// An inference request over gRPC.
pub fn grpc_infer(bytes: &[u8]) {
    let Ok(request) = ModelInferRequest::decode(bytes) else { return };
    let checked = check_grpc_infer(&model(), &request, &limits());
    judge(checked.map(|call| (call.items(), call.payload().len())));
}

/// An answer over gRPC, as the native client parses it: what it accepts as a tensor is one.
pub fn grpc_answer(bytes: &[u8]) {
    let Ok(message) = ModelInferResponse::decode(bytes) else { return };
    let Ok(answer) = Answer::try_from(message) else { return };
    for output in &answer.outputs {
        assert!(answer.output(output.name()).is_ok());
        let (name, element, shape) = (output.name(), output.element(), output.shape());
        let again = Tensor::raw(name, element, shape, output.data().clone());
        assert_eq!(again.as_ref(), Ok(output), "what was read is a tensor");
        let elements: u64 = shape.iter().product();
        let strings = (element == ElementType::Bytes).then_some(elements);
        assert_eq!(output.byte_strings().ok().map(|strings| strings.len() as u64), strings);
        if let Ok(numbers) = output.values::<f32>() {
            assert_eq!(numbers.len() as u64, elements);
        }
    }
}

/// An inference request over REST: the first two bytes say where its JSON ends, if that is within the body.
pub fn rest_infer(bytes: &[u8]) {
    let Some((split, body)) = bytes.split_first_chunk::<2>() else { return };
    let split = usize::from(u16::from_le_bytes(*split));
    let body = Bytes::copy_from_slice(body);
    for json_bytes in [None, Some(split)] {
        let checked = check_rest_infer(&model(), json_bytes, &body, &limits());
        judge(checked.map(|call| (call.items(), call.payload().len())));
    }
}

/// A request that passed fits its model; one that did not is refused with words and as the client's fault.
fn judge(checked: Result<(u32, usize), InferError>) {
    let model = model();
    match checked {
        Ok((items, payload_bytes)) => {
            assert!((1..=model.batch_max).contains(&items));
            assert_eq!(payload_bytes, items as usize * model.signature.input_item_bytes());
        }
        Err(error) => {
            let status = error.error_status();
            assert!(status.http.is_client_error() || status.http.as_u16() == 501, "{error}: {status:?}");
            assert!(!error.to_string().is_empty());
        }
    }
}

/// A picture as clients send it: as an input of a request, and through the declared pipelines.
///
/// The first byte chooses how it becomes a tensor.
pub fn picture(bytes: &[u8]) {
    let Some((&how, picture)) = bytes.split_first() else { return };
    let input = &image_model().signature.inputs[0];
    let spec = ImageInput {
        colour: [Colour::Rgb, Colour::Bgr, Colour::Grey][usize::from(how) % 3],
        layout: [Layout::Nchw, Layout::Nhwc][usize::from(how >> 2) % 2],
        fit: [Fit::Stretch, Fit::Crop][usize::from(how >> 3) % 2],
        filter: [Filter::Nearest, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos][usize::from(how >> 4) % 4],
        ..image_input()
    };
    let elements = spec.elements() as u32;
    let pipeline = Pipeline::new(&spec, &TensorSpec { item_shape: vec![elements], ..input.clone() }).expect("it fits");
    let (header, mut item) = (inspect(picture, IMAGE_LIMITS), Vec::new());
    match pipeline.append(picture, IMAGE_LIMITS, &mut item) {
        Ok(()) => assert_eq!((header.is_ok(), item.len()), (true, elements as usize * 4)),
        Err(error) => assert!(item.is_empty() && !error.to_string().is_empty()),
    }
    let request = ModelInferRequest {
        model_name: "image".into(),
        inputs: vec![InferInputTensor {
            name: input.name.clone(),
            datatype: "BYTES".into(),
            shape: vec![1],
            ..InferInputTensor::default()
        }],
        raw_input_contents: vec![[&(picture.len() as u32).to_le_bytes(), picture].concat().into()],
        ..ModelInferRequest::default()
    };
    let checked = check_grpc_infer(&image_model(), &request, &Limits { images: IMAGE_LIMITS, ..limits() });
    assert_eq!(checked.is_ok(), header.is_ok(), "what is taken is what has a right header");
    if let Ok(call) = checked {
        assert_eq!((call.items(), call.pictures()[0].as_ref()), (1, picture));
    }
}

/// Small, so that claims beyond it are met often.
const IMAGE_LIMITS: ImageLimits = ImageLimits { bytes_max: 1 << 16, pixels_max: 1 << 12 };

fn image_input() -> ImageInput {
    ImageInput {
        input: "x".into(),
        width: 7,
        height: 5,
        colour: Colour::Rgb,
        layout: Layout::Nchw,
        fit: Fit::Stretch,
        crop_share: Finite::ONE,
        filter: Filter::Bilinear,
        scale: Finite::ONE,
        mean: vec![],
        deviation: vec![],
    }
}

fn image_model() -> ModelInfo {
    let tensor = |name: &str| TensorSpec { name: name.into(), data_type: DataType::Fp32, item_shape: vec![3, 5, 7] };
    ModelInfo {
        signature: Signature { inputs: vec![tensor("x")], outputs: vec![tensor("y")] },
        transforms: Transforms { image: Some(image_input()), ..Transforms::default() },
        ..model()
    }
}

pub(super) fn picture_seeds() -> Vec<Vec<u8>> {
    use image::{DynamicImage, ImageBuffer, ImageFormat, Luma, Rgb, Rgba};
    let noise = |x: u32, y: u32| (x.wrapping_mul(37) ^ y.wrapping_mul(91)) as u8;
    let rgb: ImageBuffer<Rgb<u8>, _> = ImageBuffer::from_fn(24, 17, |x, y| Rgb([noise(x, y), x as u8, y as u8]));
    let grey: ImageBuffer<Luma<u8>, _> = ImageBuffer::from_fn(9, 30, |x, y| Luma([noise(x, y)]));
    let deep: ImageBuffer<Rgba<u16>, _> = ImageBuffer::from_fn(5, 5, |x, y| Rgba([x as u16 * 999, y as u16, 7, 9]));
    let images: [(DynamicImage, &[ImageFormat]); 3] = [
        (rgb.into(), &[ImageFormat::Png, ImageFormat::Jpeg]),
        (grey.into(), &[ImageFormat::Png, ImageFormat::Jpeg]),
        (deep.into(), &[ImageFormat::Png]),
    ];
    let encode = |(how, (image, format)): (usize, (&DynamicImage, &ImageFormat))| {
        let mut bytes = std::io::Cursor::new(vec![how as u8 * 23]);
        bytes.set_position(1);
        image.write_to(&mut bytes, *format).expect("it is small");
        bytes.into_inner()
    };
    let each = images.iter().flat_map(|(image, formats)| formats.iter().map(move |format| (image, format)));
    each.enumerate().map(encode).collect()
}

fn limits() -> Limits {
    // Read once: the defaults are a text.
    static LIMITS: LazyLock<Limits> = LazyLock::new(Limits::default);
    Limits { request_bytes_max: REQUEST_BYTES_MAX, ..*LIMITS }
}

fn model() -> ModelInfo {
    ModelInfo {
        name: "model".into(),
        version: 1,
        loaded_as: "model".into(),
        signature: symphony_executor::default_signature(),
        transforms: Transforms::default(),
        batch_max: 8,
        platform: "fuzz".into(),
        slo: Nanos::from_millis(50),
        sheds: true,
        state: ModelState::Ready,
        pipeline: None,
    }
}

pub(super) fn grpc_infer_seeds() -> Vec<Vec<u8>> {
    let input =
        InferInputTensor { name: "INPUT0".into(), datatype: "FP32".into(), shape: vec![2, 16], ..Default::default() };
    let raw = ModelInferRequest {
        model_name: "model".into(),
        inputs: vec![input.clone()],
        raw_input_contents: vec![Bytes::from(vec![1; 128])],
        ..Default::default()
    };
    let contents =
        symphony_protocol::inference::InferTensorContents { fp32_contents: vec![0.5; 32], ..Default::default() };
    let typed = ModelInferRequest {
        model_name: "model".into(),
        inputs: vec![InferInputTensor { contents: Some(contents), ..input }],
        ..Default::default()
    };
    vec![raw.encode_to_vec(), typed.encode_to_vec()]
}

pub(super) fn grpc_answer_seeds() -> Vec<Vec<u8>> {
    let output = |name: &str, datatype: &str, shape: &[i64]| InferOutputTensor {
        name: name.into(),
        datatype: datatype.into(),
        shape: shape.to_vec(),
        ..Default::default()
    };
    let parameter = |choice| InferParameter { parameter_choice: Some(choice) };
    let answer = ModelInferResponse {
        model_name: "model".into(),
        id: "7".into(),
        parameters: [
            ("symphony_batch".to_owned(), parameter(ParameterChoice::Int64Param(5))),
            ("symphony_request_id".to_owned(), parameter(ParameterChoice::StringParam("f1/2/3".into()))),
        ]
        .into(),
        outputs: vec![output("scores", "FP32", &[1, 2]), output("words", "BYTES", &[2])],
        raw_output_contents: vec![Bytes::from(vec![1; 8]), Bytes::from_static(b"\x03\0\0\0one\0\0\0\0")],
        ..Default::default()
    };
    vec![answer.encode_to_vec()]
}

pub(super) fn rest_infer_seeds() -> Vec<Vec<u8>> {
    let numbers = vec!["1.5"; 16].join(",");
    let json = format!(
        "{{\"id\":\"7\",\"inputs\":[{{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[1,16],\"data\":[{numbers}]}}]}}"
    );
    let binary = "{\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[1,16],\"parameters\":\
                  {\"binary_data_size\":64}}],\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":{\"binary_data\":true}}]}";
    let seed = |json: &str, tail: &[u8]| {
        let mut bytes = BytesMut::new();
        bytes.put_u16_le(json.len() as u16);
        bytes.put_slice(json.as_bytes());
        bytes.put_slice(tail);
        bytes.to_vec()
    };
    vec![seed(&json, &[]), seed(binary, &[7; 64])]
}
