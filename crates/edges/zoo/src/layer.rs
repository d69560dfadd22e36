//! One layer, in numbers of the precision that is asked for.

use crate::graph::{FLOAT, FLOAT16, Graph, OnnxModel, int};

/// What the numbers of a model are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// FP16: input, weights and output.
    Half,
    /// FP32.
    Single,
}

/// `input` of four numbers for each item → `output` of two. Equal seeds give equal weights, rounded where they are half
/// as precise.
#[must_use]
pub fn layer(precision: Precision, seed: u64) -> OnnxModel {
    const WIDTHS: (u32, u32) = (4, 2);
    let element = match precision {
        Precision::Half => FLOAT16,
        Precision::Single => FLOAT,
    };
    let mut g = Graph::new("layer", seed);
    let input = g.input_of("input", element, &[WIDTHS.0]);
    let weights = g.weights(&[WIDTHS.0, WIDTHS.1], 1.0);
    let weights = g.node("Cast", &[&weights], vec![int("to", element.into())]);
    let output = g.node("MatMul", &[&input, &weights], vec![]);
    g.finish_of(&output, "output", element, &[WIDTHS.1], format!("{precision:?}"))
}
