//! The declared steps, one after the other.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::DynamicImage;
use symphony_types::{Colour, Filter, Fit, ImageInput, TensorSpec};

use crate::header::decode;
use crate::tensor_writer::TensorWriter;
use crate::{ImageError, ImageLimits};

/// Pictures to items of one input.
#[derive(Clone, Debug)]
pub struct Pipeline {
    width: u32,
    height: u32,
    options: ResizeOptions,
    crop: Option<f64>,
    writer: TensorWriter,
    item_bytes: usize,
}

/// Pixels of 8 bits, one after the other.
struct Pixels {
    width: u32,
    height: u32,
    bytes: Vec<u8>,
}

impl Pipeline {
    /// The pipeline of that specification for that input.
    ///
    /// # Errors
    /// If the two do not fit: [`ImageInput::check`].
    pub fn new(spec: &ImageInput, input: &TensorSpec) -> Result<Self, String> {
        spec.check(input)?;
        let algorithm = match spec.filter {
            Filter::Nearest => ResizeAlg::Nearest,
            Filter::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
            Filter::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
            Filter::Lanczos => ResizeAlg::Convolution(FilterType::Lanczos3),
        };
        Ok(Self {
            width: spec.width,
            height: spec.height,
            options: ResizeOptions::new().resize_alg(algorithm),
            crop: (spec.fit == Fit::Crop).then(|| spec.crop_share.get()),
            writer: TensorWriter::new(spec, input.data_type),
            item_bytes: input.item_bytes(),
        })
    }

    /// Bytes that one picture becomes.
    #[must_use]
    pub const fn item_bytes(&self) -> usize {
        self.item_bytes
    }

    /// Appends the item that a picture becomes. Takes milliseconds: not for threads that serve connections. Panics on
    /// no bytes.
    ///
    /// # Errors
    /// Why there is none; then nothing is appended.
    pub fn append(&self, picture: &[u8], limits: ImageLimits, item: &mut Vec<u8>) -> Result<(), ImageError> {
        let pixels = self.resize(self.pixels(picture, limits)?)?;
        self.writer.append(&pixels, item);
        Ok(())
    }

    fn pixels(&self, picture: &[u8], limits: ImageLimits) -> Result<Pixels, ImageError> {
        let decoded = decode(picture, limits)?;
        let (width, height) = (decoded.width(), decoded.height());
        let grey = self.writer.channels() == Colour::Grey.channels() as usize;
        let bytes = match decoded {
            DynamicImage::ImageLuma8(grey_already) if grey => grey_already.into_raw(),
            other => {
                let rgb = other.into_rgb8().into_raw();
                if grey { rgb.chunks_exact(3).map(luma).collect() } else { rgb }
            }
        };
        Ok(Pixels { width, height, bytes })
    }

    /// Appends an item for each box: left, top, right and bottom in shares of what `seen_by` sees of the picture, which
    /// is decoded once. A box is cut off where the picture ends, and has a pixel at least. Takes milliseconds: not for
    /// threads that serve connections. Panics on no bytes.
    ///
    /// # Errors
    /// Why there is none; then nothing is appended.
    pub fn append_boxes(
        &self,
        seen_by: &Self,
        boxes: &[[f64; 4]],
        picture: &[u8],
        limits: ImageLimits,
        items: &mut Vec<u8>,
    ) -> Result<(), ImageError> {
        let pixels = self.pixels(picture, limits)?;
        let (width, height) = (f64::from(pixels.width), f64::from(pixels.height));
        let [left, top, wide, high] = seen_by.part(width, height).unwrap_or([0.0, 0.0, width, height]);
        let mut made = Vec::with_capacity(boxes.len() * self.item_bytes);
        for &[begin, upper, end, lower] in boxes {
            let (x, region_width) = along(left, wide, begin, end, width);
            let (y, region_height) = along(top, high, upper, lower, height);
            let kept = self.part(region_width, region_height).unwrap_or([0.0, 0.0, region_width, region_height]);
            // Sums are rounded, and what is beyond the picture would be refused.
            let (x, y) = (x + kept[0], y + kept[1]);
            let part = [x, y, kept[2].min(width - x), kept[3].min(height - y)];
            self.writer.append(&self.resample(&pixels, Some(part))?, &mut made);
        }
        items.append(&mut made);
        Ok(())
    }

