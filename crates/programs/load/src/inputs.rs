//! Inputs of requests, and the check of their answers.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use rand::{RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_executor::{digits, item_checksum};
use symphony_types::{DataType, Signature, TensorSpec};

use crate::target::{EncodedPictures, OutputTensor};

/// Different random inputs per model: enough to defeat a cache of one answer, few enough to prepare in advance.
const POOL: u64 = 16;

/// The inputs of one model's requests. Request `n` always gets the same input, so a seed repeats a run.
pub trait InputSet: Send + Sync + fmt::Debug {
    /// The inputs of the model's request number `n`.
    fn sample(&self, n: u64) -> Sample;

    /// Whether `outputs` answer request number `n`.
    fn check(&self, n: u64, outputs: &[OutputTensor]) -> OutputCheck;
}

/// The inputs of one request.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Items of the request, at least one.
    pub items: u32,
    /// Description and bytes of each input, in the model's order.
    pub inputs: Vec<(TensorSpec, Bytes)>,
    /// The input that is given as encoded pictures.
    pub pictures: Option<EncodedPictures>,
}

/// What the outputs of an answer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputCheck {
    /// It is right: the right class, the right checksum.
    Right,
    /// It answers this request, but wrongly, as classifiers sometimes do.
    Wrong,
    /// It has several parts, some of which are right.
    Parts {
        /// The parts that are right.
        right: u32,
        /// The number of parts.
        of: u32,
    },
    /// It answers another request, or none: a fault of the system, not of the model.
    Foreign,
    /// The right answer is unknown.
    Unknown,
}

impl OutputCheck {
    /// Of how many things it judges, and how many of them are right.
    pub(crate) fn judged(self) -> (u64, u64) {
        match self {
            Self::Right => (1, 1),
            Self::Wrong => (1, 0),
            Self::Parts { right, of } => (of.into(), right.into()),
            Self::Foreign | Self::Unknown => (0, 0),
        }
    }
}

/// Random bytes in the shape of a signature; answers are not judged.
#[derive(Clone, Debug)]
pub struct RandomInputs {
    /// Items of every request, or of the n-th; after the last one it begins again.
    items: Arc<[u32]>,
    /// Each with as many items as the largest request.
    pool: Vec<Vec<(TensorSpec, Bytes)>>,
}

impl RandomInputs {
    /// `items` items per request for a model of this signature, made from `seed`.
    ///
    /// Floating-point elements are uniform in [0, 1), everything else is random bits; booleans are 0 or 1.
    #[must_use]
    pub fn new(signature: &Signature, items: u32, seed: u64) -> Self {
        Self::with_items(signature, [items].into(), seed)
    }

    /// The same with `items[n]` items in request `n`; with one item in each if there are none.
    #[must_use]
    pub fn with_items(signature: &Signature, items: Arc<[u32]>, seed: u64) -> Self {
        let items: Arc<[u32]> = if items.is_empty() { [1].into() } else { items };
        let most = items.iter().copied().max().unwrap_or(1);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut tensor = |spec: &TensorSpec| {
            let bytes = random_bytes(spec, most, &mut rng);
            (spec.clone(), Bytes::from(bytes))
        };
        let pool = (0..POOL).map(|_| signature.inputs.iter().map(&mut tensor).collect()).collect();
        Self { items, pool }
    }
}

fn random_bytes(spec: &TensorSpec, items: u32, rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut bytes = vec![0; spec.item_bytes() * items as usize];
    rng.fill_bytes(&mut bytes);
    // The 23 (52) random bits of a fraction under the exponent of 1 give [1, 2).
    match spec.data_type {
        DataType::Fp32 => {
            for element in bytes.as_chunks_mut::<4>().0 {
                let bits = u32::from_le_bytes(*element) >> 9 | 1.0_f32.to_bits();
                *element = (f32::from_bits(bits) - 1.0).to_le_bytes();
            }
        }
        DataType::Fp64 => {
            for element in bytes.as_chunks_mut::<8>().0 {
                let bits = u64::from_le_bytes(*element) >> 12 | 1.0_f64.to_bits();
                *element = (f64::from_bits(bits) - 1.0).to_le_bytes();
            }
        }
        // 10 random bits of a fraction under the exponent 14 of 31 give [0.5, 1).
        DataType::Fp16 => {
            for element in bytes.as_chunks_mut::<2>().0 {
                *element = (u16::from_le_bytes(*element) >> 6 | 14 << 10).to_le_bytes();
            }
        }
        DataType::Bool => bytes.iter_mut().for_each(|byte| *byte &= 1),
        _ => {}
    }
    bytes
}

