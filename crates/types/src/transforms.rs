//! Transforms that frontends apply for a model's clients: pictures become an input, and output elements get labels.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use rkyv::{Archive, Deserialize, Serialize};

use crate::{DataType, Signature, TensorSpec};

/// The largest width and height of a model's input picture, in pixels.
pub const IMAGE_SIDE_MAX: u32 = 4096;
/// The longest label in bytes.
pub const LABEL_BYTES_MAX: usize = 256;
/// The largest total size of a model's labels in bytes: about twenty thousand words, and far below the limit of a
/// command.
pub const LABELS_BYTES_MAX: usize = 256 << 10;

/// A finite number that is compared by its bits, so that equal specifications have equal bytes everywhere.
#[derive(Archive, Serialize, Deserialize, serde::Deserialize, Clone, Copy, PartialEq, Eq, Hash)]
#[rkyv(derive(Clone, Copy, Debug))]
#[serde(try_from = "f64")]
pub struct Finite(u64);

/// A number that is infinite or NaN.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is not a finite number")]
pub struct NotFinite(f64);

impl Finite {
    /// One.
    pub const ONE: Self = Self(1.0_f64.to_bits());

    /// The value.
    #[must_use]
    pub const fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl TryFrom<f64> for Finite {
    type Error = NotFinite;
    fn try_from(number: f64) -> Result<Self, NotFinite> {
        // −0 becomes +0, so that equal numbers have equal bits.
        if number.is_finite() { Ok(Self((number + 0.0).to_bits())) } else { Err(NotFinite(number)) }
    }
}

impl fmt::Debug for Finite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

/// How frontends transform a model's inputs and outputs; by default they do not.
#[derive(Archive, Serialize, Deserialize, serde::Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash)]
#[serde(deny_unknown_fields)]
pub struct Transforms {
    /// The input that takes encoded pictures.
    #[serde(default)]
    pub image: Option<ImageInput>,
    /// Labels of classification outputs: one per element of an item, in order.
    #[serde(default)]
    pub labels: BTreeMap<String, Vec<String>>,
}

/// How an encoded picture becomes one item of an input: it is decoded, cropped and resized, and each channel's value
/// `v` from 0 to 255 becomes `(v · scale − mean) / deviation`.
#[derive(Archive, Serialize, Deserialize, serde::Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(deny_unknown_fields)]
pub struct ImageInput {
    /// The name of the input, of type UINT8, FP16 or FP32. Clients send it encoded pictures as BYTES.
    pub input: String,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// The channels.
    #[serde(default)]
    pub colour: Colour,
    /// The order of the elements.
    #[serde(default)]
    pub layout: Layout,
    /// How pictures with another aspect ratio are fitted.
    #[serde(default)]
    pub fit: Fit,
    /// With [`Fit::Crop`]: the scale of the centred crop, as a share of the largest one with the right aspect ratio,
    /// above 0 and at most 1. Training that resizes the short side to 256 pixels and crops the middle 224 has 0.875.
    #[serde(default = "one")]
    pub crop_share: Finite,
    /// The interpolation filter.
    #[serde(default)]
    pub filter: Filter,
    /// The factor `scale`.
    #[serde(default = "one")]
    pub scale: Finite,
    /// The `mean` that is subtracted, for all channels or per channel.
    #[serde(default)]
    pub mean: Vec<Finite>,
    /// The `deviation` to divide by, for all channels or per channel.
    #[serde(default)]
    pub deviation: Vec<Finite>,
}

const fn one() -> Finite {
    Finite::ONE
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(
            Archive, Serialize, Deserialize, serde::Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash,
        )]
        #[rkyv(derive(Clone, Copy, Debug))]
        #[serde(rename_all = "lowercase")]
        pub enum $name {
            $($(#[$variant_doc])* $variant),*
        }

        impl $name {
            /// The word in files and messages.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                match word {
                    $($word => Ok(Self::$variant),)*
                    other => Err(UnknownWord { got: other.to_owned(), expected: &[$($word),*] }),
                }
            }
        }
    };
}

/// A word that is none of the known ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{got}`; expected one of {}", .expected.join(", "))]
pub struct UnknownWord {
    got: String,
    expected: &'static [&'static str],
}

words! {
    /// The channels of a picture.
    Colour {
        /// Red, green, blue.
        #[default]
        Rgb = "rgb",
        /// Blue, green, red.
        Bgr = "bgr",
        /// One channel, luminance: 0.299 red, 0.587 green, 0.114 blue.
        Grey = "grey",
    }
}

words! {
    /// The order of a picture's elements.
    Layout {
        /// Channels first: one channel after the other.
        #[default]
        Nchw = "nchw",
        /// Channels last: one pixel after the other.
        Nhwc = "nhwc",
    }
}

words! {
    /// How pictures with another aspect ratio are fitted.
    Fit {
        /// Width and height are scaled independently.
        #[default]
        Stretch = "stretch",
        /// The picture is cropped to the largest centred part with the right aspect ratio.
        Crop = "crop",
    }
}

