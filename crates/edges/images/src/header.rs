//! Inspects a picture without decoding it.

use std::io::Cursor;

use image::codecs::png::PngDecoder;
use image::{DynamicImage, ImageDecoder};

use crate::{Format, ImageError, ImageLimits, jpeg};

/// Bytes of the marker that begins a JPEG file.
const JPEG_START_BYTES: usize = 2;

/// Segments before a JPEG file's picture: a colour profile or a description of the largest size takes 256.
const JPEG_SEGMENTS_MAX: usize = 1024;

/// The second byte of a JPEG file's marker before a scan.
const START_OF_SCAN: u8 = 0xda;

/// The contents of a picture's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// By its first bytes, whatever its name.
    pub format: Format,
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// A JPEG file whose pixels come in many passes: it may take a hundred times as long as a baseline file of the
    /// same size.
    pub progressive: bool,
}

/// Pictures up to this many pixels are decoded within some ten milliseconds.
const QUICK_PIXELS_MAX: u64 = 1 << 20;

impl Header {
    /// Whether it is certain that the picture is decoded within some ten milliseconds of a thread.
    #[must_use]
    pub const fn is_quick(&self) -> bool {
        !self.progressive && self.width as u64 * self.height as u64 <= QUICK_PIXELS_MAX
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
            (jpeg::size(bytes)?, progressive)
        }
    };
    limits.allow(width, height)?;
    Ok(Header { format, width, height, progressive })
}

/// The pixels of a picture whose header is within the limits.
pub(crate) fn decode(bytes: &[u8], limits: ImageLimits) -> Result<DynamicImage, ImageError> {
    let Header { format, .. } = inspect(bytes, limits)?;
    match format {
        Format::Jpeg => {
            let (progressive, scan) = walk_segments(bytes)?;
            let (scans, after_end) = walk_scans(scan)
                .ok_or_else(|| ImageError::Undecodable("it is cut off: its end marker is missing".to_owned()))?;
            let file = &bytes[..bytes.len() - after_end.len()];
            // Of a file that is not progressive and has several scans the decoder reads more than there is, even if it
            // is whole.
            if progressive || scans == 1 { jpeg::decode(&jpeg::with_ones(file)) } else { jpeg::decode(file) }
        }
        Format::Png => {
            let bad = |error| bad_header(format, &error);
            let mut decoder = PngDecoder::with_limits(Cursor::new(bytes), limits.of_png()).map_err(bad)?;
            let (width, height) = decoder.dimensions();
            limits.allow(width, height)?;
            decoder.set_limits(limits.of_decoder()).map_err(bad)?;
            DynamicImage::from_decoder(decoder).map_err(|error| ImageError::Undecodable(error.to_string()))
        }
    }
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

/// Walks the segments before a JPEG file's picture, by their lengths alone. The decoder goes through all earlier
/// segments at each one, which takes minutes for a hundred thousand small ones. Returns whether the picture is
/// progressive, and what follows the marker of its first scan.
fn walk_segments(bytes: &[u8]) -> Result<(bool, &[u8]), ImageError> {
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

/// Walks a JPEG file from behind the marker of its first scan: how many scans there are, and what follows its end
/// marker. None where there is no end.
fn walk_scans(scan: &[u8]) -> Option<(usize, &[u8])> {
    let mut scans = 1;
    let mut segment = scan;
    loop {
        let [high, low, ..] = segment else { return None };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let mut data = segment.get(length..)?;
        segment = loop {
            let at = data.iter().position(|&byte| byte == 0xff)?;
            data = &data[at + 1..];
            match data {
                [jpeg::END, rest @ ..] => return Some((scans, rest)),
                // A byte of 0xff in the data, a restart, a filler: the scan goes on.
                [0 | 0xd0..=0xd7, rest @ ..] => data = rest,
                [0xff, ..] => {}
                [marker, rest @ ..] => {
                    scans += usize::from(*marker == START_OF_SCAN);
                    break rest;
                }
                [] => return None,
            }
        };
    }
}

/// Width and height of a PNG file by its first chunk, which is always at the same place.
fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let after_name = bytes.get(Format::PNG_BEGIN.len() + size_of::<u32>()..)?.strip_prefix(b"IHDR")?;
    let (width, rest) = after_name.split_first_chunk()?;
    let (height, _) = rest.split_first_chunk()?;
    Some((u32::from_be_bytes(*width), u32::from_be_bytes(*height)))
}
