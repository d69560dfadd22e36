//! What can be generated, by name, and the limits on shapes.

use crate::bert::Bert;
use crate::graph::OnnxModel;
use crate::mlp::Mlp;
use crate::mobilenet::MobileNet;
use crate::resnet::ResNet;

/// The largest value of any field of a shape. Sums and products of a few of them stay within a `u32`.
const FIELD_MAX: u32 = 1 << 14;
/// The most weights of a model. ONNX files end at 2 GiB; this leaves room for the rest of the file.
const PARAMETERS_MAX: u64 = 500_000_000;
/// An image is halved five times before it is pooled.
const IMAGE_MIN: u32 = 32;

/// An architecture with its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// A wide perceptron.
    Mlp(Mlp),
    /// A residual network, ResNet-50 by default.
    ResNet(ResNet),
    /// A network of depthwise separable convolutions.
    MobileNet(MobileNet),
    /// A transformer encoder.
    Bert(Bert),
}

/// A shape of which no model can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{model}: {problem}")]
pub struct ShapeError {
    /// The architecture's name.
    pub model: &'static str,
    /// What is wrong, and what was expected.
    pub problem: String,
}

impl Architecture {
    /// Every architecture in its default shape.
    #[must_use]
    pub fn all() -> [Self; 4] {
        [
            Self::Mlp(Mlp::default()),
            Self::ResNet(ResNet::default()),
            Self::MobileNet(MobileNet::default()),
            Self::Bert(Bert::default()),
        ]
    }

