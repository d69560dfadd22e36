//! Models that load and then fail: what they are given decides.

use crate::graph::{Graph, OnnxModel, int, ints};

/// ONNX's number of 64-bit integers, for `Cast`.
const INT64: i64 = 7;
/// Copies of each item that no machine has the addresses for: 2⁴⁸ bytes for the smallest batch.
const COPIES: i64 = 1 << 44;
/// Rows of the table of [`Fault::IndexOutOfRange`].
const TABLE_ROWS: u32 = 8;

/// A model that takes `input` `FP32[4]` and gives `output`, until its fault shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `FP32[2]`: the row of a table of eight whose number is the item's first. Fails beyond the table.
    IndexOutOfRange,
    /// `FP32[4]`, through a shape of three columns. Fails unless the batch is a multiple of three.
    ReshapeMismatch,
    /// `FP32[4]`, but twice as many items as were given.
    OutputTooLong,
    /// `FP32[4]`: square roots, which are not numbers for what is negative. It does not fail: that is an answer.
    NotANumber,
    /// `FP32[4]`, by way of a tensor that fits no memory. Fails always.
    OutOfMemory,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::IndexOutOfRange, Self::ReshapeMismatch, Self::OutputTooLong, Self::NotANumber, Self::OutOfMemory];

    /// The model.
    #[must_use]
    pub fn build(self) -> OnnxModel {
        let mut g = Graph::new("fault", 1);
        let input = g.input("input", &[4]);
        let (output, item_shape) = match self {
            Self::IndexOutOfRange => {
                let table = g.weights(&[TABLE_ROWS, 2], 1.0);
                let first = g.integers(&[], &[0]);
                let first = g.node("Gather", &[&input, &first], vec![int("axis", 1)]);
                let row = g.node("Cast", &[&first], vec![int("to", INT64)]);
                (g.node("Gather", &[&table, &row], vec![int("axis", 0)]), vec![2])
            }
            Self::ReshapeMismatch => {
                let (three, four) = (g.integers(&[2], &[-1, 3]), g.integers(&[2], &[-1, 4]));
                let threes = g.node("Reshape", &[&input, &three], vec![]);
                (g.node("Reshape", &[&threes, &four], vec![]), vec![4])
            }
            Self::OutputTooLong => (g.node("Concat", &[&input, &input], vec![int("axis", 0)]), vec![4]),
            Self::NotANumber => (g.node("Sqrt", &[&input], vec![]), vec![4]),
            Self::OutOfMemory => {
                let shape = g.integers(&[3], &[COPIES, 1, 1]);
                let copies = g.node("Expand", &[&input, &shape], vec![]);
                (g.node("ReduceMax", &[&copies], vec![ints("axes", &[0]), int("keepdims", 0)]), vec![4])
            }
        };
        g.finish(&output, "output", &item_shape, format!("{self:?}"))
    }
}
