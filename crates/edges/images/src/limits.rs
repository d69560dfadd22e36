//! Limits for the cost of a picture.

use crate::ImageError;

/// Bytes of one encoded picture: a photograph of 24 megapixels has some 10 MB as JPEG.
pub const IMAGE_BYTES_MAX: usize = 16 << 20;
/// Default limit for the pixels of one picture: the largest photographs of common cameras. Decoding takes up to 16
/// bytes per pixel, so 384 MB for the largest.
pub const PIXELS_MAX_DEFAULT: u64 = 24_000_000;
/// Bytes that a decoder may hold for each pixel: four channels of 16 bits, twice.
const DECODER_BYTES_PER_PIXEL: u64 = 16;
/// Pixels along one side: the most that JPEG can express. A row then takes half a megabyte at most.
pub const SIDE_MAX: u32 = 65_535;
/// Memory limit of PNG's decoder besides the pixels: two rows, texts, and a colour profile, which a few bytes can
/// inflate to any size.
const PNG_BYTES_MAX: u64 = 16 << 20;

/// What a picture may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// Bytes of one encoded picture.
    pub bytes_max: usize,
    /// Pixels of one picture according to its header: a file of a few kilobytes can claim gigabytes.
    pub pixels_max: u64,
}

impl Default for ImageLimits {
    fn default() -> Self {
        Self { bytes_max: IMAGE_BYTES_MAX, pixels_max: PIXELS_MAX_DEFAULT }
    }
}

impl ImageLimits {
    /// Whether a picture of that size is decoded.
    pub(crate) fn allow(self, width: u32, height: u32) -> Result<(), ImageError> {
        let sides = 1..=SIDE_MAX;
        let pixels = u64::from(width) * u64::from(height);
        if sides.contains(&width) && sides.contains(&height) && pixels <= self.pixels_max {
            return Ok(());
        }
        Err(ImageError::TooManyPixels { width, height, pixels_max: self.pixels_max })
    }

    /// The limits for decoders: they stop by themselves if the header has lied.
    pub(crate) fn of_decoder(self) -> image::Limits {
        let mut limits = image::Limits::no_limits();
        (limits.max_image_width, limits.max_image_height) = (Some(SIDE_MAX), Some(SIDE_MAX));
        limits.max_alloc = Some(self.pixels_max.saturating_mul(DECODER_BYTES_PER_PIXEL));
        limits
    }

    /// The limits for PNG's decoder, which counts everything but the pixels.
    pub(crate) fn of_png(self) -> image::Limits {
        let mut limits = self.of_decoder();
        limits.max_alloc = Some(PNG_BYTES_MAX);
        limits
    }
}
