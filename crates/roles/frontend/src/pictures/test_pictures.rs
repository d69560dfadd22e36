//! A model of pictures and pictures for it, as tests have them.

use bytes::Bytes;
use image::{DynamicImage, ImageBuffer, ImageFormat, Luma};
use symphony_types::{
    Colour, DataType, Filter, Finite, Fit, ImageInput, Layout, Nanos, Signature, TensorSpec, Transforms,
};

use crate::oip::{ModelInfo, ModelState, Pictures};

/// The SLO of the model.
pub(crate) const SLO: Nanos = Nanos::from_millis(50);

/// The model `m`: its input `x` is a row of this many grey pixels, with inputs of one byte each before and after it.
pub(crate) fn model(width: u32, before: usize, after: usize) -> ModelInfo {
    let tensor = |name: String, shape: u32| TensorSpec { name, data_type: DataType::Uint8, item_shape: vec![shape] };
    let image = ImageInput {
        input: "x".into(),
        width,
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
    let before = (0..before).map(|n| tensor(format!("before{n}"), 1));
    let after = (0..after).map(|n| tensor(format!("after{n}"), 1));
    ModelInfo {
        name: "m".into(),
        version: 1,
        loaded_as: "m".into(),
        signature: Signature {
            inputs: before.chain([tensor("x".into(), width)]).chain(after).collect(),
            outputs: vec![tensor("y".into(), 1)],
        },
        transforms: Transforms { image: Some(image), ..Transforms::default() },
        batch_max: 8,
        platform: String::new(),
        slo: SLO,
        sheds: true,
        state: ModelState::Ready,
        pipeline: None,
    }
}

/// A PNG file of a row of grey pixels.
pub(crate) fn picture(pixels: &[u8]) -> Bytes {
    let image: ImageBuffer<Luma<u8>, _> = ImageBuffer::from_raw(pixels.len() as u32, 1, pixels.to_vec()).unwrap();
    let mut bytes = std::io::Cursor::new(Vec::new());
    DynamicImage::from(image).write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner().into()
}

/// A file whose header is right and whose rest is missing.
pub(crate) fn cut_off(picture: &Bytes) -> Bytes {
    picture.slice(..45)
}

/// Pictures that are decoded quickly, behind this many bytes of other inputs.
pub(crate) fn pictures(encoded: Vec<Bytes>, at: usize) -> Pictures {
    Pictures { encoded, at, quick: true }
}