words! {
    /// The interpolation filter. All but `Nearest` read every pixel when a picture shrinks.
    Filter {
        /// The nearest pixel.
        Nearest = "nearest",
        /// A triangle filter.
        #[default]
        Bilinear = "bilinear",
        /// The cubic filter of Catmull and Rom.
        Bicubic = "bicubic",
        /// A windowed sinc with three lobes.
        Lanczos = "lanczos",
    }
}

impl Colour {
    /// The number of channels.
    #[must_use]
    pub const fn channels(self) -> u32 {
        match self {
            Self::Rgb | Self::Bgr => 3,
            Self::Grey => 1,
        }
    }
}

impl Transforms {
    /// Whether no transform is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.image.is_none() && self.labels.is_empty()
    }

    /// Bytes of all labels.
    #[must_use]
    pub fn label_bytes(&self) -> usize {
        self.labels.values().flatten().map(String::len).sum()
    }

    /// Whether a model of that signature can have them.
    ///
    /// # Errors
    /// What is wrong, what was expected, and under which key.
    pub fn check(&self, signature: &Signature) -> Result<(), String> {
        if let Some(image) = &self.image {
            let inputs = &signature.inputs;
            let input = inputs.iter().find(|input| input.name == image.input).ok_or_else(|| {
                format!("image.input: there is no input `{}`; expected one of {}", image.input, names(inputs))
            })?;
            image.check(input)?;
        }
        for (output, labels) in &self.labels {
            let outputs = &signature.outputs;
            let spec = outputs.iter().find(|spec| spec.name == *output);
            let spec = spec.ok_or_else(|| {
                format!("labels.{output}: there is no such output; expected one of {}", names(outputs))
            })?;
            let elements = spec.item_bytes() / spec.data_type.size_bytes();
            if labels.len() != elements {
                let got = labels.len();
                return Err(format!("labels.{output}: {got} labels; expected one for each of {elements} elements"));
            }
            let bad = |label: &&String| label.len() > LABEL_BYTES_MAX || label.chars().any(char::is_control);
            if let Some(label) = labels.iter().find(bad) {
                return Err(format!(
                    "labels.{output}: {label:?}; expected at most {LABEL_BYTES_MAX} bytes without control characters"
                ));
            }
        }
        let bytes = self.label_bytes();
        if bytes > LABELS_BYTES_MAX {
            return Err(format!("labels: {bytes} bytes; expected at most {LABELS_BYTES_MAX} in all"));
        }
        Ok(())
    }
}

impl ImageInput {
    /// The number of elements of one picture.
    #[must_use]
    pub const fn elements(&self) -> u64 {
        self.width as u64 * self.height as u64 * self.colour.channels() as u64
    }

    /// Whether pictures can become items of that tensor.
    ///
    /// # Errors
    /// What is wrong, what was expected, and under which key.
    pub fn check(&self, input: &TensorSpec) -> Result<(), String> {
        for (key, side) in [("width", self.width), ("height", self.height)] {
            if !(1..=IMAGE_SIDE_MAX).contains(&side) {
                return Err(format!("image.{key}: {side}; expected 1 to {IMAGE_SIDE_MAX} pixels"));
            }
        }
        if !matches!(input.data_type, DataType::Uint8 | DataType::Fp16 | DataType::Fp32) {
            let (name, got) = (&input.name, input.data_type);
            return Err(format!("image.input: `{name}` is of {got}; expected UINT8, FP16 or FP32"));
        }
        let (width, height, channels) = (self.width, self.height, self.colour.channels());
        let whole = match self.layout {
            Layout::Nchw => vec![channels, height, width],
            Layout::Nhwc => vec![height, width, channels],
        };
        let shape = &input.item_shape;
        let is_flat = matches!(shape[..], [all] if u64::from(all) == self.elements());
        if *shape != whole && !is_flat && !(channels == 1 && shape[..] == [height, width]) {
            let elements = self.elements();
            return Err(format!(
                "image: {width} × {height} pixels of {channels} channels in {} do not fit input `{}` of shape {shape:?}; \
                 expected {whole:?} or [{elements}]",
                self.layout.word(),
                input.name,
            ));
        }
        for (key, values) in [("mean", &self.mean), ("deviation", &self.deviation)] {
            if values.len() > 1 && values.len() != channels as usize {
                let got = values.len();
                return Err(format!(
                    "image.{key}: {got} numbers; expected one, or one for each of {channels} channels"
                ));
            }
        }
        if self.deviation.iter().any(|deviation| deviation.get() == 0.0) {
            return Err("image.deviation: 0; expected a number to divide by".to_owned());
        }
        let share = self.crop_share.get();
        if share <= 0.0 || share > 1.0 || (self.fit != Fit::Crop && self.crop_share != Finite::ONE) {
            let fit = self.fit.word();
            return Err(format!("image.crop_share: {share} with fit {fit}; expected above 0 to 1, with fit crop"));
        }
        Ok(())
    }
}

