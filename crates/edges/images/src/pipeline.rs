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

    fn resize(&self, Pixels { width, height, bytes }: Pixels) -> Result<Vec<u8>, ImageError> {
        let part = self.part(width, height);
        if (width, height) == (self.width, self.height) && part.is_none() {
            return Ok(bytes);
        }
        let failed = |error: &dyn std::fmt::Display| ImageError::Undecodable(format!("it cannot be resized: {error}"));
        let pixel = if self.writer.channels() == 1 { PixelType::U8 } else { PixelType::U8x3 };
        let source = ImageRef::new(width, height, &bytes, pixel).map_err(|error| failed(&error))?;
        let mut target = Image::new(self.width, self.height, pixel);
        let options =
            part.map_or(self.options, |[left, top, width, height]| self.options.crop(left, top, width, height));
        Resizer::new().resize(&source, &mut target, &options).map_err(|error| failed(&error))?;
        Ok(target.into_vec())
    }

    /// The part of a picture of this size that is kept: left, top, width, height. None for all of it.
    fn part(&self, width: u32, height: u32) -> Option<[f64; 4]> {
        let share = self.crop?;
        let (width, height) = (f64::from(width), f64::from(height));
        let shape = f64::from(self.width) / f64::from(self.height);
        let (wide, high) = if width / height > shape { (height * shape, height) } else { (width, width / shape) };
        let (wide, high) = ((wide * share).min(width), (high * share).min(height));
        let whole = wide >= width && high >= height;
        (!whole).then(|| [(width - wide) / 2.0, (height - high) / 2.0, wide, high])
    }
}

/// How light a pixel is, by the weights of ITU-R BT.601, which most training pipelines use; in 65536ths, so that white
/// stays white.
fn luma(rgb: &[u8]) -> u8 {
    const WEIGHTS: [u32; 3] = [19_595, 38_470, 7_471];
    const HALF: u32 = 1 << 15;
    let sum: u32 = rgb.iter().zip(WEIGHTS).map(|(&value, weight)| u32::from(value) * weight).sum();
    ((sum + HALF) >> 16) as u8
}
