//! What can be known of a picture without decoding it.

use std::io::Cursor;

use image::ImageDecoder;
use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;

use crate::{ImageError, ImageLimits};

/// Bytes in which most pictures have their header.
const HEADER_BYTES: usize = 128 << 10;

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

/// Reads the header and holds it against the limits; decodes no pixel. Panics on no bytes.
///
/// # Errors
/// Why they are no picture that is taken.
pub fn inspect(bytes: &[u8], limits: ImageLimits) -> Result<Header, ImageError> {
    // JPEG's decoder makes a copy of all it is given; the header is at the beginning.
    let begin = &bytes[..bytes.len().min(HEADER_BYTES)];
    let opened = if bytes.len() <= limits.bytes_max { open(begin, limits) } else { open(bytes, limits) };
    let (format, decoder) = match opened {
        // It may be longer than that: thumbnails and colour profiles come first.
        Err(ImageError::BadHeader { .. }) if begin.len() < bytes.len() => open(bytes, limits)?,
        opened => opened?,
    };
    let (width, height) = decoder.dimensions();
    Ok(Header { format, width, height })
}

/// A decoder of a picture whose header is within the limits.
pub(crate) fn open(bytes: &[u8], limits: ImageLimits) -> Result<(Format, Box<dyn ImageDecoder + '_>), ImageError> {
    if bytes.len() > limits.bytes_max {
        return Err(ImageError::TooLarge { bytes: bytes.len(), bytes_max: limits.bytes_max });
    }
    let format = Format::of(bytes).ok_or(ImageError::UnknownFormat)?;
    let bad = |error: image::ImageError| ImageError::BadHeader { format: format.name(), reason: error.to_string() };
    let within = |(width, height): (u32, u32)| {
        let pixels = u64::from(width) * u64::from(height);
        let refused = ImageError::TooManyPixels { width, height, pixels_max: limits.pixels_max };
        if (1..=limits.pixels_max).contains(&pixels) { Ok(()) } else { Err(refused) }
    };
    let of_decoder = limits.of_decoder();
    let mut decoder: Box<dyn ImageDecoder> = match format {
        Format::Jpeg => Box::new(JpegDecoder::new(Cursor::new(bytes)).map_err(bad)?),
        Format::Png => {
            // The decoder reserves memory by what is claimed; it would refuse too, in words that name no limit.
            png_size(bytes).map_or(Ok(()), within)?;
            let mut memory_only = image::Limits::no_limits();
            memory_only.max_alloc = of_decoder.max_alloc;
            Box::new(PngDecoder::with_limits(Cursor::new(bytes), memory_only).map_err(bad)?)
        }
    };
    within(decoder.dimensions())?;
    decoder.set_limits(of_decoder).map_err(bad)?;
    Ok((format, decoder))
}

/// Width and height of a PNG file by its first chunk, which is always at the same place.
fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let after_name = bytes.get(Format::PNG_BEGIN.len() + size_of::<u32>()..)?.strip_prefix(b"IHDR")?;
    let (width, rest) = after_name.split_first_chunk()?;
    let (height, _) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*width), u32::from_be_bytes(*height)))
}
