//! Bytes that mean no good.

use image::{DynamicImage, ImageBuffer, ImageFormat, Rgb};
use proptest::prelude::*;
use symphony_images::{ImageError, ImageLimits, Pipeline, inspect};
use symphony_types::{Colour, DataType, Filter, Finite, Fit, ImageInput, Layout, TensorSpec};

/// Small, so that a claim beyond it is refused at once.
const LIMITS: ImageLimits = ImageLimits { bytes_max: 1 << 16, pixels_max: 10_000 };

fn pipeline() -> Pipeline {
    let spec = ImageInput {
        input: "x".into(),
        width: 5,
        height: 3,
        colour: Colour::Grey,
        layout: Layout::Nchw,
        fit: Fit::Crop,
        crop_share: Finite::ONE,
        filter: Filter::Bilinear,
        scale: Finite::ONE,
        mean: vec![],
        deviation: vec![],
    };
    let input = TensorSpec { name: "x".into(), data_type: DataType::Fp32, item_shape: vec![15] };
    Pipeline::new(&spec, &input).unwrap()
}

fn encoded(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let image: ImageBuffer<Rgb<u8>, _> =
        ImageBuffer::from_fn(width, height, |x, y| Rgb([x as u8, y as u8, (x * y) as u8]));
    let mut bytes = std::io::Cursor::new(Vec::new());
    DynamicImage::from(image).write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// CRC-32 of PNG, so that a header that lies is not found by its checksum.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}

/// A PNG whose header claims another size.
fn claims(width: u32, height: u32) -> Vec<u8> {
    let mut png = encoded(4, 4, ImageFormat::Png);
    png[16..20].copy_from_slice(&width.to_be_bytes());
    png[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc(&png[12..29]);
    png[29..33].copy_from_slice(&sum.to_be_bytes());
    png
}

#[test]
fn what_is_no_picture_is_told_from_its_header() {
    assert_eq!(inspect(b"", LIMITS), Err(ImageError::UnknownFormat));
    assert_eq!(inspect(b"GIF89a", LIMITS), Err(ImageError::UnknownFormat));
    let large = vec![0xff; LIMITS.bytes_max + 1];
    assert_eq!(inspect(&large, LIMITS), Err(ImageError::TooLarge { bytes: large.len(), bytes_max: LIMITS.bytes_max }));
    for format in [ImageFormat::Png, ImageFormat::Jpeg] {
        let whole = encoded(20, 10, format);
        let header = inspect(&whole, LIMITS).unwrap();
        assert_eq!((header.width, header.height), (20, 10));
        assert!(matches!(inspect(&whole[..12], LIMITS), Err(ImageError::BadHeader { .. })));
    }
}

/// The time that a picture takes is known before it is decoded.
#[test]
fn large_and_progressive_pictures_are_known_to_take_long() {
    let wide = ImageLimits { pixels_max: u64::MAX, ..LIMITS };
    let quick = |bytes: &[u8]| inspect(bytes, wide).unwrap().is_quick();
    assert!(quick(&claims(1024, 1024)));
    assert!(!quick(&claims(1025, 1024)));
    let mut jpeg = encoded(20, 10, ImageFormat::Jpeg);
    assert!(quick(&jpeg));
    let frame = jpeg.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
    jpeg[frame + 1] = 0xc2;
    assert!(!quick(&jpeg));
}

#[test]
fn a_size_that_is_claimed_costs_nothing() {
    for (width, height) in [(101, 100), (10_001, 1), (0, 5), (i32::MAX as u32, i32::MAX as u32)] {
        let refused = ImageError::TooManyPixels { width, height, pixels_max: LIMITS.pixels_max };
        assert_eq!(inspect(&claims(width, height), LIMITS), Err(refused.clone()));
        assert_eq!(pipeline().append(&claims(width, height), LIMITS, &mut Vec::new()), Err(refused));
    }
    assert!(inspect(&claims(100, 100), LIMITS).is_ok(), "the limit itself is allowed");
    let wide = ImageLimits { pixels_max: u64::MAX, ..LIMITS };
    assert!(inspect(&claims(65_535, 1), wide).is_ok());
    assert!(matches!(inspect(&claims(65_536, 1), wide), Err(ImageError::TooManyPixels { .. })), "a row is bounded");
}

/// The decoder looks at all of them again after each: in a time that is quadratic, before anything is decoded.
#[test]
fn a_header_of_very_many_segments_is_refused_by_their_number() {
    let jpeg = encoded(4, 4, ImageFormat::Jpeg);
    let (start, rest) = jpeg.split_at(2);
    let with = |comments: usize| [start, &[0xff, 0xfe, 0, 2].repeat(comments), rest].concat();
    assert!(inspect(&with(1_000), LIMITS).is_ok(), "as many as anybody may need");
    let refused = inspect(&with(1_100), LIMITS).unwrap_err().to_string();
    assert!(refused.contains("more than 1024 segments"), "{refused}");
    for cut in 2..jpeg.len().min(200) {
        let _ = inspect(&jpeg[..cut], LIMITS);
    }
    for (bytes, expected) in
        [(&[0xff, 0xd8, 0xff, 0xe0, 0, 1][..], "ends beyond"), (&[0xff, 0xd8, 0xff, 0xe0, 0, 2, 7, 7][..], "a marker")]
    {
        let refused = inspect(bytes, LIMITS).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn a_header_that_is_right_before_data_that_is_not_fails_when_it_is_decoded() {
    let mut item = vec![7];
    for bytes in [claims(100, 100), encoded(20, 10, ImageFormat::Png)[..60].to_vec()] {
        assert!(inspect(&bytes, LIMITS).is_ok());
        let error = pipeline().append(&bytes, LIMITS, &mut item).unwrap_err();
        assert!(matches!(error, ImageError::Undecodable(_)), "{error}");
    }
    assert_eq!(item, [7], "nothing was appended");
}

/// The decoder fills in what is missing, and the result would look valid.
#[test]
fn a_jpeg_that_is_cut_off_is_no_picture() {
    let (jpeg, pipeline, mut item) = (encoded(20, 10, ImageFormat::Jpeg), pipeline(), Vec::new());
    let scan = jpeg.windows(2).position(|marker| marker == [0xff, 0xda]).unwrap();
    for cut in scan..jpeg.len() {
        let error = pipeline.append(&jpeg[..cut], LIMITS, &mut item).unwrap_err();
        assert!(matches!(error, ImageError::Undecodable(_) | ImageError::BadHeader { .. }), "{cut} bytes: {error}");
    }
    assert!(item.is_empty());
    // Bytes after the end are ignored, and an end marker within a segment between scans is not one.
    pipeline.append(&[&jpeg[..], b"more"].concat(), LIMITS, &mut item).unwrap();
    let (whole, end) = (&jpeg[..jpeg.len() - 2], [0xff, 0xd9]);
    let comment = [&[0xff, 0xfe, 0, 4][..], &end].concat();
    let cut = [whole, &comment].concat();
    assert!(pipeline.append(&cut, LIMITS, &mut item).unwrap_err().to_string().contains("cut off"));
    pipeline.append(&[&cut[..], &end].concat(), LIMITS, &mut item).unwrap();
}

/// Sides as the header of a JPEG file states them.
fn claims_of_jpeg(jpeg: &[u8], width: u16, height: u16) -> Vec<u8> {
    let frame = jpeg.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
    let mut jpeg = jpeg.to_vec();
    jpeg[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    jpeg[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    jpeg
}

/// At the end marker the decoder goes on with zeros: a grey picture, which would look valid.
#[test]
fn a_jpeg_that_holds_fewer_pixels_than_its_header_says_is_no_picture() {
    let wide = ImageLimits { pixels_max: u64::MAX, ..LIMITS };
    let (pipeline, mut item) = (pipeline(), Vec::new());
    for jpeg in [encoded(8, 8, ImageFormat::Jpeg), encoded(200, 100, ImageFormat::Jpeg)] {
        let (width, height) = inspect(&jpeg, wide).map(|header| (header.width as u16, header.height as u16)).unwrap();
        pipeline.append(&jpeg, wide, &mut Vec::new()).unwrap();
        for (width, height) in [(width + 16, height), (width, height + 16), (4900, 4890)] {
            let error = pipeline.append(&claims_of_jpeg(&jpeg, width, height), wide, &mut item).unwrap_err();
            assert!(matches!(error, ImageError::Undecodable(_)), "{width} x {height}: {error}");
        }
        let scan = jpeg.windows(2).position(|marker| marker == [0xff, 0xda]).unwrap();
        let data = scan + 14..jpeg.len() - 4;
        for cut in data.step_by(7) {
            let ended = [&jpeg[..cut], &[0xff, 0xd9]].concat();
            assert!(pipeline.append(&ended, wide, &mut item).is_err(), "{cut} of {} bytes, and an end", jpeg.len());
        }
    }
    assert!(item.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn no_bytes_panic_and_every_item_is_whole(
        jpeg in any::<bool>(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<proptest::sample::Index>(), is_cut in any::<bool>(),
    ) {
        let mut bytes = encoded(20, 10, if jpeg { ImageFormat::Jpeg } else { ImageFormat::Png });
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let (header, pipeline, mut item) = (inspect(&bytes, LIMITS), pipeline(), Vec::new());
        match pipeline.append(&bytes, LIMITS, &mut item) {
            Ok(()) => {
                prop_assert!(header.is_ok(), "what is decoded was admitted");
                prop_assert_eq!(item.len(), pipeline.item_bytes());
            }
            Err(_) => prop_assert!(item.is_empty()),
        }
    }
}
