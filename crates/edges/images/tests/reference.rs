//! Against values that are known, and against a second way of computing them: in f64, from the textbook
//! definitions of the filters.

use image::{DynamicImage, ImageBuffer, ImageFormat, Luma, Rgb, Rgba};
use proptest::prelude::*;
use symphony_images::{Format, ImageLimits, Pipeline, inspect};
use symphony_types::{Colour, DataType, Filter, Finite, Fit, ImageInput, Layout, TensorSpec};

/// How far a resized value may be from the reference, of 255: two passes of the resizer round to whole numbers, each by
/// up to a half, and the second pass may weigh the rounding of the first by the filter's negative lobes (at most 1.4 in
/// all).
const TOLERANCE: f64 = 1.25;

fn number(number: f64) -> Finite {
    Finite::try_from(number).unwrap()
}

fn spec(width: u32, height: u32) -> ImageInput {
    ImageInput {
        input: "x".into(),
        width,
        height,
        colour: Colour::Rgb,
        layout: Layout::Nhwc,
        fit: Fit::Stretch,
        crop_share: Finite::ONE,
        filter: Filter::Bilinear,
        scale: Finite::ONE,
        mean: vec![],
        deviation: vec![],
    }
}

fn pipeline(spec: &ImageInput, data_type: DataType) -> Pipeline {
    let item_shape = vec![spec.elements() as u32];
    Pipeline::new(spec, &TensorSpec { name: "x".into(), data_type, item_shape }).unwrap()
}

fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn png(image: impl Into<DynamicImage>) -> Vec<u8> {
    encoded(image, ImageFormat::Png)
}

