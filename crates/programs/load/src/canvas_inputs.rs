//! Pictures for the demo's pipeline, and the check of what it has found on them.

use std::sync::Arc;

use bytes::Bytes;
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder as _};
use symphony_executor::canvas::{self, Canvas};

use crate::inputs::{InputSet, OutputCheck, Sample};
use crate::target::{EncodedPictures, OutputTensor};

/// Canvases of digits that neither the detector nor the classifier has seen, one per request; each digit of an answer
/// is judged separately.
#[derive(Clone, Debug)]
pub struct CanvasInputs {
    canvases: Vec<Canvas>,
    /// As PNG files.
    encoded: Vec<Bytes>,
    input: Arc<str>,
}

impl CanvasInputs {
    /// Name of the pipeline's input.
    pub const INPUT: &'static str = "PICTURE";
    /// Name of the output with the score of each place.
    pub const SCORES: &'static str = "SCORES";
    /// Name of the output with the digits at those places whose scores are above [`SCORE_MIN`](Self::SCORE_MIN).
    pub const LABELS: &'static str = "LABEL";
    /// What the pipeline takes for digits.
    pub const SCORE_MIN: f32 = 0.5;

    /// As many canvases as the models were tried on, over and over.
    ///
    /// # Errors
    /// If one cannot be encoded.
    pub fn new() -> Result<Self, image::ImageError> {
        let canvases = canvas::canvases(canvas::CANVASES_WHEN_MADE);
        let encoded = canvases.iter().map(|canvas| png(&canvas.pixels)).collect::<Result<_, _>>()?;
        Ok(Self { canvases, encoded, input: Self::INPUT.into() })
    }

    fn index(&self, n: u64) -> usize {
        (n % self.canvases.len() as u64) as usize
    }
}

/// A canvas as a PNG file.
fn png(pixels: &[u8]) -> Result<Bytes, image::ImageError> {
    let (mut file, side) = (Vec::new(), canvas::SIDE as u32);
    PngEncoder::new(&mut file).write_image(pixels, side, side, ExtendedColorType::L8)?;
    Ok(file.into())
}

/// The elements of an output; none if there is no such output, or its bytes are no such elements.
fn elements<T, const SIZE: usize>(outputs: &[OutputTensor], name: &str, read: fn([u8; SIZE]) -> T) -> Option<Vec<T>> {
    let output = outputs.iter().find(|output| output.name == name)?;
    let (whole, rest) = output.data.as_chunks::<SIZE>();
    rest.is_empty().then(|| whole.iter().copied().map(read).collect())
}

impl InputSet for CanvasInputs {
    fn sample(&self, n: u64) -> Sample {
        let encoded = vec![self.encoded[self.index(n)].clone()];
        let pictures = Some(EncodedPictures { input: Arc::clone(&self.input), encoded });
        Sample { items: 1, inputs: Vec::new(), pictures }
    }

    fn check(&self, n: u64, outputs: &[OutputTensor]) -> OutputCheck {
        let scores = elements::<_, 4>(outputs, Self::SCORES, f32::from_le_bytes);
        let labels = elements::<_, 8>(outputs, Self::LABELS, i64::from_le_bytes);
        let (Some(scores), Some(labels)) = (scores, labels) else { return OutputCheck::Foreign };
        let found: Vec<_> = (0..scores.len()).filter(|&place| scores[place] > Self::SCORE_MIN).collect();
        if scores.len() != canvas::PLACES || found.len() != labels.len() {
            return OutputCheck::Foreign;
        }
        let canvas = &self.canvases[self.index(n)];
        let right = found.iter().zip(&labels).filter(|&(&place, &label)| canvas.shows(place, label)).count();
        // A digit found at an empty place is wrong, as is one that is not found.
        let of = (0..canvas::PLACES).filter(|place| canvas.digits[*place].is_some() || found.contains(place)).count();
        // At most as many as there are places.
        OutputCheck::Parts { right: right as u32, of: of as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(scores: &[f32], labels: &[i64]) -> [OutputTensor; 2] {
        let output = |name: &str, data: Vec<u8>| OutputTensor { name: name.into(), data: data.into() };
        [
            output("SCORES", scores.iter().flat_map(|score| score.to_le_bytes()).collect()),
            output("LABEL", labels.iter().flat_map(|label| label.to_le_bytes()).collect()),
        ]
    }

    #[test]
    fn canvases_are_pictures_and_their_digits_are_judged_one_by_one() {
        let inputs = CanvasInputs::new().unwrap();
        let pictures = inputs.sample(1).pictures.unwrap();
        let decoded = image::load_from_memory(&pictures.encoded[0]).unwrap().into_luma8();
        assert_eq!((&*pictures.input, decoded.as_raw()), ("PICTURE", &inputs.canvases[1].pixels));
        let documented = image::load_from_memory(include_bytes!("../../../../deploy/models/detect/canvas.png"));
        assert_eq!(decoded, documented.unwrap().into_luma8());

        // Canvas 1 shows 0 8 5 4 at its first places, and 5 at the sixth.
        let mut scores = [0.0; canvas::PLACES];
        for place in [0, 1, 2, 3, 5] {
            scores[place] = 0.9;
        }
        let judged = |scores: &[f32], labels: &[i64]| inputs.check(1, &answer(scores, labels));
        assert_eq!(judged(&scores, &[0, 8, 5, 4, 5]), OutputCheck::Parts { right: 5, of: 5 });
        assert_eq!(judged(&scores, &[0, 8, 5, 9, 5]), OutputCheck::Parts { right: 4, of: 5 });
        scores[0] = 0.4;
        assert_eq!(judged(&scores, &[8, 5, 4, 5]), OutputCheck::Parts { right: 4, of: 5 }, "one is not found");
        scores[15] = 0.6;
        assert_eq!(judged(&scores, &[8, 5, 4, 5, 1]), OutputCheck::Parts { right: 4, of: 6 }, "one is not there");
        assert_eq!(judged(&scores, &[8, 5, 4, 5]), OutputCheck::Foreign, "a label is missing");
        assert_eq!(judged(&scores[1..], &[8, 5, 4, 5, 1]), OutputCheck::Foreign, "a place is missing");
        assert_eq!(inputs.check(1, &answer(&scores, &[])[..1]), OutputCheck::Foreign);
    }
}
