use std::time::Duration;

use image::{DynamicImage, ImageBuffer, ImageFormat, Luma};
use symphony_types::{
    Colour, DataType, Filter, Finite, Fit, ImageInput, Layout, Nanos, Signature, TensorSpec, Transforms,
};

use super::*;
use crate::oip::ModelState;

const SOON: Duration = Duration::from_secs(30);

fn model() -> ModelInfo {
    let tensor =
        |name: &str, data_type, shape: &[u32]| TensorSpec { name: name.into(), data_type, item_shape: shape.to_vec() };
    let image = ImageInput {
        input: "x".into(),
        width: 2,
        height: 1,
        colour: Colour::Grey,
        layout: Layout::Nchw,
        fit: Fit::Stretch,
        crop_share: Finite::ONE,
        filter: Filter::Nearest,
        scale: Finite::ONE,
        mean: vec![],
        deviation: vec![],
    };
    ModelInfo {
        name: "m".into(),
        version: 1,
        loaded_as: "m".into(),
        signature: Signature {
            inputs: vec![tensor("before", DataType::Uint8, &[1]), tensor("x", DataType::Uint8, &[2])],
            outputs: vec![tensor("y", DataType::Uint8, &[1])],
        },
        transforms: Transforms { image: Some(image), ..Transforms::default() },
        batch_max: 8,
        platform: String::new(),
        slo: Nanos::from_millis(50),
        state: ModelState::Ready,
    }
}

fn decoders(threads: u32, waiting_max: u32) -> (Decoders, Registry) {
    let registry = Registry::new("frontend");
    let config = ImagesConfig { threads, waiting_max, pixels_max: 1 << 20 };
    (Decoders::new(&config, ImageLimits::default(), &registry), registry)
}

fn picture(left: u8, right: u8) -> Bytes {
    let image: ImageBuffer<Luma<u8>, _> = ImageBuffer::from_raw(2, 1, vec![left, right]).unwrap();
    let mut bytes = std::io::Cursor::new(Vec::new());
    DynamicImage::from(image).write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner().into()
}

fn cut_off() -> Bytes {
    picture(1, 2).slice(..45)
}

fn pictures(encoded: Vec<Bytes>) -> Pictures {
    Pictures { encoded, at: 2 }
}

#[tokio::test]
async fn pictures_take_their_place_among_the_other_inputs_in_their_order() {
    let (decoders, _) = decoders(2, 8);
    let encoded = (0..4).map(|n| picture(n, 100 + n)).collect();
    let mut decoding = decoders.begin(&model(), Bytes::from_static(b"ab!"), pictures(encoded)).unwrap();
    decoding.begun().await;
    let whole = decoding.input().await.unwrap();
    assert_eq!(&whole[..], [b'a', b'b', 0, 100, 1, 101, 2, 102, 3, 103, b'!']);
}

#[tokio::test]
async fn one_that_cannot_be_decoded_is_named() {
    let (decoders, registry) = decoders(1, 8);
    let mut decoding =
        decoders.begin(&model(), Bytes::from_static(b"ab"), pictures(vec![picture(1, 2), cut_off()])).unwrap();
    decoding.begun().await;
    let error = decoding.input().await.unwrap_err();
    assert!(
        matches!(&error, InferError::BadPicture(reason) if reason.starts_with("input `x`, picture 1: it cannot be decoded")),
        "{error}"
    );
    let page = registry.encode();
    for expected in [
        "symphony_frontend_pictures_total{outcome=\"decoded\"} 1",
        "symphony_frontend_pictures_total{outcome=\"undecodable\"} 1",
        "symphony_frontend_picture_decode_seconds_count 2",
        "symphony_frontend_picture_wait_seconds_count 2",
    ] {
        assert!(page.contains(expected), "{page}");
    }
}

#[tokio::test]
async fn a_request_is_announced_when_its_last_picture_has_a_thread_and_a_full_pool_refuses() {
    let (decoders, registry) = decoders(1, 3);
    // The only thread is busy with something else.
    let busy = Arc::clone(&decoders.threads).acquire_owned().await.unwrap();
    let begin = |count: usize| {
        let encoded = (0..count).map(|_| picture(1, 2)).collect();
        decoders.begin(&model(), Bytes::from_static(b"ab"), pictures(encoded))
    };
    let mut waits = begin(2).unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(20), waits.begun()).await.is_err());
    assert_eq!(begin(2).unwrap_err(), InferError::DecodersBusy { waiting_max: 3 });
    let gives_up = begin(1).unwrap();
    assert_eq!(decoders.room.available_permits(), 0);

    // Who leaves makes room.
    drop(gives_up);
    let room = async {
        while decoders.room.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, room).await.unwrap();
    assert!(registry.encode().contains("symphony_frontend_pictures_total{outcome=\"abandoned\"} 1"));
    drop(busy);
    tokio::time::timeout(SOON, waits.begun()).await.unwrap();
    assert_eq!(&waits.input().await.unwrap()[..], [b'a', b'b', 1, 2, 1, 2]);
    assert_eq!(decoders.room.available_permits(), 3);
}
