//! A perceptron with wide hidden layers.

use crate::graph::{Graph, OnnxModel, Value};

/// `input` `FP32[width_in]` → hidden layers with ReLU → `logits` `FP32[classes]`.
///
/// With hidden layers so wide that the weights exceed the caches, the time of a batch is mostly that of reading the
/// weights once: a CPU then batches as well as a GPU does, which no convolutional network shows on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mlp {
    /// Numbers per item.
    pub width_in: u32,
    /// Width of each hidden layer: sets the bytes of weights, hence β.
    pub width: u32,
    /// Hidden layers.
    pub hidden: u32,
    /// Numbers in the answer.
    pub classes: u32,
}

impl Default for Mlp {
    fn default() -> Self {
        Self { width_in: 512, width: 2048, hidden: 2, classes: 10 }
    }
}

impl Mlp {
    /// With weights of `seed`, but for those of the last layer, which are of `head` if that is given.
    pub(crate) fn build(&self, seed: u64, head: Option<u64>, description: String) -> OnnxModel {
        let mut g = Graph::new("mlp", seed);
        let mut x: Value = g.input("input", &[self.width_in]);
        let mut width_in = self.width_in;
        for _ in 0..self.hidden {
            let sum = g.gemm(&x, width_in, self.width, 2_f32.sqrt());
            x = g.relu(&sum);
            width_in = self.width;
        }
        if let Some(head) = head {
            g.reseed(head);
        }
        let logits = g.gemm(&x, width_in, self.classes, 1.0);
        g.finish(&logits, "logits", &[self.classes], description)
    }
}
