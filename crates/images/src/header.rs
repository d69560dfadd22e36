//! What can be known of a picture without decoding it.

use std::io::Cursor;

use image::ImageDecoder;
use image::codecs::jpeg::JpegDecoder;
use image::codecs::png::PngDecoder;

use crate::{ImageError, ImageLimits};

/// Bytes in which most JPEG files have their header.
const JPEG_HEADER_BYTES: usize = 128 << 10;

/// Bytes of the marker that begins a JPEG file.
const JPEG_START_BYTES: usize = 2;

/// Segments before a JPEG file's picture: a colour profile or a description of the largest size takes 256.
const JPEG_SEGMENTS_MAX: usize = 1024;

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
    /// A JPEG file whose pixels come in many passes: it may take a hundred times as long as one of the same size that does not.
    pub progressive: bool,
}

/// A picture of so many pixels is decoded within some ten milliseconds.
const QUICK_PIXELS_MAX: u64 = 1 << 20;

impl Header {
    /// Whether it is certain that the picture is decoded within some ten milliseconds of a thread.
    #[must_use]
    pub const fn is_quick(&self) -> bool {
        !self.progressive && self.width as u64 * self.height as u64 <= QUICK_PIXELS_MAX
    }
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
    let ((width, height), progressive) = match format {
        Format::Png => {
            let size = png_size(bytes).ok_or_else(|| {
                let reason = "it does not begin with a chunk IHDR".to_owned();
                ImageError::BadHeader { format: format.name(), reason }
            })?;
            (size, false)
        }
        Format::Jpeg => {
            let (progressive, _) = walk_segments(bytes)?;
            // The decoder makes a copy of all it is given, and the header is mostly at the beginning. It may be longer than
            // that: thumbnails and colour profiles come first.
            let begin = &bytes[..bytes.len().min(JPEG_HEADER_BYTES)];
            let decoder = jpeg(begin);
            let decoder = if begin.len() < bytes.len() { decoder.or_else(|_| jpeg(bytes)) } else { decoder };
            (decoder?.dimensions(), progressive)
        }
    };
    limits.allow(width, height)?;
    Ok(Header { format, width, height, progressive })
}

/// A decoder of a picture whose header is within the limits.
pub(crate) fn open(bytes: &[u8], limits: ImageLimits) -> Result<Box<dyn ImageDecoder + '_>, ImageError> {
    let Header { format, .. } = inspect(bytes, limits)?;
    let bad = |error| bad_header(format, &error);
    let mut decoder: Box<dyn ImageDecoder> = match format {
        Format::Jpeg => {
            let (_, scan) = walk_segments(bytes)?;
            if !has_end(scan) {
                return Err(ImageError::Undecodable("it is cut off: its end marker is missing".to_owned()));
            }
            Box::new(jpeg(bytes)?)
        }
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

/// Walks the segments before a JPEG file's picture, by their lengths alone. The decoder goes through all that it has seen whenever
/// it meets the next one: of a hundred thousand small ones it would make minutes. Whether the picture is progressive, and what follows the
/// marker of its first scan.
fn walk_segments(bytes: &[u8]) -> Result<(bool, &[u8]), ImageError> {
    const START_OF_SCAN: u8 = 0xda;
    /// Begin a frame of each progressive kind: Huffman or arithmetic, differential or not.
    const PROGRESSIVE: [u8; 4] = [0xc2, 0xc6, 0xca, 0xce];
    let bad = |reason: &str| ImageError::BadHeader { format: Format::Jpeg.name(), reason: reason.to_owned() };
    let (mut rest, mut progressive) = (&bytes[JPEG_START_BYTES..], false);
    for _ in 0..JPEG_SEGMENTS_MAX {
        let Some(marker) = rest.strip_prefix(&[0xff]) else {
            return Err(bad("a marker was expected between its segments"));
        };
        // Markers may be filled up.
        let marker = &marker[marker.iter().take_while(|&&byte| byte == 0xff).count()..];
        match marker {
            [START_OF_SCAN, scan @ ..] => return Ok((progressive, scan)),
            [kind, high, low, ..] => {
                progressive |= PROGRESSIVE.contains(kind);
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                rest = marker
                    .get(1 + length..)
                    .filter(|_| length >= 2)
                    .ok_or_else(|| bad("a segment ends beyond its end"))?;
            }
            _ => return Err(bad("it ends before its picture begins")),
        }
    }
    Err(bad(&format!("more than {JPEG_SEGMENTS_MAX} segments come before its picture")))
}

/// Whether the end of a JPEG file follows, from behind the marker of its first scan. Where it is missing the decoder makes pixels up.
fn has_end(scan: &[u8]) -> bool {
    const END: u8 = 0xd9;
    let mut segment = Some(scan);
    while let Some([high, low, ..]) = segment {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(mut data) = segment.and_then(|segment| segment.get(length..)) else { return false };
        segment = loop {
            let Some(at) = data.iter().position(|&byte| byte == 0xff) else { return false };
            data = &data[at + 1..];
            match data {
                [END, ..] => return true,
                // A byte of 0xff in the data, a restart, a filler: the scan goes on.
                [0 | 0xd0..=0xd7, rest @ ..] => data = rest,
                [0xff, ..] => {}
                [_, rest @ ..] => break Some(rest),
                [] => return false,
            }
        };
    }
    false
}

/// Width and height of a PNG file by its first chunk, which is always at the same place.
fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let after_name = bytes.get(Format::PNG_BEGIN.len() + size_of::<u32>()..)?.strip_prefix(b"IHDR")?;
    let (width, rest) = after_name.split_first_chunk()?;
    let (height, _) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*width), u32::from_be_bytes(*height)))
}
