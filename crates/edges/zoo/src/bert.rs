//! The encoder of BERT (Devlin et al.), after its embedding layer.

use crate::graph::{Graph, OnnxModel, Value, float, int, ints};

const LAYER_NORM_EPSILON: f32 = 1e-12;

/// `embeddings` `FP32[sequence, width]` → encoder blocks → mean over the sequence → `logits` `FP32[classes]`.
///
/// The input is embedded tokens and not token numbers, so that any input is a valid one. The default is BERT base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bert {
    /// Tokens per item.
    pub sequence: u32,
    /// Encoder blocks.
    pub depth: u32,
    /// Numbers per token; a multiple of `heads`.
    pub width: u32,
    /// Attention heads.
    pub heads: u32,
    /// Numbers in the answer.
    pub classes: u32,
}

impl Default for Bert {
    fn default() -> Self {
        Self { sequence: 128, depth: 12, width: 768, heads: 12, classes: 2 }
    }
}

impl Bert {
    pub(crate) fn build(&self, seed: u64, description: String) -> OnnxModel {
        let mut g = Graph::new("bert", seed);
        let mut x = g.input("embeddings", &[self.sequence, self.width]);
        x = self.layer_norm(&mut g, &x);
        for _ in 0..self.depth {
            let attended = self.attention(&mut g, &x);
            x = g.node("Add", &[&x, &attended], vec![]);
            x = self.layer_norm(&mut g, &x);
            let forward = self.feed_forward(&mut g, &x);
            x = g.node("Add", &[&x, &forward], vec![]);
            x = self.layer_norm(&mut g, &x);
        }
        let pooled = g.node("ReduceMean", &[&x], vec![ints("axes", &[1]), int("keepdims", 0)]);
        let logits = g.gemm(&pooled, self.width, self.classes, 1.0);
        g.finish(&logits, "logits", &[self.classes], description)
    }

    fn attention(&self, g: &mut Graph, x: &Value) -> Value {
        let head_width = self.width / self.heads;
        // [N, sequence, width] → [N, heads, sequence, head], and keys as [N, heads, head, sequence].
        let mut project = |permutation: &[u32]| {
            let projected = g.dense(x, self.width, self.width, 1.0);
            let split = g.reshape(&projected, &[self.sequence, self.heads, head_width]);
            g.node("Transpose", &[&split], vec![ints("perm", permutation)])
        };
        let query = project(&[0, 2, 1, 3]);
        let key = project(&[0, 2, 3, 1]);
        let value = project(&[0, 2, 1, 3]);

        let scores = g.node("MatMul", &[&query, &key], vec![]);
        let scale = g.floats(&[], &[1.0 / (head_width as f32).sqrt()]);
        let scaled = g.node("Mul", &[&scores, &scale], vec![]);
        let weights = g.node("Softmax", &[&scaled], vec![int("axis", -1)]);
        let mixed = g.node("MatMul", &[&weights, &value], vec![]);
        let merged = g.node("Transpose", &[&mixed], vec![ints("perm", &[0, 2, 1, 3])]);
        let joined = g.reshape(&merged, &[self.sequence, self.width]);
        g.dense(&joined, self.width, self.width, 1.0)
    }

    /// Two layers with the exact GELU, x · ½ (1 + erf(x / √2)), between them.
    fn feed_forward(&self, g: &mut Graph, x: &Value) -> Value {
        let inner = self.width * 4;
        let x = g.dense(x, self.width, inner, 1.0);
        let [root, one, half] = [std::f32::consts::FRAC_1_SQRT_2, 1.0, 0.5].map(|number| g.floats(&[], &[number]));
        let scaled = g.node("Mul", &[&x, &root], vec![]);
        let erf = g.node("Erf", &[&scaled], vec![]);
        let shifted = g.node("Add", &[&erf, &one], vec![]);
        let product = g.node("Mul", &[&x, &shifted], vec![]);
        let gelu = g.node("Mul", &[&product, &half], vec![]);
        g.dense(&gelu, inner, self.width, 1.0)
    }

    fn layer_norm(&self, g: &mut Graph, x: &Value) -> Value {
        let scale = g.floats(&[self.width], &vec![1.0; self.width as usize]);
        let shift = g.floats(&[self.width], &vec![0.0; self.width as usize]);
        let attributes = vec![int("axis", -1), float("epsilon", LAYER_NORM_EPSILON)];
        g.node("LayerNormalization", &[x, &scale, &shift], attributes)
    }
}