    /// The architecture of this name, in its default shape: `mlp`, `resnet50`, `mobilenet` or `bert`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|architecture| architecture.name() == name)
    }

    /// The name that [`by_name`](Self::by_name) takes.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mlp(_) => "mlp",
            Self::ResNet(_) => "resnet50",
            Self::MobileNet(_) => "mobilenet",
            Self::Bert(_) => "bert",
        }
    }

    /// Makes the model. Equal shapes and seeds give equal bytes, on every machine.
    ///
    /// # Errors
    /// If a field of the shape is zero or too large, fields contradict each other, or the file would exceed ONNX's
    /// limit of 2 GiB.
    pub fn build(&self, seed: u64) -> Result<OnnxModel, ShapeError> {
        self.check()?;
        let description = format!("{self:?} with random weights of seed {seed}");
        Ok(match self {
            Self::Mlp(shape) => shape.build(seed, None, description),
            Self::ResNet(shape) => shape.build(seed, description),
            Self::MobileNet(shape) => shape.build(seed, description),
            Self::Bert(shape) => shape.build(seed, description),
        })
    }

    /// A perceptron as [`build`](Self::build) makes it of `seed`, but for its last layer, whose weights are of the seed
    /// `head`: those of one shape but for `classes`, and of one `seed`, share all layers before.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn mlp_head(shape: Mlp, seed: u64, head: u64) -> Result<OnnxModel, ShapeError> {
        Self::Mlp(shape).check()?;
        let description = format!("{shape:?} with random weights of seed {seed}, and {head} in the last layer");
        Ok(shape.build(seed, Some(head), description))
    }

    fn check(&self) -> Result<(), ShapeError> {
        let refuse = |problem: String| Err(ShapeError { model: self.name(), problem });
        let (fields, image): (Vec<(&str, u32)>, Option<u32>) = match *self {
            Self::Mlp(Mlp { width_in, width, hidden, classes }) => {
                (vec![("width_in", width_in), ("width", width), ("hidden", hidden), ("classes", classes)], None)
            }
            Self::ResNet(ResNet { image, width, blocks, classes }) => {
                let mut fields = vec![("width", width), ("classes", classes)];
                fields.extend(blocks.map(|blocks| ("blocks", blocks)));
                (fields, Some(image))
            }
            Self::MobileNet(MobileNet { image, width, classes }) => {
                (vec![("width", width), ("classes", classes)], Some(image))
            }
            Self::Bert(Bert { sequence, depth, width, heads, classes }) => {
                if heads > 0 && width % heads != 0 {
                    return refuse(format!("width {width} is no multiple of heads {heads}"));
                }
                let sizes = [("sequence", sequence), ("depth", depth), ("width", width), ("heads", heads)];
                (sizes.into_iter().chain([("classes", classes)]).collect(), None)
            }
        };
        if let Some((name, value)) = fields.into_iter().find(|(_, value)| !(1..=FIELD_MAX).contains(value)) {
            return refuse(format!("{name} is {value}; expected 1 to {FIELD_MAX}"));
        }
        if let Some(image) = image.filter(|image| !(IMAGE_MIN..=FIELD_MAX).contains(image)) {
            return refuse(format!("image is {image}; expected {IMAGE_MIN} to {FIELD_MAX}"));
        }
        let parameters = self.parameters_about();
        if parameters > PARAMETERS_MAX {
            return refuse(format!("about {parameters} weights; at most {PARAMETERS_MAX} fit into an ONNX file"));
        }
        Ok(())
    }

    /// The weights of the large layers, never fewer than there are: what bounds the file before it is made.
    fn parameters_about(&self) -> u64 {
        match *self {
            Self::Mlp(Mlp { width_in, width, hidden, classes }) => {
                let [width_in, width, hidden, classes] = [width_in, width, hidden, classes].map(u64::from);
                (width_in + 1) * width + (hidden - 1) * (width + 1) * width + (width + 1) * classes
            }
            // A block of stage s has 1·4 + 9 + 4·1 squares of the middle width, and the first one a wider entrance
            // and a shortcut: at most 4 + 9 + 4 + 8 of them.
            Self::ResNet(ResNet { width, blocks, classes, .. }) => {
                let (width, classes) = (u64::from(width), u64::from(classes));
                let squares: u64 =
                    (0..).zip(blocks).map(|(stage, blocks)| (25 * u64::from(blocks)) << (2 * stage)).sum();
                (squares + 1000) * width * width + 32 * (width + 1) * classes
            }
            Self::MobileNet(MobileNet { width, classes, .. }) => {
                let (width, classes) = (u64::from(width), u64::from(classes));
                4000 * width * width + 4000 * width + 32 * (width + 1) * classes
            }
            Self::Bert(Bert { depth, width, classes, .. }) => {
                let [depth, width, classes] = [depth, width, classes].map(u64::from);
                depth * (12 * width * width + 20 * width) + (width + 1) * classes + 2 * width
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shapes small enough to be made many times.
    fn small() -> [Architecture; 4] {
        [
            Architecture::Mlp(Mlp { width_in: 8, width: 16, hidden: 3, classes: 4 }),
            Architecture::ResNet(ResNet { image: 32, width: 4, blocks: [1, 2, 1, 1], classes: 5 }),
            Architecture::MobileNet(MobileNet { image: 32, width: 4, classes: 5 }),
            Architecture::Bert(Bert { sequence: 6, depth: 2, width: 8, heads: 2, classes: 3 }),
        ]
    }

    #[test]
    fn equal_seeds_give_equal_bytes_and_others_do_not() {
        for architecture in small() {
            let model = architecture.build(7).unwrap();
            assert_eq!(model, architecture.build(7).unwrap());
            assert_ne!(model.bytes(), architecture.build(8).unwrap().bytes());
        }
    }

    #[test]
    fn published_models_have_their_published_number_of_weights() {
        // ResNet-50 has 25.6 M parameters of which 53 k belong to the batch normalisations, half of them folded into
        // biases here; MobileNet 4.2 M; BERT base 110 M, of which 86 M are in the encoder.
        for (name, millions) in [("resnet50", 25.53), ("mobilenet", 4.22)] {
            let parameters = Architecture::by_name(name).unwrap().build(1).unwrap().parameters() as f64 / 1e6;
            assert!((parameters - millions).abs() < 0.01, "{name}: {parameters} M");
        }
        let bert = Architecture::Bert(Bert { depth: 1, ..Bert::default() }).build(1).unwrap();
        assert!((bert.parameters() as f64 / 1e6 - 7.08).abs() < 0.02, "{}", bert.parameters());
    }

    #[test]
    fn the_estimate_never_falls_short() {
        for architecture in small().into_iter().chain([Architecture::Mlp(Mlp::default())]) {
            let parameters = architecture.build(1).unwrap().parameters();
            assert!(architecture.parameters_about() >= parameters, "{architecture:?}: {parameters}");
        }
    }

    #[test]
    fn impossible_shapes_are_refused_with_the_field() {
        for (architecture, words) in [
            (Architecture::Mlp(Mlp { width: 0, ..Mlp::default() }), "mlp: width is 0; expected 1 to 16384"),
            (Architecture::Mlp(Mlp { hidden: 16384, ..Mlp::default() }), "at most 500000000 fit into an ONNX file"),
            (Architecture::ResNet(ResNet { image: 16, ..ResNet::default() }), "image is 16; expected 32"),
            (Architecture::ResNet(ResNet { width: 4096, ..ResNet::default() }), "fit into an ONNX file"),
            (Architecture::Bert(Bert { heads: 7, ..Bert::default() }), "bert: width 768 is no multiple of heads 7"),
        ] {
            let text = architecture.build(1).unwrap_err().to_string();
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn names_find_their_architecture() {
        for architecture in Architecture::all() {
            assert_eq!(Architecture::by_name(architecture.name()), Some(architecture));
        }
        assert_eq!(Architecture::by_name("vgg"), None);
    }
}
