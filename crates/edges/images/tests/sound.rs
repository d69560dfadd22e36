//! Files of other encoders, each in a form that the decoder takes another way: what is refused must not be sound.

use std::path::Path;

use symphony_images::{ImageLimits, Pipeline, inspect};
use symphony_types::{Colour, DataType, Filter, Finite, Fit, ImageInput, Layout, TensorSpec};

/// `image` makes up what is missing; of these files nothing is.
#[test]
fn whole_jpegs_of_every_form_are_taken_pixel_by_pixel() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sound");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= 6);
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        let expected = image::load_from_memory(&bytes).unwrap().into_rgb8().into_raw();
        for after_end in [&b""[..], b"more", &bytes] {
            let mut item = Vec::new();
            let bytes = [&bytes[..], after_end].concat();
            as_it_is(&bytes).append(&bytes, ImageLimits::default(), &mut item).unwrap();
            assert_eq!(item, expected, "{}", file.display());
        }
    }
}

/// The picture's own pixels.
fn as_it_is(bytes: &[u8]) -> Pipeline {
    let header = inspect(bytes, ImageLimits::default()).unwrap();
    let spec = ImageInput {
        input: "x".into(),
        width: header.width,
        height: header.height,
        colour: Colour::Rgb,
        layout: Layout::Nhwc,
        fit: Fit::Stretch,
        crop_share: Finite::ONE,
        filter: Filter::Nearest,
        scale: Finite::ONE,
        mean: vec![],
        deviation: vec![],
    };
    let item_shape = [header.height, header.width, 3].map(|side| side as _).to_vec();
    Pipeline::new(&spec, &TensorSpec { name: "x".into(), data_type: DataType::Uint8, item_shape }).unwrap()
}
