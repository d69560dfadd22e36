//! Inputs for models under measurement.

use half::f16;
use symphony_types::{DataType, TensorSpec};

/// Items that every model accepts. Integers may be indices into a table, so they are zero; real numbers vary between -1
/// and 1, since runtimes take short cuts with zeros, and from item to item.
pub(crate) fn plausible_input(spec: &TensorSpec, items: u32) -> Vec<u8> {
    real_numbers(spec, items).unwrap_or_else(|| vec![0; spec.item_bytes() * items as usize])
}

/// Items of which neighbours differ, whatever the type: what is not real is 0 and 1 in turn, which is within all but
/// the smallest tables.
pub(crate) fn unlike_input(spec: &TensorSpec, items: u32) -> Vec<u8> {
    real_numbers(spec, items).unwrap_or_else(|| {
        let width = spec.data_type.size_bytes();
        let number = |number: u64| number.to_le_bytes().into_iter().take(width);
        let element = |index, item| number((index + item) as u64 % 2);
        let elements = spec.item_bytes() / width;
        (0..items as usize).flat_map(|item| (0..elements).flat_map(move |index| element(index, item))).collect()
    })
}

/// None if the type is not one of real numbers.
fn real_numbers(spec: &TensorSpec, items: u32) -> Option<Vec<u8>> {
    const PERIOD: usize = 17;
    let item_elements = (spec.item_bytes() / spec.data_type.size_bytes()).max(1);
    let value = |index: usize| {
        let item = index / item_elements;
        ((index * 5 + item * 7) % PERIOD) as f32 / (PERIOD / 2) as f32 - 1.0
    };
    let all = 0..item_elements * items as usize;
    match spec.data_type {
        DataType::Fp16 => Some(all.flat_map(|index| f16::from_f32(value(index)).to_le_bytes()).collect()),
        DataType::Fp32 => Some(all.flat_map(|index| value(index).to_le_bytes()).collect()),
        DataType::Fp64 => Some(all.flat_map(|index| f64::from(value(index)).to_le_bytes()).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_have_the_length_of_their_items_and_neighbours_differ() {
        for data_type in
            [DataType::Bool, DataType::Uint8, DataType::Int64, DataType::Fp16, DataType::Fp32, DataType::Fp64]
        {
            for item_shape in [vec![], vec![3], vec![2, 2]] {
                let spec = TensorSpec { name: "x".into(), data_type, item_shape };
                let unlike = unlike_input(&spec, 5);
                assert_eq!(
                    (unlike.len(), plausible_input(&spec, 5).len()),
                    (5 * spec.item_bytes(), 5 * spec.item_bytes())
                );
                let items: Vec<_> = unlike.chunks_exact(spec.item_bytes()).collect();
                assert!(items.windows(2).all(|pair| pair[0] != pair[1]), "{data_type}: {unlike:?}");
            }
        }
        let indices = TensorSpec { name: "x".into(), data_type: DataType::Int32, item_shape: vec![2] };
        assert_eq!(plausible_input(&indices, 2), [0; 16]);
        assert_eq!(unlike_input(&indices, 2), [0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
