//! Checks that an item's answer does not depend on the other items of its batch.

use std::fmt;

use half::f16;
use symphony_types::{DataType, TensorSpec};

use super::inputs::{plausible_input, unlike_input};
use crate::port::{BatchInputs, ExecuteError, ModelExecutor};

/// Kernels of different batch sizes add up in different orders: real numbers that differ by no more than this,
/// absolutely or relatively to the larger one, are equal.
const TOLERANCE: f64 = 1e-3;
/// The tolerance for numbers of half precision: ten steps of theirs at 1, for sums may be kept in half precision as
/// well.
const HALF_TOLERANCE: f64 = 1e-2;

/// An item whose answer in a batch differs from its answer alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependence {
    /// The output's name.
    pub output: String,
    /// The item's place in the batch, from 0.
    pub item: u32,
    /// Items in the batch.
    pub batch: u32,
    /// What the first element that differs was alone and in the batch.
    pub values: (String, String),
}

impl fmt::Display for Dependence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { output, item, batch, values: (alone, together) } = self;
        write!(f, "output `{output}` of item {item} is {alone} alone and {together} in a batch of {batch}")
    }
}

/// For each of these sizes, from the largest on: runs the first, the middle and the last item of a batch alone, and
/// compares.
///
/// The items differ, since identical ones would hide a model that mixes them. A model that rejects such whole numbers
/// gets zeros. `before` is called before each run, with its items.
///
/// # Errors
/// The size that the model refuses however, and why.
pub(crate) fn find_dependence(
    executor: &mut impl ModelExecutor,
    sizes: &[u32],
    before: &dyn Fn(u32),
) -> Result<Option<Dependence>, (u32, ExecuteError)> {
    find_with(executor, sizes, unlike_input, before).or_else(|_| find_with(executor, sizes, plausible_input, before))
}

fn find_with(
    executor: &mut impl ModelExecutor,
    sizes: &[u32],
    input: impl Fn(&TensorSpec, u32) -> Vec<u8>,
    before: &dyn Fn(u32),
) -> Result<Option<Dependence>, (u32, ExecuteError)> {
    let (specs, outputs) = (executor.signature().inputs.clone(), executor.signature().outputs.clone());
    let largest = sizes.last().copied().unwrap_or_default();
    let inputs: Vec<_> = specs.iter().map(|spec| (spec.item_bytes(), input(spec, largest))).collect();
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    let run = |executor: &mut dyn ModelExecutor, first: u32, items: u32, outputs: &mut Vec<Vec<u8>>| {
        let part = |size: usize| first as usize * size..(first + items) as usize * size;
        let tensors: Vec<_> = inputs.iter().map(|(size, bytes)| &bytes[part(*size)]).collect();
        before(items);
        executor.run(&BatchInputs { items, tensors: &tensors, start: None }, outputs).map_err(|error| (items, error))
    };
    for &batch in sizes.iter().rev().filter(|&&batch| batch > 1) {
        run(executor, 0, batch, &mut together)?;
        let mut items = vec![0, batch / 2, batch - 1];
        items.dedup();
        for item in items {
            run(executor, item, 1, &mut alone)?;
            for (spec, (alone, together)) in outputs.iter().zip(alone.iter().zip(&together)) {
                let size = spec.item_bytes();
                let among = together.get(item as usize * size..(item as usize + 1) * size).unwrap_or_default();
                if let Some(values) = first_difference(spec.data_type, alone, among) {
                    return Ok(Some(Dependence { output: spec.name.clone(), item, batch, values }));
                }
            }
        }
    }
    Ok(None)
}

