//! Models that load and then fail, as what they are given decides, or mix the rows of a batch.

use crate::graph::{BOOL, FLOAT, Graph, INT64, OnnxModel, graph, int, ints, scalar_info, value_info};

/// So many copies of each item that no machine can address them: 2⁴⁸ bytes for the smallest batch.
const COPIES: i64 = 1 << 44;
/// Bytes of one item of the input.
const ITEM_BYTES: u64 = 16;
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

/// A model that takes `input` `FP32[4]` and gives its square roots as `output`, and needs twice this many bytes for
/// each item of a batch on the way. It does not fail where these are available.
#[must_use]
pub fn hungry(bytes_per_item: u64) -> OnnxModel {
    let mut g = Graph::new("hungry", 1);
    let input = g.input("input", &[4]);
    let copies = i64::try_from(bytes_per_item / ITEM_BYTES).unwrap_or(i64::MAX).max(1);
    let shape = g.integers(&[3], &[copies, 1, 1]);
    let copied = g.node("Expand", &[&input, &shape], vec![]);
    let roots = g.node("Sqrt", &[&copied], vec![]);
    let output = g.node("ReduceMax", &[&roots], vec![ints("axes", &[0]), int("keepdims", 0)]);
    g.finish(&output, "output", &[4], format!("hungry, {bytes_per_item} bytes"))
}

/// A model that copies `input` `FP32[4]` to `output`, and for each item of a batch uses as many MB as the largest
/// number in the batch, and one more: what it needs depends on what it is asked.
#[must_use]
pub fn hungry_as_asked() -> OnnxModel {
    const COPIES_PER_MB: i64 = (1 << 20) / ITEM_BYTES.cast_signed();
    let mut g = Graph::new("hungry-as-asked", 1);
    let input = g.input("input", &[4]);
    let (one, per_mb) = (g.integers(&[1], &[1]), g.integers(&[1], &[COPIES_PER_MB]));
    let largest = g.node("ReduceMax", &[&input], vec![int("keepdims", 0)]);
    let megabytes = g.node("Cast", &[&largest], vec![int("to", INT64.into())]);
    let megabytes = g.node("Reshape", &[&megabytes, &one], vec![]);
    let mb = g.node("Add", &[&megabytes, &one], vec![]);
    let copies = g.node("Mul", &[&mb, &per_mb], vec![]);
    let shape = g.node("Concat", &[&copies, &one, &one], vec![int("axis", 0)]);
    let copied = g.node("Expand", &[&input, &shape], vec![]);
    let output = g.node("ReduceMax", &[&copied], vec![ints("axes", &[0]), int("keepdims", 0)]);
    g.finish(&output, "output", &[4], "hungry as asked".to_owned())
}

/// A model that takes `input` `FP32[8]` and gives `logits` `FP32[4]`; those of one `seed` share all layers but the
/// last, which is of the seed `head`. It subtracts the largest numbers of the batch from each row, so that what a row
/// is answered depends on its neighbours.
#[must_use]
pub fn mingled_head(seed: u64, head: u64) -> OnnxModel {
    const WIDTH: u32 = 64;
    let mut g = Graph::new("mingled", seed);
    let input = g.input("input", &[8]);
    let largest = g.node("ReduceMax", &[&input], vec![ints("axes", &[0]), int("keepdims", 1)]);
    let apart = g.node("Sub", &[&input, &largest], vec![]);
    let sum = g.gemm(&apart, 8, WIDTH, 1.0);
    let x = g.relu(&sum);
    g.reseed(head);
    let logits = g.gemm(&x, WIDTH, 4, 1.0);
    g.finish(&logits, "logits", &[4], format!("mingled rows, head {head}"))
}

/// A model that takes `input` `FP32[4]` and gives it back as `output`, if no number in the batch is above `threshold`.
/// Otherwise it never ends: a loop without a count, whose condition stays as it is.
#[must_use]
pub fn endless_above(threshold: f32) -> OnnxModel {
    let mut g = Graph::new("endless", 1);
    let input = g.input("input", &[4]);
    let threshold_value = g.floats(&[], &[threshold]);
    let largest = g.node("ReduceMax", &[&input], vec![int("keepdims", 0)]);
    let goes_on = g.node("Greater", &[&largest, &threshold_value], vec![]);
    let steps = [("Identity", "goes_on", "goes_on_still"), ("Identity", "value", "same_value")];
    let inputs = vec![scalar_info("step", INT64), scalar_info("goes_on", BOOL), value_info("value", FLOAT, &[4])];
    let outputs = vec![scalar_info("goes_on_still", BOOL), value_info("same_value", FLOAT, &[4])];
    let body = graph("body", inputs, &steps, outputs);
    let output = g.node("Loop", &[&Graph::nothing(), &goes_on, &input], vec![body]);
    g.finish(&output, "output", &[4], format!("endless above {threshold}"))
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 5] =
        [Self::IndexOutOfRange, Self::ReshapeMismatch, Self::OutputTooLong, Self::NotANumber, Self::OutOfMemory];

    /// A model that loads, and fails in this way when it runs.
    #[must_use]
    pub fn build(self) -> OnnxModel {
        let mut g = Graph::new("fault", 1);
        let input = g.input("input", &[4]);
        let (output, item_shape) = match self {
            Self::IndexOutOfRange => {
                let table = g.weights(&[TABLE_ROWS, 2], 1.0);
                let first = g.integers(&[], &[0]);
                let first = g.node("Gather", &[&input, &first], vec![int("axis", 1)]);
                let row = g.node("Cast", &[&first], vec![int("to", INT64.into())]);
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