impl InputSet for RandomInputs {
    fn sample(&self, n: u64) -> Sample {
        let items = self.items[(n % self.items.len() as u64) as usize];
        let part =
            |(spec, data): &(TensorSpec, Bytes)| (spec.clone(), data.slice(..spec.item_bytes() * items as usize));
        Sample { items, inputs: self.pool[(n % POOL) as usize].iter().map(part).collect(), pictures: None }
    }

    fn check(&self, _: u64, _: &[OutputTensor]) -> OutputCheck {
        OutputCheck::Unknown
    }
}

/// Random inputs for the emulated executor, each item stamped with the request's number: the checksum in an answer
/// shows which request it belongs to.
#[derive(Clone, Debug)]
pub struct EmulatedInputs {
    random: RandomInputs,
}

impl EmulatedInputs {
    /// `items` items per request for an emulated model of this signature, made from `seed`.
    #[must_use]
    pub fn new(signature: &Signature, items: u32, seed: u64) -> Self {
        Self { random: RandomInputs::new(signature, items, seed) }
    }

    /// The same with `items[n]` items in request `n`.
    #[must_use]
    pub fn with_items(signature: &Signature, items: Arc<[u32]>, seed: u64) -> Self {
        Self { random: RandomInputs::with_items(signature, items, seed) }
    }

    /// The bytes of item `item` in each input.
    fn item(sample: &Sample, item: usize) -> impl Iterator<Item = &[u8]> {
        sample.inputs.iter().map(move |(spec, data)| {
            let size = spec.item_bytes();
            &data[item * size..(item + 1) * size]
        })
    }
}

impl InputSet for EmulatedInputs {
    fn sample(&self, n: u64) -> Sample {
        let mut sample = self.random.sample(n);
        let items = sample.items as usize;
        if let Some((spec, data)) = sample.inputs.first_mut() {
            let mut bytes = data.to_vec();
            let size = spec.item_bytes();
            for item in 0..items {
                let stamp = n.wrapping_mul(items as u64).wrapping_add(item as u64).to_le_bytes();
                let stamped = size.min(stamp.len());
                bytes[item * size..item * size + stamped].copy_from_slice(&stamp[..stamped]);
            }
            *data = bytes.into();
        }
        sample
    }

    fn check(&self, n: u64, outputs: &[OutputTensor]) -> OutputCheck {
        let sample = self.sample(n);
        let items = sample.items as usize;
        let Some(output) = outputs.first() else { return OutputCheck::Foreign };
        // An output of k bytes per item repeats the checksum's four bytes, cut where it ends.
        let size = output.data.len() / items.max(1);
        if size == 0 || output.data.len() % items != 0 {
            return OutputCheck::Foreign;
        }
        let right = (0..items).all(|item| {
            let checksum = item_checksum(Self::item(&sample, item)).to_le_bytes();
            output.data[item * size..(item + 1) * size].iter().eq(checksum.iter().cycle().take(size))
        });
        if right { OutputCheck::Right } else { OutputCheck::Foreign }
    }
}

/// The digits that the demo's classifier has never seen, one per request, judged by their labels.
#[derive(Clone, Debug)]
pub struct DigitInputs {
    images: Vec<Bytes>,
    labels: Vec<u8>,
    spec: TensorSpec,
}

impl DigitInputs {
    /// Name of the classifier's input.
    pub const INPUT: &'static str = "pixels";
    /// Name of the output with the digit.
    pub const OUTPUT: &'static str = "label";

    /// All images of the embedded test set, over and over.
    #[must_use]
    pub fn new() -> Self {
        let digits = digits::test_set();
        let image = |digit: &digits::Digit<'_>| {
            let mut bytes = Vec::with_capacity(digits::PIXELS * size_of::<f32>());
            digit.append_input(&mut bytes);
            Bytes::from(bytes)
        };
        Self {
            images: digits.iter().map(image).collect(),
            labels: digits.iter().map(|digit| digit.label).collect(),
            spec: TensorSpec {
                name: Self::INPUT.into(),
                data_type: DataType::Fp32,
                item_shape: vec![digits::PIXELS as u32],
            },
        }
    }

    fn index(&self, n: u64) -> usize {
        (n % self.images.len() as u64) as usize
    }
}

impl Default for DigitInputs {
    fn default() -> Self {
        Self::new()
    }
}

impl InputSet for DigitInputs {
    fn sample(&self, n: u64) -> Sample {
        let inputs = vec![(self.spec.clone(), self.images[self.index(n)].clone())];
        Sample { items: 1, inputs, pictures: None }
    }

