//! ResNet with bottleneck blocks (He et al., "Deep residual learning for image recognition", table 1).

use crate::graph::{Conv, Graph, OnnxModel, Value, int, ints};

/// A block's output is this many times wider than its middle.
const EXPANSION: u32 = 4;

/// `image` `FP32[3, image, image]` → `logits` `FP32[classes]`. The default is ResNet-50.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResNet {
    /// Height and width of the image.
    pub image: u32,
    /// Channels of the stem and of the first stage's middle.
    pub width: u32,
    /// Blocks in each of the four stages.
    pub blocks: [u32; 4],
    /// Numbers in the answer.
    pub classes: u32,
}

impl Default for ResNet {
    fn default() -> Self {
        Self { image: 224, width: 64, blocks: [3, 4, 6, 3], classes: 1000 }
    }
}

impl ResNet {
    pub(crate) fn build(&self, seed: u64, description: String) -> OnnxModel {
        let mut g = Graph::new("resnet", seed);
        let relu_gain = 2_f32.sqrt();
        let image = g.input("image", &[3, self.image, self.image]);
        let stem = Conv { channels_in: 3, channels_out: self.width, kernel: 7, stride: 2, groups: 1, gain: relu_gain };
        let x = g.conv(&image, stem);
        let x = g.relu(&x);
        let pool =
            vec![ints("kernel_shape", &[3, 3]), ints("strides", &[2, 2]), ints("pads", &[1; 4]), int("ceil_mode", 0)];
        let mut x = g.node("MaxPool", &[&x], pool);

        let mut channels = self.width;
        for (stage, &blocks) in (0_u32..).zip(&self.blocks) {
            let middle = self.width << stage;
            for block in 0..blocks {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                x = self.block(&mut g, &x, channels, middle, stride);
                channels = middle * EXPANSION;
            }
        }
        let logits = g.pool_and_classify(&x, channels, self.classes);
        g.finish(&logits, "logits", &[self.classes], description)
    }

    fn block(&self, g: &mut Graph, x: &Value, channels_in: u32, middle: u32, stride: u32) -> Value {
        let channels_out = middle * EXPANSION;
        let relu_gain = 2_f32.sqrt();
        // Without normalisation each sum would double the spread; as many blocks as there are share one doubling.
        let total: u32 = self.blocks.iter().sum();
        let last_gain = relu_gain / (total.max(1) as f32).sqrt();

        let reduce = Conv { channels_in, channels_out: middle, kernel: 1, stride: 1, groups: 1, gain: relu_gain };
        let spatial = Conv { channels_in: middle, channels_out: middle, kernel: 3, stride, groups: 1, gain: relu_gain };
        let expand = Conv { channels_in: middle, channels_out, kernel: 1, stride: 1, groups: 1, gain: last_gain };
        let mut branch = g.conv(x, reduce);
        branch = g.relu(&branch);
        branch = g.conv(&branch, spatial);
        branch = g.relu(&branch);
        branch = g.conv(&branch, expand);

        let shortcut = if stride != 1 || channels_in != channels_out {
            g.conv(x, Conv { channels_in, channels_out, kernel: 1, stride, groups: 1, gain: 1.0 })
        } else {
            x.clone()
        };
        let sum = g.node("Add", &[&branch, &shortcut], vec![]);
        g.relu(&sum)
    }
}
