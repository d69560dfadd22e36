//! Pictures in, labels out: the digits as PNG files, over gRPC and REST, against the same digits as tensors.

use anyhow::Context as _;
use image::{DynamicImage, ImageBuffer, ImageFormat, Luma};
use serde_json::{Value, json};
use symphony_client::{Answer, Client, Error, Request, Tensor};
use symphony_executor::digits::{self, Digit};
use symphony_tests::{Shape, TestCluster, onnxruntime_is_here, phase, tell};

/// The picture of the documentation's examples.
pub(super) const SEVEN: &[u8] = include_bytes!("../../deploy/models/digits/seven.png");
/// Time for a request.
pub(super) const SLO_MS: &str = "30000";
/// Digits that are asked for.
const DIGITS: usize = 40;
/// Of those at least this many are recognised: the model gets 98 of 100 right.
const RIGHT_MIN: usize = 36;
const NAMES: [&str; 10] = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];

/// The digit as a PNG file: black 0, white 255.
fn png(digit: &Digit<'_>) -> Vec<u8> {
    let grey = digit.pixels.iter().map(|&pixel| (u16::from(pixel) * 255 / 16) as u8).collect();
    let image: ImageBuffer<Luma<u8>, Vec<u8>> = ImageBuffer::from_raw(8, 8, grey).unwrap();
    let mut bytes = std::io::Cursor::new(Vec::new());
    DynamicImage::from(image).write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}

pub(super) fn pictures(pictures: &[Vec<u8>]) -> Request {
    let input = Tensor::bytes("pixels", &[pictures.len() as u64], pictures).unwrap();
    Request::new("digits").input(input).classification("probabilities", 1)
}

/// The names that an answer gives, one for each item.
pub(super) fn names(answer: &Answer) -> Vec<String> {
    let classes = answer.output("probabilities").unwrap().byte_strings().unwrap();
    let name = |class: &bytes::Bytes| String::from_utf8_lossy(class).rsplit(':').next().unwrap().to_owned();
    classes.iter().map(name).collect()
}

/// The class of a picture over REST in words, as `model` of this path knows it.
pub(super) fn over_rest(cluster: &TestCluster, model: &str, picture: &[u8]) -> anyhow::Result<String> {
    let input = json!({ "name": "pixels", "datatype": "BYTES", "shape": [1],
                        "parameters": { "binary_data_size": picture.len() + 4 } });
    let output = json!({ "name": "probabilities", "parameters": { "classification": 1 } });
    let head = json!({ "inputs": [input], "outputs": [output] }).to_string();
    let body = [head.as_bytes(), &(picture.len() as u32).to_le_bytes(), picture].concat();
    let url = format!("http://{}/v2/models/{model}/infer", cluster.address("frontend", "rest"));
    let post = reqwest::Client::new().post(url).header("inference-header-content-length", head.len()).body(body);
    let answer: Value = cluster.block_on(async { post.send().await?.json().await })?;
    Ok(answer["outputs"][0]["data"][0].as_str().with_context(|| answer.to_string())?.to_owned())
}

