//! From pixels of 8 bits to elements, in their type and order.

use half::f16;
use symphony_types::{Colour, DataType, ImageInput, Layout};

/// The elements that each value of each channel becomes.
#[derive(Clone, Debug)]
pub(crate) struct TensorWriter {
    layout: Layout,
    /// Which channel of a decoded pixel comes when.
    order: &'static [usize],
    /// Bytes of one element.
    width: usize,
    /// By channel, in the tensor's order, and value: the element, little-endian, in its first `width` bytes.
    table: Vec<[[u8; 4]; 256]>,
}

impl TensorWriter {
    pub(crate) fn new(spec: &ImageInput, data_type: DataType) -> Self {
        let order: &[usize] = match spec.colour {
            Colour::Rgb => &[0, 1, 2],
            Colour::Bgr => &[2, 1, 0],
            Colour::Grey => &[0],
        };
        let of_channel = |values: &[symphony_types::Finite], channel: usize, unsaid: f64| {
            values.get(channel).or(values.first()).map_or(unsaid, |value| value.get())
        };
        let channel = |channel: usize| {
            let mean = of_channel(&spec.mean, channel, 0.0);
            let deviation = of_channel(&spec.deviation, channel, 1.0);
            std::array::from_fn(|value| element((value as f64 * spec.scale.get() - mean) / deviation, data_type))
        };
        Self {
            layout: spec.layout,
            order,
            width: data_type.size_bytes(),
            table: (0..order.len()).map(channel).collect(),
        }
    }

    /// Channels of a decoded pixel.
    pub(crate) const fn channels(&self) -> usize {
        self.order.len()
    }

    /// Appends the elements of a picture, given pixel by pixel.
    pub(crate) fn append(&self, pixels: &[u8], bytes: &mut Vec<u8>) {
        let channels = self.order.len();
        bytes.reserve(pixels.len() * self.width);
        let element = |channel: usize, pixel: &[u8]| {
            let value = pixel[self.order[channel]];
            &self.table[channel][usize::from(value)][..self.width]
        };
        match self.layout {
            Layout::Nchw => (0..channels).for_each(|channel| {
                pixels.chunks_exact(channels).for_each(|pixel| bytes.extend_from_slice(element(channel, pixel)));
            }),
            Layout::Nhwc => pixels.chunks_exact(channels).for_each(|pixel| {
                (0..channels).for_each(|channel| bytes.extend_from_slice(element(channel, pixel)));
            }),
        }
    }
}

/// A value as an element, little-endian. Whole numbers are rounded, and stay within what their type holds.
fn element(value: f64, data_type: DataType) -> [u8; 4] {
    let mut bytes = [0; 4];
    match data_type {
        DataType::Fp16 => bytes[..2].copy_from_slice(&f16::from_f64(value).to_le_bytes()),
        // The cast keeps to the type's bounds.
        DataType::Uint8 => bytes[0] = value.round() as u8,
        _ => bytes.copy_from_slice(&(value as f32).to_le_bytes()),
    }
    bytes
}
