//! A model whose input and output are of half precision: as raw tensors, and with a picture as its input.

use std::io::Cursor;

use image::{DynamicImage, ImageBuffer, ImageFormat, Luma};
use symphony_client::{Answer, Client, ElementType, Request, Tensor};
use symphony_executor::f16;
use symphony_tests::{Shape, onnxruntime_is_here, phase, tell};
use symphony_types::DataType;
use symphony_zoo::{Precision, layer};

use super::pictures::SLO_MS;

/// Pictures of 2 × 2 pixels; each value is as it is in the file.
const TRANSFORMS: &str = "[image]\ninput = \"input\"\nwidth = 2\nheight = 2\ncolour = \"grey\"\n";

fn halves(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| f16::from_f32(number).to_le_bytes()).collect()
}

fn tensor(items: u64, numbers: &[f32]) -> Request {
    let half = ElementType::Fixed(DataType::Fp16);
    Request::new("layer").input(Tensor::raw("input", half, &[items, 4], halves(numbers).into()).unwrap())
}

/// The numbers of an answer.
fn output(answer: &Answer) -> Vec<f32> {
    let output = answer.output("output").unwrap();
    assert_eq!(output.element(), ElementType::Fixed(DataType::Fp16));
    output.data().as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes).to_f32()).collect()
}

#[test]
fn numbers_of_half_precision_travel_from_the_client_through_the_model_and_back() {
    if !onnxruntime_is_here() {
        return;
    }
    tell("half-precision", &Shape::emulated(&["default"]).with_cpu(), |cluster| {
        phase("a model of FP16 is profiled and loaded");
        layer(Precision::Half, 1).write(&cluster.workspace.file("layer.onnx")).unwrap();
        let _ = cluster.cli(&["profile", "layer.onnx", "--batch-max", "4"]).ended_with(0);
        cluster.workspace.write("transforms.toml", TRANSFORMS).unwrap();
        let mut load = vec!["model", "load", "layer", "--onnx", "layer.onnx", "--profile", "layer.profile.toml"];
        load.extend([
            "--slo-ms",
            SLO_MS,
            "--policy",
            "eager",
            "--subcluster",
            "cpu",
            "--transforms",
            "transforms.toml",
        ]);
        assert_eq!(cluster.cli(&load).ended_with(0).out.trim(), "model layer is ready");

        phase("one layer is linear, and twice a number is exact");
        let client = Client::builder().frontend(cluster.address("frontend", "grpc"));
        let client = cluster.block_on(async { client.build().unwrap() });
        let ask = |request: Request| output(&cluster.block_on(client.infer(request)).unwrap());
        let numbers = [1.0, -0.5, 0.25, 3.0, 2.0, -1.0, 0.5, 6.0, 0.0, 0.0, 0.0, 0.0];
        let answer = ask(tensor(3, &numbers));
        let [one, twice, none] = answer.as_chunks::<2>().0 else { panic!("{answer:?}") };
        assert!(one.iter().all(|&number| number.is_finite() && number != 0.0), "{answer:?}");
        assert_eq!((*twice, *none), (one.map(|number| 2.0 * number), [0.0, 0.0]));

        phase("a picture becomes the same numbers");
        let image: ImageBuffer<Luma<u8>, Vec<u8>> = ImageBuffer::from_raw(2, 2, vec![0, 10, 100, 255]).unwrap();
        let mut png = Cursor::new(Vec::new());
        DynamicImage::from(image).write_to(&mut png, ImageFormat::Png).unwrap();
        let picture = Request::new("layer").input(Tensor::bytes("input", &[1], &[png.into_inner()]).unwrap());
        assert_eq!(ask(picture), ask(tensor(1, &[0.0, 10.0, 100.0, 255.0])));
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