    fn check(&self, n: u64, outputs: &[OutputTensor]) -> OutputCheck {
        let output = outputs.iter().find(|output| output.name == Self::OUTPUT);
        let label = output.and_then(|output| <[u8; 8]>::try_from(output.data.as_ref()).ok()).map(i64::from_le_bytes);
        match label {
            None => OutputCheck::Foreign,
            Some(label) if label == i64::from(self.labels[self.index(n)]) => OutputCheck::Right,
            Some(_) => OutputCheck::Wrong,
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_executor::default_signature;

    use super::*;

    fn spec(data_type: DataType) -> TensorSpec {
        TensorSpec { name: "x".into(), data_type, item_shape: vec![64] }
    }

    #[test]
    fn random_numbers_are_numbers_and_seeds_repeat() {
        let signature = |data_type| Signature { inputs: vec![spec(data_type)], outputs: vec![] };
        let bytes = |data_type, seed| RandomInputs::new(&signature(data_type), 2, seed).sample(3).inputs[0].1.clone();
        let floats = bytes(DataType::Fp32, 1);
        assert_eq!(floats.len(), 2 * 64 * 4);
        assert!(floats.as_chunks::<4>().0.iter().all(|&b| (0.0..1.0).contains(&f32::from_le_bytes(b))));
        let doubles = bytes(DataType::Fp64, 1);
        assert!(doubles.as_chunks::<8>().0.iter().all(|&b| (0.0..1.0).contains(&f64::from_le_bytes(b))));
        assert!(bytes(DataType::Fp16, 1).as_chunks::<2>().0.iter().all(|b| b[1] >> 2 == 14));
        assert!(bytes(DataType::Bool, 1).iter().all(|&b| b <= 1));
        assert_eq!(floats, bytes(DataType::Fp32, 1));
        assert_ne!(floats, bytes(DataType::Fp32, 2));
    }

    #[test]
    fn an_emulated_answer_is_right_for_its_own_request_and_foreign_for_any_other() {
        let inputs = EmulatedInputs::new(&default_signature(), 2, 5);
        let answer = |n| {
            let sample = inputs.sample(n);
            let sums = (0..2).flat_map(|item| item_checksum(EmulatedInputs::item(&sample, item)).to_le_bytes());
            [OutputTensor { name: "OUTPUT0".into(), data: sums.collect::<Vec<_>>().into() }]
        };
        assert_eq!(inputs.check(3, &answer(3)), OutputCheck::Right);
        // The same place in the pool, another request.
        assert_eq!(inputs.check(3, &answer(3 + POOL)), OutputCheck::Foreign);
        assert_eq!(inputs.check(3, &[]), OutputCheck::Foreign);
        let short = OutputTensor { data: answer(3)[0].data.slice(..7), ..answer(3)[0].clone() };
        assert_eq!(inputs.check(3, &[short]), OutputCheck::Foreign);
    }

    #[test]
    fn requests_of_different_sizes_are_answered_each_by_its_own_sum() {
        let inputs = EmulatedInputs::with_items(&default_signature(), [1, 3].into(), 5);
        let answer = |n| {
            let sample = inputs.sample(n);
            let sums = (0..sample.items as usize)
                .flat_map(|item| item_checksum(EmulatedInputs::item(&sample, item)).to_le_bytes());
            [OutputTensor { name: "OUTPUT0".into(), data: sums.collect::<Vec<_>>().into() }]
        };
        for n in 0..4 {
            let sample = inputs.sample(n);
            assert_eq!(sample.items, [1, 3][(n % 2) as usize]);
            let (spec, data) = &sample.inputs[0];
            assert_eq!(data.len(), spec.item_bytes() * sample.items as usize);
            assert_eq!(inputs.check(n, &answer(n)), OutputCheck::Right);
        }
        assert_eq!(inputs.check(1, &answer(0)), OutputCheck::Foreign);
    }

    #[test]
    fn digits_are_judged_by_their_labels() {
        let inputs = DigitInputs::new();
        assert_eq!(inputs.sample(0).inputs[0].1.len(), 256);
        let label = |n: i64| [OutputTensor { name: "label".into(), data: n.to_le_bytes().to_vec().into() }];
        let right = i64::from(digits::test_set()[1].label);
        assert_eq!(inputs.check(1, &label(right)), OutputCheck::Right);
        assert_eq!(inputs.check(1, &label(right + 1)), OutputCheck::Wrong);
        assert_eq!(inputs.check(1, &[]), OutputCheck::Foreign);
    }
}
