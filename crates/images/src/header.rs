//! What can be known of a picture without decoding it.

use std::io::Cursor;

use image::ImageDecoder;
use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;

use crate::{ImageError, ImageLimits};

/// Bytes in which most JPEG files have their header.
const JPEG_HEADER_BYTES: usize = 128 << 10;

/// The formats that are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JPEG, baseline and progressive.
    Jpeg,
    /// PNG; of an animation the picture that stands for it.
    Png,
}

/// What a picture says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// By its first bytes, whatever it is called.
    pub format: Format,
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Format {
    const JPEG_BEGIN: &[u8] = &[0xff, 0xd8, 0xff];
    const PNG_BEGIN: &[u8] = &[0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
        }
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        [(Self::JPEG_BEGIN, Self::Jpeg), (Self::PNG_BEGIN, Self::Png)]
            .into_iter()
            .find_map(|(begin, format)| bytes.starts_with(begin).then_some(format))
    }
}

/// Reads the header and holds it against the limits; decodes no pixel, and inflates nothing. Panics on no bytes.
///
/// # Errors
/// Why they are no picture that is taken.
pub fn inspect(bytes: &[u8], limits: ImageLimits) -> Result<Header, ImageError> {
    let format = format_of(bytes, limits)?;
    let (width, height) = match format {
        Format::Png => png_size(bytes).ok_or_else(|| {
            let reason = "it does not begin with a chunk IHDR".to_owned();
            ImageError::BadHeader { format: format.name(), reason }
        })?,
        Format::Jpeg => {
            // The decoder makes a copy of all it is given, and the header is mostly at the beginning. It may be longer than
            // that: thumbnails and colour profiles come first.
            let begin = &bytes[..bytes.len().min(JPEG_HEADER_BYTES)];
            let decoder = jpeg(begin);
            let decoder = if begin.len() < bytes.len() { decoder.or_else(|_| jpeg(bytes)) } else { decoder };
            decoder?.dimensions()
        }
    };
    limits.allow(width, height)?;
    Ok(Header { format, width, height })
}

/// A decoder of a picture whose header is within the limits.
pub(crate) fn open(bytes: &[u8], limits: ImageLimits) -> Result<Box<dyn ImageDecoder + '_>, ImageError> {
    let Header { format, .. } = inspect(bytes, limits)?;
    let bad = |error| bad_header(format, &error);
    let mut decoder: Box<dyn ImageDecoder> = match format {
        Format::Jpeg => Box::new(jpeg(bytes)?),
        Format::Png => Box::new(PngDecoder::with_limits(Cursor::new(bytes), limits.of_png()).map_err(bad)?),
    };
    let (width, height) = decoder.dimensions();
    limits.allow(width, height)?;
    decoder.set_limits(limits.of_decoder()).map_err(bad)?;
    Ok(decoder)
}

fn jpeg(bytes: &[u8]) -> Result<JpegDecoder<Cursor<&[u8]>>, ImageError> {
    JpegDecoder::new(Cursor::new(bytes)).map_err(|error| bad_header(Format::Jpeg, &error))
}

fn bad_header(format: Format, error: &image::ImageError) -> ImageError {
    ImageError::BadHeader { format: format.name(), reason: error.to_string() }
}

fn format_of(bytes: &[u8], limits: ImageLimits) -> Result<Format, ImageError> {
    if bytes.len() > limits.bytes_max {
        return Err(ImageError::TooLarge { bytes: bytes.len(), bytes_max: limits.bytes_max });
    }
    Format::of(bytes).ok_or(ImageError::UnknownFormat)
}

/// Width and height of a PNG file by its first chunk, which is always at the same place.
fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let after_name = bytes.get(Format::PNG_BEGIN.len() + size_of::<u32>()..)?.strip_prefix(b"IHDR")?;
    let (width, rest) = after_name.split_first_chunk()?;
    let (height, _) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*width), u32::from_be_bytes(*height)))
}