    fn resize(&self, pixels: Pixels) -> Result<Vec<u8>, ImageError> {
        let part = self.part(f64::from(pixels.width), f64::from(pixels.height));
        if (pixels.width, pixels.height) == (self.width, self.height) && part.is_none() {
            return Ok(pixels.bytes);
        }
        self.resample(&pixels, part)
    }

    /// This part of a picture, or all of it, at the size of the input.
    fn resample(&self, pixels: &Pixels, part: Option<[f64; 4]>) -> Result<Vec<u8>, ImageError> {
        let failed = |error: &dyn std::fmt::Display| ImageError::Undecodable(format!("it cannot be resized: {error}"));
        let pixel = if self.writer.channels() == 1 { PixelType::U8 } else { PixelType::U8x3 };
        let source =
            ImageRef::new(pixels.width, pixels.height, &pixels.bytes, pixel).map_err(|error| failed(&error))?;
        let mut target = Image::new(self.width, self.height, pixel);
        let options =
            part.map_or(self.options, |[left, top, width, height]| self.options.crop(left, top, width, height));
        Resizer::new().resize(&source, &mut target, &options).map_err(|error| failed(&error))?;
        Ok(target.into_vec())
    }

    /// The part of a picture of this size that is kept: left, top, width, height. None for the whole picture.
    fn part(&self, width: f64, height: f64) -> Option<[f64; 4]> {
        let share = self.crop?;
        let shape = f64::from(self.width) / f64::from(self.height);
        let (wide, high) = if width / height > shape { (height * shape, height) } else { (width, width / shape) };
        let (wide, high) = ((wide * share).min(width), (high * share).min(height));
        let whole = wide >= width && high >= height;
        (!whole).then(|| [(width - wide) / 2.0, (height - high) / 2.0, wide, high])
    }
}

/// The offset and length of a box along one side of a picture of this many pixels: from `begin` to `end` in shares of a
/// view that begins at `from` and is `long`. Within the picture, and at least a pixel long.
fn along(from: f64, long: f64, begin: f64, end: f64, pixels: f64) -> (f64, f64) {
    // What is no number is the view's edge.
    let at = |share: f64, edge: f64| (from + long * if share.is_nan() { edge } else { share }).clamp(0.0, pixels);
    let first = at(begin, 0.0).min(pixels - 1.0);
    let length = (at(end, 1.0) - first).max(1.0);
    (first, length.min(pixels - first))
}

/// How light a pixel is, by the weights of ITU-R BT.601, which most training pipelines use; in 65536ths, so that white
/// stays white.
fn luma(rgb: &[u8]) -> u8 {
    const WEIGHTS: [u32; 3] = [19_595, 38_470, 7_471];
    const HALF: u32 = 1 << 15;
    let sum: u32 = rgb.iter().zip(WEIGHTS).map(|(&value, weight)| u32::from(value) * weight).sum();
    ((sum + HALF) >> 16) as u8
}

#[cfg(test)]
mod tests {
    use super::along;

    #[test]
    fn a_box_stays_within_the_picture_and_has_a_pixel_at_least() {
        // A view of the middle 60 of 100 pixels.
        let of = |begin, end| along(20.0, 60.0, begin, end, 100.0);
        assert_eq!(of(0.0, 1.0), (20.0, 60.0));
        assert_eq!(of(0.5, 0.75), (50.0, 15.0));
        assert_eq!(of(-1.0, 2.0), (0.0, 100.0), "cut off");
        assert_eq!(of(0.5, 0.5), (50.0, 1.0));
        assert_eq!(of(0.5, 0.25), (50.0, 1.0), "turned around");
        assert_eq!(of(9.0, 10.0), (99.0, 1.0), "outside");
        assert_eq!(of(f64::NAN, f64::NAN), (20.0, 60.0));
        assert_eq!(of(f64::NEG_INFINITY, f64::INFINITY), (0.0, 100.0));
        assert_eq!(along(0.0, 1.0, 0.3, 0.4, 1.0), (0.0, 1.0), "a picture of one pixel");
    }
}