fn names(tensors: &[TensorSpec]) -> String {
    tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, data_type: DataType, item_shape: &[u32]) -> TensorSpec {
        TensorSpec { name: name.into(), data_type, item_shape: item_shape.to_vec() }
    }

    fn image() -> ImageInput {
        ImageInput {
            input: "x".into(),
            width: 4,
            height: 2,
            colour: Colour::Rgb,
            layout: Layout::Nchw,
            fit: Fit::Crop,
            crop_share: Finite::ONE,
            filter: Filter::Bilinear,
            scale: Finite::ONE,
            mean: vec![],
            deviation: vec![],
        }
    }

    fn finite(numbers: &[f64]) -> Vec<Finite> {
        numbers.iter().map(|&number| Finite::try_from(number).unwrap()).collect()
    }

    #[test]
    fn pictures_fit_the_shapes_that_stand_for_them_and_no_others() {
        let fp32 = |shape: &[u32]| tensor("x", DataType::Fp32, shape);
        for (layout, shape) in [(Layout::Nchw, [3, 2, 4]), (Layout::Nhwc, [2, 4, 3])] {
            let image = ImageInput { layout, ..image() };
            assert_eq!(image.check(&fp32(&shape)), Ok(()));
            assert_eq!(image.check(&fp32(&[24])), Ok(()));
            for wrong in [&[3, 4, 2][..], &[4, 2, 3], &[25], &[], &[2, 4]] {
                let message = image.check(&fp32(wrong)).unwrap_err();
                assert!(message.contains("do not fit input `x`"), "{message}");
            }
        }
        let grey = ImageInput { colour: Colour::Grey, ..image() };
        assert_eq!(grey.check(&tensor("x", DataType::Uint8, &[2, 4])), Ok(()));
        assert!(grey.check(&tensor("x", DataType::Int64, &[2, 4])).unwrap_err().contains("UINT8, FP16 or FP32"));
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused_by_key() {
        let shape = tensor("x", DataType::Fp32, &[3, 2, 4]);
        for (wrong, expected) in [
            (ImageInput { width: 0, ..image() }, "image.width: 0"),
            (ImageInput { height: IMAGE_SIDE_MAX + 1, ..image() }, "image.height: 4097"),
            (ImageInput { mean: finite(&[1.0, 2.0]), ..image() }, "image.mean: 2 numbers"),
            (ImageInput { deviation: finite(&[1.0, -0.0, 1.0]), ..image() }, "image.deviation: 0"),
            (ImageInput { crop_share: finite(&[1.5])[0], ..image() }, "image.crop_share: 1.5"),
            (ImageInput { crop_share: finite(&[0.0])[0], ..image() }, "image.crop_share: 0"),
            (ImageInput { crop_share: finite(&[0.5])[0], fit: Fit::Stretch, ..image() }, "with fit stretch"),
        ] {
            let message = wrong.check(&shape).unwrap_err();
            assert!(message.starts_with(expected) || message.contains(expected), "{message}; expected {expected}");
        }
        assert!(Finite::try_from(f64::NAN).is_err() && Finite::try_from(f64::INFINITY).is_err());
        assert_eq!(Finite::try_from(-0.0), Finite::try_from(0.0));
    }

    #[test]
    fn labels_are_one_for_each_element_of_an_output_that_is_there() {
        let signature = Signature { inputs: vec![], outputs: vec![tensor("y", DataType::Fp32, &[2])] };
        let with = |output: &str, labels: &[&str]| Transforms {
            labels: [(output.to_owned(), labels.iter().map(|&label| label.to_owned()).collect())].into(),
            ..Transforms::default()
        };
        assert_eq!(with("y", &["cat", "dog"]).check(&signature), Ok(()));
        assert!(with("z", &["cat", "dog"]).check(&signature).unwrap_err().contains("expected one of y"));
        assert!(with("y", &["cat"]).check(&signature).unwrap_err().contains("1 labels; expected one for each of 2"));
        assert!(with("y", &["cat\n", "dog"]).check(&signature).unwrap_err().contains("control characters"));
        let many: Vec<_> = (0..2000).map(|_| "l".repeat(LABEL_BYTES_MAX)).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let wide = Signature { inputs: vec![], outputs: vec![tensor("y", DataType::Fp32, &[2000])] };
        assert!(with("y", &many).check(&wide).unwrap_err().contains("512000 bytes; expected at most 262144"));
        assert!(with("y", &[]).image.is_none() && Transforms::default().is_empty());
        assert_eq!("bgr".parse(), Ok(Colour::Bgr));
        assert_eq!(
            "cubic".parse::<Filter>().unwrap_err().to_string(),
            "`cubic`; expected one of nearest, bilinear, bicubic, lanczos"
        );
    }
}
