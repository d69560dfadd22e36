//! What a picture may cost.

/// Bytes of one encoded picture: a photograph of 24 megapixels has some 10 MB as JPEG.
pub const IMAGE_BYTES_MAX: usize = 16 << 20;
/// Pixels of one picture, unless a deployment says otherwise: the largest photographs of common cameras. Decoding takes up to 16
/// bytes for each, so 384 MB for the largest.
pub const PIXELS_MAX_DEFAULT: u64 = 24_000_000;
/// Bytes that a decoder may hold for each pixel: four channels of 16 bits, twice.
const DECODER_BYTES_PER_PIXEL: u64 = 16;
/// What a decoder holds besides, whatever the picture's size: a colour profile, tables.
const DECODER_BYTES: u64 = 4 << 20;

/// What a picture may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// Bytes of one encoded picture.
    pub bytes_max: usize,
    /// Pixels of one picture, by what its header says: a file of a few kilobytes can claim gigabytes.
    pub pixels_max: u64,
}

impl Default for ImageLimits {
    fn default() -> Self {
        Self { bytes_max: IMAGE_BYTES_MAX, pixels_max: PIXELS_MAX_DEFAULT }
    }
}

impl ImageLimits {
    /// What the decoders are told: they stop by themselves where the header has lied.
    pub(crate) fn of_decoder(self) -> image::Limits {
        let side_max = u32::try_from(self.pixels_max).unwrap_or(u32::MAX);
        let mut limits = image::Limits::no_limits();
        limits.max_image_width = Some(side_max);
        limits.max_image_height = Some(side_max);
        limits.max_alloc = Some(self.pixels_max.saturating_mul(DECODER_BYTES_PER_PIXEL).saturating_add(DECODER_BYTES));
        limits
    }
}
