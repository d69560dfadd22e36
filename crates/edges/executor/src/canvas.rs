//! The demo's detector, and canvases of digits that neither it nor the classifier has seen.
//!
//! `deploy/models/detect/PROVENANCE.md` says where it comes from, and what a canvas is.

use crate::digits::{self, Digit};

/// The detector, an ONNX file: `canvas`, FP32, 48 × 48 numbers from 0 to 1 → `boxes`, FP32, left, top, right and bottom
/// in pixels for each of [`PLACES`], and `scores`, FP32, how likely there is a digit.
pub const DETECTOR: &[u8] = include_bytes!("../../../../deploy/models/detect/detect.onnx");
/// What frontends do for its clients: pictures in; as `symphony model load --transforms` reads it.
pub const TRANSFORMS: &str = include_str!("../../../../deploy/models/detect/transforms.toml");
/// Pixels along a side of a canvas.
pub const SIDE: usize = 48;
/// Cells in which there may be a digit, row by row.
pub const PLACES: usize = CELLS * CELLS;
/// Canvases on which the models were tried when the detector was made.
pub const CANVASES_WHEN_MADE: u64 = 300;
/// Digits on them, all of which were found, and nothing else.
pub const DIGITS_WHEN_MADE: usize = 1181;
/// Of these the classifier was right.
pub const RIGHT_WHEN_MADE: usize = 1162;

/// Cells in a row, and rows.
const CELLS: usize = 4;
/// Pixels along a side of a cell.
const CELL: usize = SIDE / CELLS;
/// Pixels along a side of a digit.
const DIGIT: usize = 8;

/// A canvas and what it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canvas {
    /// Grey values, black 0 to white 255, row by row, [`SIDE`] of them in each of [`SIDE`] rows.
    pub pixels: Vec<u8>,
    /// The digit at each place, where there is one.
    pub digits: [Option<u8>; PLACES],
}

/// Canvases 0 to `count` − 1 of the embedded held-out digits.
#[must_use]
pub fn canvases(count: u64) -> Vec<Canvas> {
    let held_out = digits::test_set();
    (0..count).map(|number| Canvas::of(number, &held_out)).collect()
}

impl Canvas {
    /// The canvas of that number, as `train.py` has it.
    fn of(number: u64, held_out: &[Digit<'_>]) -> Self {
        let mut numbers = SplitMix64(number);
        let mut canvas = Self { pixels: vec![0; SIDE * SIDE], digits: [None; PLACES] };
        for place in 0..PLACES {
            let (left, top) = (place % CELLS * CELL, place / CELLS * CELL);
            match numbers.below(8) {
                0 | 1 => {
                    let digit = held_out[numbers.below(held_out.len())];
                    let x = left + numbers.below(CELL - DIGIT + 1);
                    let y = top + numbers.below(CELL - DIGIT + 1);
                    for (row, pixels) in digit.pixels.chunks_exact(DIGIT).enumerate() {
                        for (column, &pixel) in pixels.iter().enumerate() {
                            canvas.pixels[(y + row) * SIDE + x + column] = grey(pixel);
                        }
                    }
                    canvas.digits[place] = Some(digit.label);
                }
                2 => {
                    let (width, height) = (2 + numbers.below(4), 2 + numbers.below(4));
                    let x = left + numbers.below(CELL + 1 - width);
                    let y = top + numbers.below(CELL + 1 - height);
                    // Below 17.
                    let value = grey((4 + numbers.below(13)) as u8);
                    for row in y..y + height {
                        canvas.pixels[row * SIDE + x..row * SIDE + x + width].fill(value);
                    }
                }
                _ => {}
            }
        }
        canvas
    }

    /// Appends it as the detector takes it: FP32, little-endian.
    pub fn append_input(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.pixels.iter().flat_map(|&pixel| (f32::from(pixel) / 255.0).to_le_bytes()));
    }

    /// Whether the cell of a place has a digit that looks like this label.
    #[must_use]
    pub fn shows(&self, place: usize, label: i64) -> bool {
        self.digits.get(place).copied().flatten().is_some_and(|digit| i64::from(digit) == label)
    }
}

/// A grey value of a digit, 0 to 16, as one of a picture.
fn grey(pixel: u8) -> u8 {
    // At most 255.
    ((u32::from(pixel.min(16)) * 255 + 8) / 16) as u8
}

/// Steele, Lea and Flood's generator: a few lines in any language, so that everyone has the same canvases.
struct SplitMix64(u64);

impl SplitMix64 {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.draw() % count as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canvases_are_those_of_the_script() {
        let made = canvases(3);
        let sums: Vec<u32> =
            made.iter().map(|canvas| canvas.pixels.iter().map(|&pixel| u32::from(pixel)).sum()).collect();
        assert_eq!(sums, [6755, 26_094, 25_195]);
        let shown = |canvas: &Canvas| {
            canvas
                .digits
                .iter()
                .copied()
                .enumerate()
                .filter_map(|(place, digit)| Some((place, digit?)))
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(&made[0]), [(9, 3)]);
        assert_eq!(shown(&made[1]), [(0, 0), (1, 8), (2, 5), (3, 4), (5, 5)]);
        assert!(made[1].shows(1, 8) && !made[1].shows(1, 5) && !made[1].shows(4, 0) && !made[1].shows(16, 0));
    }

    #[test]
    fn they_show_as_many_digits_as_were_found() {
        let digits =
            canvases(CANVASES_WHEN_MADE).iter().map(|canvas| canvas.digits.iter().flatten().count()).sum::<usize>();
        assert_eq!(digits, DIGITS_WHEN_MADE);
    }
}
