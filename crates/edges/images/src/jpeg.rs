//! JPEG files. The `image` crate lets its decoder invent missing pixels; here the same decoder is told to refuse such
//! files.

use image::{DynamicImage, GrayImage, RgbImage};
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::{Format, ImageError, SIDE_MAX};

/// The second byte of the marker that ends a file.
pub(crate) const END: u8 = 0xd9;

/// Bytes of ones before the end marker. The decoder is strict about codes, and at the end marker it goes on with zeros,
/// which often are a code. All ones are none (ITU-T T.81, annex C), so it stops at the first block that is not in the
/// file. The longest code, its value, and what the decoder reads ahead take 12.
const ONES: usize = 16;

/// Width and height by the header.
pub(crate) fn size(bytes: &[u8]) -> Result<(u32, u32), ImageError> {
    let mut decoder = decoder(bytes);
    decoder.decode_headers().map_err(|error| bad_header(&error))?;
    dimensions(&decoder)
}

/// A file with ones before its end marker.
pub(crate) fn with_ones(file: &[u8]) -> Vec<u8> {
    let data = file.strip_suffix(&[0xff, END]).unwrap_or(file);
    [data, &[0xff, 0].repeat(ONES), &[0xff, END]].concat()
}

/// The pixels. The caller has held [`size`] against its limits.
pub(crate) fn decode(file: &[u8]) -> Result<DynamicImage, ImageError> {
    let undecodable = |error: DecodeErrors| ImageError::Undecodable(error.to_string());
    let mut decoder = decoder(file);
    decoder.decode_headers().map_err(|error| bad_header(&error))?;
    let (width, height) = dimensions(&decoder)?;
    let is_grey = matches!(decoder.input_colorspace(), Some(ColorSpace::Luma));
    let colours = if is_grey { ColorSpace::Luma } else { ColorSpace::RGB };
    decoder.set_options(decoder.options().jpeg_set_out_colorspace(colours));
    let pixels = decoder.decode().map_err(undecodable)?;
    let image = if is_grey {
        GrayImage::from_raw(width, height, pixels).map(DynamicImage::ImageLuma8)
    } else {
        RgbImage::from_raw(width, height, pixels).map(DynamicImage::ImageRgb8)
    };
    image.ok_or_else(|| ImageError::Undecodable("it has fewer pixels than its header says".to_owned()))
}

fn decoder(bytes: &[u8]) -> JpegDecoder<ZCursor<&[u8]>> {
    let side_max = SIDE_MAX as usize;
    let options = DecoderOptions::default().set_strict_mode(true).set_max_width(side_max).set_max_height(side_max);
    JpegDecoder::new_with_options(ZCursor::new(bytes), options)
}

fn dimensions(decoder: &JpegDecoder<ZCursor<&[u8]>>) -> Result<(u32, u32), ImageError> {
    let info = decoder.info().ok_or_else(|| bad_header(&"it says no size"))?;
    Ok((u32::from(info.width), u32::from(info.height)))
}

fn bad_header(reason: &impl ToString) -> ImageError {
    ImageError::BadHeader { format: Format::Jpeg.name(), reason: reason.to_string() }
}
