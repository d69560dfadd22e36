//! The likeliest classes of an output, as the classification extension words them.

use std::cmp::Ordering;

use half::f16;
use symphony_types::{DataType, TensorSpec};

use super::typed_data::elements;

/// The `classes` largest elements of each item, largest first, the first of equals first: `value:index:label`, or
/// `value:index` where there is no label. As many for each item: no more than an item has.
pub(crate) fn classify(data: &[u8], spec: &TensorSpec, classes: u32, labels: Option<&[String]>) -> Vec<String> {
    let classes = classes_of(spec, classes) as usize;
    let items = data.chunks_exact(spec.item_bytes().max(1));
    items.flat_map(|item| of_item(item, spec.data_type, classes, labels)).collect()
}

/// How many classes each item gets when `requested` are asked for.
pub(crate) fn classes_of(spec: &TensorSpec, requested: u32) -> u32 {
    let elements = spec.item_bytes() / spec.data_type.size_bytes();
    requested.min(u32::try_from(elements).unwrap_or(u32::MAX))
}

fn of_item(item: &[u8], data_type: DataType, classes: usize, labels: Option<&[String]>) -> Vec<String> {
    let whole = |value: i128| value.to_string();
    let broken = |value: f64| format!("{value:.6}");
    let top = match data_type {
        DataType::Bool | DataType::Uint8 => {
            top(elements(item, u8::from_le_bytes), classes, Ord::cmp, |v| whole(v.into()))
        }
        DataType::Uint16 => top(elements(item, u16::from_le_bytes), classes, Ord::cmp, |v| whole(v.into())),
        DataType::Uint32 => top(elements(item, u32::from_le_bytes), classes, Ord::cmp, |v| whole(v.into())),
        DataType::Uint64 => top(elements(item, u64::from_le_bytes), classes, Ord::cmp, |v| whole(v.into())),
        DataType::Int8 => top(elements(item, i8::from_le_bytes), classes, Ord::cmp, |v| whole(v.into())),
        DataType::Int16 => top(elements(item, i16::from_le_bytes), classes, Ord::cmp, |v| whole(v.into())),
        DataType::Int32 => top(elements(item, i32::from_le_bytes), classes, Ord::cmp, |v| whole(v.into())),
        DataType::Int64 => top(elements(item, i64::from_le_bytes), classes, Ord::cmp, |v| whole(v.into())),
        DataType::Fp16 => top(elements(item, f16::from_le_bytes).map(f64::from), classes, numbers_first, broken),
        DataType::Fp32 => top(elements(item, f32::from_le_bytes).map(f64::from), classes, numbers_first, broken),
        DataType::Fp64 => top(elements(item, f64::from_le_bytes), classes, numbers_first, broken),
    };
    let worded = |(index, value): (usize, String)| match labels.and_then(|labels| labels.get(index)) {
        Some(label) => format!("{value}:{index}:{label}"),
        None => format!("{value}:{index}"),
    };
    top.into_iter().map(worded).collect()
}

/// NaN is below every number.
fn numbers_first(left: &f64, right: &f64) -> Ordering {
    right.is_nan().cmp(&left.is_nan()).then(left.total_cmp(right))
}

/// The largest `count` values with their places.
fn top<T: Copy>(
    values: impl Iterator<Item = T>,
    count: usize,
    order: impl Fn(&T, &T) -> Ordering,
    show: impl Fn(T) -> String,
) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, T)> = values.enumerate().collect();
    let count = count.min(all.len());
    let larger_first = |left: &(usize, T), right: &(usize, T)| order(&right.1, &left.1).then(left.0.cmp(&right.0));
    if count > 0 && count < all.len() {
        all.select_nth_unstable_by(count - 1, larger_first);
    }
    all.truncate(count);
    all.sort_unstable_by(larger_first);
    all.into_iter().map(|(index, value)| (index, show(value))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(data_type: DataType, elements: u32) -> TensorSpec {
        TensorSpec { name: "y".into(), data_type, item_shape: vec![elements] }
    }

    fn le(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn the_largest_come_first_with_place_and_label() {
        let labels = ["cat", "dog", "cow"].map(str::to_owned);
        let two_items = le(&[0.25, 0.5, 0.25, 7.0, -1.0, f32::NAN]);
        let classified = classify(&two_items, &spec(DataType::Fp32, 3), 2, Some(&labels));
        assert_eq!(classified, ["0.500000:1:dog", "0.250000:0:cat", "7.000000:0:cat", "-1.000000:1:dog"]);
        let classified = classify(&two_items, &spec(DataType::Fp32, 3), 9, None);
        assert_eq!(
            classified[3..],
            ["7.000000:0", "-1.000000:1", "NaN:2"],
            "no more than there are, and no number last"
        );
        let large: Vec<u8> = [i64::MAX - 1, i64::MAX].iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(classify(&large, &spec(DataType::Int64, 2), 1, None), [format!("{}:1", i64::MAX)]);
        assert_eq!(classify(&[0x00, 0x3c, 0, 0], &spec(DataType::Fp16, 2), 1, None), ["1.000000:0"]);
    }

    proptest! {
        #[test]
        fn they_are_those_of_a_whole_sort(values in prop::collection::vec(any::<i16>(), 1..40), classes in 1_u32..50) {
            let spec = spec(DataType::Int16, values.len() as u32);
            let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let mut sorted: Vec<_> = values.iter().enumerate().collect();
            sorted.sort_by_key(|&(index, &value)| (-i32::from(value), index));
            let expected = sorted.iter().take(classes as usize).map(|(index, value)| format!("{value}:{index}"));
            prop_assert_eq!(classify(&data, &spec, classes, None), expected.collect::<Vec<_>>());
        }
    }
}