/// The first elements that differ by more than the tolerance of their type.
pub(crate) fn first_difference(data_type: DataType, alone: &[u8], together: &[u8]) -> Option<(String, String)> {
    let tolerance = if data_type == DataType::Fp16 { HALF_TOLERANCE } else { TOLERANCE };
    let differ = |a: f64, b: f64| {
        let near = a.is_finite() && b.is_finite() && (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0);
        let alike = near || a == b || a.is_nan() && b.is_nan();
        (!alike).then(|| (a.to_string(), b.to_string()))
    };
    let half = |bytes: &[u8]| f16::from_le_bytes(bytes.try_into().unwrap_or_default()).to_f64();
    let single = |bytes: &[u8]| f64::from(f32::from_le_bytes(bytes.try_into().unwrap_or_default()));
    let double = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap_or_default());
    match data_type {
        DataType::Fp16 => {
            alone.chunks_exact(2).zip(together.chunks_exact(2)).find_map(|(a, b)| differ(half(a), half(b)))
        }
        DataType::Fp32 => {
            alone.chunks_exact(4).zip(together.chunks_exact(4)).find_map(|(a, b)| differ(single(a), single(b)))
        }
        DataType::Fp64 => {
            alone.chunks_exact(8).zip(together.chunks_exact(8)).find_map(|(a, b)| differ(double(a), double(b)))
        }
        _ => (alone != together).then(|| ("of other bytes".to_owned(), "others".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::Signature;

    use super::*;

    /// Doubles each number; a broken one adds how many items there are, from some size on.
    #[derive(Debug)]
    struct Doubler {
        signature: Signature,
        broken_at: Option<u32>,
    }

    impl ModelExecutor for Doubler {
        fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
            batch.check(&self.signature, 8)?;
            let extra = if self.broken_at == Some(batch.items) { batch.items as f32 } else { 0.0 };
            let doubled = |b: &[u8]| (2.0 * f32::from_le_bytes(b.try_into().unwrap()) + extra).to_le_bytes();
            *outputs = vec![batch.tensors[0].chunks_exact(4).flat_map(doubled).collect()];
            Ok(())
        }

        fn signature(&self) -> &Signature {
            &self.signature
        }

        fn batch_max(&self) -> u32 {
            8
        }

        fn kind(&self) -> &'static str {
            "doubler"
        }
    }

    fn found(broken_at: Option<u32>, sizes: &[u32]) -> Option<Dependence> {
        let spec = |name: &str| TensorSpec { name: name.into(), data_type: DataType::Fp32, item_shape: vec![2] };
        let signature = Signature { inputs: vec![spec("in")], outputs: vec![spec("out")] };
        find_dependence(&mut Doubler { signature, broken_at }, sizes, &|_| ()).unwrap()
    }

    #[test]
    fn a_model_that_looks_at_the_others_is_found() {
        assert_eq!((found(None, &[1, 2, 4, 8]), found(None, &[1]), found(Some(1), &[1])), (None, None, None));
        let dependence = found(Some(8), &[1, 2, 4, 8]).unwrap();
        assert_eq!(dependence.to_string(), "output `out` of item 0 is -2 alone and 6 in a batch of 8");
    }

    #[test]
    fn every_size_that_is_measured_is_looked_at() {
        assert_eq!(found(Some(4), &[1, 2, 4, 8]).unwrap().batch, 4);
        assert_eq!(found(Some(3), &[1, 2, 4, 8]), None);
    }

    /// Gives every item the largest bytes of all; a shy one takes no number but zero.
    #[derive(Debug)]
    struct Mixer {
        signature: Signature,
        shy: bool,
    }

    impl ModelExecutor for Mixer {
        fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
            batch.check(&self.signature, 8)?;
            let item = self.signature.inputs[0].item_bytes();
            let mut largest = vec![0; item];
            for bytes in batch.tensors[0].chunks_exact(item) {
                largest.iter_mut().zip(bytes).for_each(|(largest, &byte)| *largest = byte.max(*largest));
            }
            if self.shy && largest.iter().any(|&byte| byte > 0) {
                return Err(ExecuteError::Failed { items: batch.items, reason: "no such index".into() });
            }
            *outputs = vec![largest.repeat(batch.items as usize)];
            Ok(())
        }

        fn signature(&self) -> &Signature {
            &self.signature
        }

        fn batch_max(&self) -> u32 {
            8
        }

        fn kind(&self) -> &'static str {
            "mixer"
        }
    }

    #[test]
    fn a_model_that_mixes_items_is_found_whatever_their_type() {
        for data_type in [DataType::Uint8, DataType::Bool, DataType::Int64, DataType::Fp16] {
            for item_shape in [vec![1], vec![3]] {
                let spec = |name: &str| TensorSpec { name: name.into(), data_type, item_shape: item_shape.clone() };
                let signature = Signature { inputs: vec![spec("in")], outputs: vec![spec("out")] };
                let find = |shy| {
                    find_dependence(&mut Mixer { signature: signature.clone(), shy }, &[1, 2, 8], &|_| ()).unwrap()
                };
                assert!(find(false).is_some(), "{data_type} {item_shape:?}");
                if data_type != DataType::Fp16 {
                    assert_eq!(find(true), None, "what takes zeros only, such as indices, is asked with these");
                }
            }
        }
    }

    #[test]
    fn what_rounding_changes_is_equal_and_numbers_that_are_none_are_too() {
        let differ = |a: f32, b: f32| first_difference(DataType::Fp32, &a.to_le_bytes(), &b.to_le_bytes()).is_some();
        assert!(!differ(1000.0, 1000.9) && !differ(1e-9, 0.0) && !differ(f32::NAN, f32::NAN));
        assert!(differ(1000.0, 1002.0) && differ(f32::NAN, 1.0) && differ(f32::INFINITY, 1.0));
        assert!(first_difference(DataType::Int64, &[1; 8], &[2; 8]).is_some());
        let half = |number: f32| f16::from_f32(number).to_le_bytes();
        let halves_differ = |a: f32, b: f32| first_difference(DataType::Fp16, &half(a), &half(b)).is_some();
        assert!(!halves_differ(1.0, 1.009) && !halves_differ(1000.0, 1009.0) && !halves_differ(1e-3, 0.0));
        assert!(halves_differ(1.0, 1.02) && halves_differ(f32::NAN, 1.0) && halves_differ(1e6, 1000.0));
    }
}
