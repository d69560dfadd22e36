//! MobileNet, of depthwise separable convolutions (Howard et al., "MobileNets", table 1).

use crate::graph::{Conv, Graph, OnnxModel};

/// Each separable convolution: its output's channels in multiples of the stem's, and its stride.
const LAYERS: [(u32, u32); 13] =
    [(2, 1), (4, 2), (4, 1), (8, 2), (8, 1), (16, 2), (16, 1), (16, 1), (16, 1), (16, 1), (16, 1), (32, 2), (32, 1)];

/// `image` `FP32[3, image, image]` → `logits` `FP32[classes]`. The default is MobileNet 1.0 at 224.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MobileNet {
    /// Height and width of the image.
    pub image: u32,
    /// Channels of the stem.
    pub width: u32,
    /// Numbers in the answer.
    pub classes: u32,
}

impl Default for MobileNet {
    fn default() -> Self {
        Self { image: 224, width: 32, classes: 1000 }
    }
}

impl MobileNet {
    pub(crate) fn build(&self, seed: u64, description: String) -> OnnxModel {
        let mut g = Graph::new("mobilenet", seed);
        let gain = 2_f32.sqrt();
        let image = g.input("image", &[3, self.image, self.image]);
        let stem = Conv { channels_in: 3, channels_out: self.width, kernel: 3, stride: 2, groups: 1, gain };
        let mut x = g.conv(&image, stem);
        x = g.relu(&x);
        let mut channels = self.width;
        for (multiple, stride) in LAYERS {
            let depthwise =
                Conv { channels_in: channels, channels_out: channels, kernel: 3, stride, groups: channels, gain };
            let channels_out = self.width * multiple;
            let pointwise = Conv { channels_in: channels, channels_out, kernel: 1, stride: 1, groups: 1, gain };
            for conv in [depthwise, pointwise] {
                x = g.conv(&x, conv);
                x = g.relu(&x);
            }
            channels = channels_out;
        }
        let logits = g.pool_and_classify(&x, channels, self.classes);
        g.finish(&logits, "logits", &[self.classes], description)
    }
}