#[test]
fn digits_are_read_from_pictures_over_grpc_and_rest() {
    if !onnxruntime_is_here() {
        return;
    }
    tell("pictures", &Shape::emulated(&["default"]).with_cpu(), |cluster| {
        phase("the digits are loaded with what frontends do for them; what does not fit is refused");
        std::fs::write(cluster.workspace.file("digits.onnx"), digits::MODEL).unwrap();
        let _ = cluster.cli(&["profile", "digits.onnx", "--batch-max", "32"]).ended_with(0);
        let load = |transforms: &str| {
            std::fs::write(cluster.workspace.file("transforms.toml"), transforms).unwrap();
            let mut load = vec!["model", "load", "digits", "--onnx", "digits.onnx", "--profile", "digits.profile.toml"];
            // The answer matters here, not its time: on a busy machine a digit takes a thousand times as long as its
            // profile says. The policy does not wait for other requests, so the long SLO costs no time.
            load.extend(["--slo-ms", SLO_MS, "--policy", "eager"]);
            load.extend(["--subcluster", "cpu", "--transforms", "transforms.toml"]);
            cluster.cli(&load)
        };
        let wrong = digits::TRANSFORMS.replace("width = 8", "width = 9");
        let _ = load(&wrong).ended_with(2).complains(&["--transforms", "9 × 8 pixels", "expected [1, 8, 9] or [72]"]);
        let unknown = digits::TRANSFORMS.replace("width = 8", "widht = 8");
        let _ = load(&unknown).ended_with(2).complains(&["--transforms", "widht"]);
        let output = load(digits::TRANSFORMS).ended_with(0);
        assert_eq!(output.out.trim(), "model digits is ready");

        phase("each digit as a picture is what it is as a tensor, alone and several in one request");
        let grpc = cluster.address("frontend", "grpc");
        let client = cluster.block_on(async { Client::builder().frontend(grpc).build().unwrap() });
        let seven = cluster.block_on(async { client.infer(pictures(&[SEVEN.to_vec()])).await.unwrap() });
        assert_eq!(names(&seven), ["seven"]);
        let digits: Vec<_> = digits::test_set().into_iter().take(DIGITS).collect();
        let encoded: Vec<_> = digits.iter().map(png).collect();
        let mut right = 0;
        for (digit, picture) in digits.iter().zip(&encoded) {
            let mut pixels = Vec::new();
            digit.append_input(&mut pixels);
            let pixels: Vec<_> = pixels.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
            let tensor = Request::new("digits").input(Tensor::new("pixels", &[1, 64], &pixels).unwrap());
            let as_tensor = cluster.block_on(client.infer(tensor)).unwrap();
            let label = as_tensor.output("label").unwrap().values::<i64>().unwrap()[0];
            let as_picture = names(&cluster.block_on(client.infer(pictures(std::slice::from_ref(picture)))).unwrap());
            assert_eq!(as_picture, [NAMES[label as usize]], "as a tensor it is a {label}");
            right += usize::from(label == i64::from(digit.label));
        }
        assert!(right >= RIGHT_MIN, "{right} of {DIGITS} are right");
        let together = names(&cluster.block_on(client.infer(pictures(&encoded[..8]))).unwrap());
        let right = together.iter().zip(&digits).filter(|(name, digit)| **name == NAMES[usize::from(digit.label)]);
        assert!(right.count() >= 6, "{together:?}");

        phase("over REST it is the same");
        let class = over_rest(cluster, "digits", &encoded[0]).unwrap();
        let name = NAMES[usize::from(digits[0].label)];
        assert!(class.ends_with(&format!(":{}:{name}", digits[0].label)), "{class}; expected {name}");

        phase("one whose header is right and whose data is not is taken back, and its sender hears why");
        let cut_off = encoded[0][..45].to_vec();
        let error = cluster.block_on(client.infer(pictures(&[cut_off]))).unwrap_err();
        let Error::Refused(refusal) = &error else { panic!("{error:?}") };
        assert_eq!(refusal.reason, "bad_picture", "{refusal:?}");
        assert!(refusal.message.contains("input `pixels`, picture 0: it cannot be decoded"), "{refusal}");
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert!(cluster.console().unwrap()["ledger"]["counts"]["cancelled"].as_u64() >= Some(1));

        phase("what it took is told");
        let metrics = cluster.metrics_of("frontend").unwrap();
        for expected in [
            "symphony_frontend_pictures_total{outcome=\"decoded\"}",
            "symphony_frontend_pictures_total{outcome=\"undecodable\"} 1",
            "symphony_frontend_picture_decode_seconds_count",
            "symphony_frontend_picture_wait_seconds_count",
        ] {
            assert!(metrics.contains(expected), "{expected} is missing in {metrics}");
        }
    });
}