fn fp32(spec: &ImageInput, picture: &[u8]) -> Vec<f32> {
    let mut item = Vec::new();
    let pipeline = pipeline(spec, DataType::Fp32);
    pipeline.append(picture, ImageLimits::default(), &mut item).unwrap();
    assert_eq!(item.len(), pipeline.item_bytes());
    item.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// Red, green; blue, a mixture.
fn four_pixels() -> ImageBuffer<Rgb<u8>, Vec<u8>> {
    ImageBuffer::from_raw(2, 2, vec![255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30]).unwrap()
}

#[test]
fn channels_come_in_the_order_and_the_layout_that_are_declared() {
    let png = png(four_pixels());
    let decoded = |colour, layout| fp32(&ImageInput { colour, layout, ..spec(2, 2) }, &png);
    let flat = |planes: [[u8; 4]; 3]| planes.concat().into_iter().map(f32::from).collect::<Vec<_>>();
    let (red, green, blue) = ([255, 0, 0, 10], [0, 255, 0, 20], [0, 0, 255, 30]);
    assert_eq!(decoded(Colour::Rgb, Layout::Nchw), flat([red, green, blue]));
    assert_eq!(decoded(Colour::Bgr, Layout::Nchw), flat([blue, green, red]));
    assert_eq!(
        decoded(Colour::Rgb, Layout::Nhwc),
        [255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30].map(|value: u8| f32::from(value))
    );
    // 0.299 · 255 = 76.2, 0.587 · 255 = 149.7, 0.114 · 255 = 29.1, and 2.99 + 11.74 + 3.42 = 18.15.
    assert_eq!(decoded(Colour::Grey, Layout::Nchw), [76.0, 150.0, 29.0, 18.0]);
}

#[test]
fn values_are_scaled_shifted_and_divided_for_each_channel_and_rounded_for_whole_numbers() {
    let png = png(four_pixels());
    let normalised = ImageInput {
        scale: number(1.0 / 255.0),
        mean: [0.485, 0.456, 0.406].map(number).to_vec(),
        deviation: [0.229, 0.224, 0.225].map(number).to_vec(),
        ..spec(2, 2)
    };
    // (1 − 0.485) / 0.229, (0 − 0.456) / 0.224, (0 − 0.406) / 0.225
    let first: Vec<_> = fp32(&normalised, &png).into_iter().take(3).collect();
    for (got, expected) in first.iter().zip([2.248_908_3, -2.035_714_4, -1.804_444_4]) {
        assert!((got - expected).abs() < 1e-6, "{first:?}");
    }
    let bytes = |spec: &ImageInput, data_type| {
        let mut item = Vec::new();
        pipeline(spec, data_type).append(&png, ImageLimits::default(), &mut item).unwrap();
        item
    };
    let tenth = ImageInput { scale: number(0.1), mean: vec![number(1.0)], ..spec(2, 2) };
    assert_eq!(bytes(&tenth, DataType::Uint8), [25, 0, 0, 0, 25, 0, 0, 0, 25, 0, 1, 2], "24.5 is rounded up, −1 is 0");
    // 1.0 and 0.5 as IEEE 754 half precision.
    let half = ImageInput { scale: number(1.0 / 255.0), ..spec(2, 2) };
    assert_eq!(bytes(&half, DataType::Fp16)[..4], [0x00, 0x3c, 0x00, 0x00]);
}

#[test]
fn other_pixel_formats_become_eight_bits_without_alpha() {
    let rgba: ImageBuffer<Rgba<u8>, _> = ImageBuffer::from_raw(1, 1, vec![10, 20, 30, 7]).unwrap();
    assert_eq!(fp32(&spec(1, 1), &png(rgba)), [10.0, 20.0, 30.0]);
    let deep: ImageBuffer<Rgb<u16>, _> = ImageBuffer::from_raw(1, 1, vec![0xffff, 0x8080, 0]).unwrap();
    assert_eq!(fp32(&spec(1, 1), &png(deep)), [255.0, 128.0, 0.0]);
    let grey: ImageBuffer<Luma<u8>, _> = ImageBuffer::from_raw(1, 1, vec![77]).unwrap();
    let grey = png(grey);
    assert_eq!(fp32(&spec(1, 1), &grey), [77.0; 3]);
    let one = ImageInput { colour: Colour::Grey, ..spec(1, 1) };
    assert_eq!(fp32(&one, &grey), [77.0]);
}

#[test]
fn a_jpeg_comes_out_within_its_own_loss() {
    let plain: ImageBuffer<Rgb<u8>, _> = ImageBuffer::from_pixel(40, 24, Rgb([200, 100, 50]));
    let jpeg = encoded(plain, ImageFormat::Jpeg);
    let header = inspect(&jpeg, ImageLimits::default()).unwrap();
    assert_eq!((header.format, header.width, header.height), (Format::Jpeg, 40, 24));
    for pixel in fp32(&spec(8, 8), &jpeg).chunks(3) {
        let off = pixel.iter().zip([200.0, 100.0, 50.0]).map(|(got, expected)| (got - expected).abs());
        assert!(off.fold(0.0, f32::max) <= 4.0, "{pixel:?}: quantised to some 2 of 255 in each of luma and chroma");
    }
}

#[test]
fn a_crop_keeps_the_middle() {
    // A column of the value x at every x, so that what is kept shows in the mean.
    let ramp: ImageBuffer<Luma<u8>, _> = ImageBuffer::from_fn(200, 50, |x, _| Luma([x as u8]));
    let png = png(ramp);
    let with = |share: f64| {
        let grey = ImageInput { colour: Colour::Grey, fit: Fit::Crop, crop_share: number(share), ..spec(10, 10) };
        fp32(&grey, &png)[..10].to_vec()
    };
    // The middle 50 columns are 75 to 124; a tenth of them is 5 wide, and its mean 2 beyond its first.
    for (share, first, step) in [(1.0, 77.0, 5.0), (0.5, 88.5, 2.5)] {
        for (index, got) in with(share).iter().enumerate() {
            let expected = first + step * index as f32;
            assert!((got - expected).abs() <= 1.3, "{share}: {got} at {index}; expected {expected}");
        }
    }
}

/// The filters by their definitions, with their supports.
fn weight(filter: Filter, x: f64) -> f64 {
    let x = x.abs();
    let sinc = |x: f64| if x == 0.0 { 1.0 } else { (x * std::f64::consts::PI).sin() / (x * std::f64::consts::PI) };
    match filter {
        Filter::Bilinear => (1.0 - x).max(0.0),
        Filter::Bicubic if x < 1.0 => 1.5 * x.powi(3) - 2.5 * x.powi(2) + 1.0,
        Filter::Bicubic if x < 2.0 => -0.5 * x.powi(3) + 2.5 * x.powi(2) - 4.0 * x + 2.0,
        Filter::Lanczos if x < 3.0 => sinc(x) * sinc(x / 3.0),
        _ => 0.0,
    }
}

/// The weights of the source's pixels for one of the target's, in one direction; they stretch as the picture shrinks.
fn weights(filter: Filter, from: u32, to: u32, at: f64) -> Vec<f64> {
    let ratio = f64::from(from) / f64::from(to);
    let stretch = ratio.max(1.0);
    let centre = (at + 0.5) * ratio;
    let raw: Vec<_> = (0..from).map(|pixel| weight(filter, (f64::from(pixel) + 0.5 - centre) / stretch)).collect();
    let sum: f64 = raw.iter().sum();
    raw.iter().map(|weight| weight / sum).collect()
}

/// Noise: the hardest case for a filter.
fn noise(seed: u64, x: u32, y: u32) -> u8 {
    let mixed = (seed ^ u64::from(x) << 32 ^ u64::from(y)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

/// How far the pipeline's picture of noise is from the reference, which is read `shift` pixels aside: the largest
/// difference.
fn off(seed: u64, filter: Filter, (from_x, from_y): (u32, u32), (to_x, to_y): (u32, u32), shift: f64) -> f64 {
    let source: ImageBuffer<Luma<u8>, _> = ImageBuffer::from_fn(from_x, from_y, |x, y| Luma([noise(seed, x, y)]));
    let got = fp32(&ImageInput { colour: Colour::Grey, filter, ..spec(to_x, to_y) }, &png(source));
    let mut largest = 0.0_f64;
    for y in 0..to_y {
        let rows = weights(filter, from_y, to_y, f64::from(y));
        for x in 0..to_x {
            let columns = weights(filter, from_x, to_x, f64::from(x) + shift);
            let of_column = |column: u32| -> f64 {
                rows.iter().zip(0..).map(|(by, row)| by * f64::from(noise(seed, column, row))).sum()
            };
            // The first pass, which is the vertical one, is cut at what a byte holds.
            let expected: f64 =
                columns.iter().zip(0..).map(|(by, column)| by * of_column(column).clamp(0.0, 255.0)).sum();
            let got = f64::from(got[(y * to_x + x) as usize]);
            largest = largest.max((got - expected.clamp(0.0, 255.0)).abs());
        }
    }
    largest
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn resizing_is_what_the_filters_are_defined_as(
        seed in any::<u64>(), from in (1_u32..40, 1_u32..40), to in (1_u32..40, 1_u32..40),
        filter in prop_oneof![Just(Filter::Bilinear), Just(Filter::Bicubic), Just(Filter::Lanczos)],
    ) {
        let off = off(seed, filter, from, to, 0.0);
        prop_assert!(off <= TOLERANCE, "{off}");
    }
}

#[test]
fn a_shift_of_a_quarter_of_a_pixel_would_be_noticed() {
    for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
        let (right, shifted) = (off(1, filter, (30, 20), (17, 11), 0.0), off(1, filter, (30, 20), (17, 11), 0.25));
        assert!(right <= TOLERANCE && shifted > 4.0 * TOLERANCE, "{filter:?}: {right}, shifted {shifted}");
    }
}

/// What the detector sees is the middle of a wide picture, and its boxes are shares of that.
#[test]
fn boxes_of_what_another_input_sees_become_items_of_this_one() {
    let row: Vec<u8> = (0..8).map(|n| n * 30).collect();
    let wide = png(ImageBuffer::<Luma<u8>, _>::from_raw(8, 2, [&row[..], &row[..]].concat()).unwrap());
    let of = |width, height, fit| {
        pipeline(
            &ImageInput { colour: Colour::Grey, filter: Filter::Nearest, fit, ..spec(width, height) },
            DataType::Uint8,
        )
    };
    let (detector, digit) = (of(4, 2, Fit::Crop), of(2, 2, Fit::Stretch));
    let made = |boxes: &[[f64; 4]]| {
        let mut items = vec![7];
        digit.append_boxes(&detector, boxes, &wide, ImageLimits::default(), &mut items).unwrap();
        items
    };
    // It sees the columns 2 to 5.
    assert_eq!(made(&[[0.0, 0.0, 0.5, 1.0]]), [7, 60, 90, 60, 90]);
    assert_eq!(made(&[[0.5, 0.0, 1.0, 1.0], [-0.5, 0.0, 0.0, 1.0]]), [7, 120, 150, 120, 150, 0, 30, 0, 30]);
    assert_eq!(made(&[]), [7]);
    let mut items = vec![7];
    let cut = &wide[..45];
    assert!(digit.append_boxes(&detector, &[[0.0; 4]], cut, ImageLimits::default(), &mut items).is_err());
    assert_eq!(items, [7], "nothing of what failed");
}
