//! Elements of a tensor in the lists of protobuf ⇄ little-endian bytes.

use symphony_protocol::inference::InferTensorContents;
use symphony_types::DataType;

/// Appends the elements of `contents` to `out`, which takes exactly `expected_bytes` of them.
pub(crate) fn decode(
    contents: &InferTensorContents,
    data_type: DataType,
    expected_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let list = list_of(data_type)
        .ok_or_else(|| format!("{data_type} has no list in InferTensorContents; send it in raw_input_contents"))?;
    for (name, length) in lengths(contents) {
        let expected = if name == list { expected_bytes / data_type.size_bytes() } else { 0 };
        if length != expected {
            return Err(format!(
                "{name} has {length} elements; expected {expected}, as its shape and data type {data_type} say"
            ));
        }
    }
    match data_type {
        DataType::Bool => out.extend(contents.bool_contents.iter().map(|&value| u8::from(value))),
        DataType::Int8 => narrow::<i8, _, 1>(&contents.int_contents, i8::to_le_bytes, data_type, out)?,
        DataType::Int16 => narrow::<i16, _, 2>(&contents.int_contents, i16::to_le_bytes, data_type, out)?,
        DataType::Int32 => out.extend(contents.int_contents.iter().flat_map(|value| value.to_le_bytes())),
        DataType::Int64 => out.extend(contents.int64_contents.iter().flat_map(|value| value.to_le_bytes())),
        DataType::Uint8 => narrow::<u8, _, 1>(&contents.uint_contents, u8::to_le_bytes, data_type, out)?,
        DataType::Uint16 => narrow::<u16, _, 2>(&contents.uint_contents, u16::to_le_bytes, data_type, out)?,
        DataType::Uint32 => out.extend(contents.uint_contents.iter().flat_map(|value| value.to_le_bytes())),
        DataType::Uint64 => out.extend(contents.uint64_contents.iter().flat_map(|value| value.to_le_bytes())),
        DataType::Fp32 => out.extend(contents.fp32_contents.iter().flat_map(|value| value.to_le_bytes())),
        DataType::Fp64 => out.extend(contents.fp64_contents.iter().flat_map(|value| value.to_le_bytes())),
        DataType::Fp16 => {} // has no list, see above
    }
    Ok(())
}

/// The elements in `bytes` as the list that belongs to their type; none for a type that has no list.
pub(crate) fn encode(bytes: &[u8], data_type: DataType) -> Option<InferTensorContents> {
    let mut contents = InferTensorContents::default();
    match data_type {
        DataType::Bool => contents.bool_contents = bytes.iter().map(|&byte| byte != 0).collect(),
        DataType::Int8 => contents.int_contents = elements(bytes, i8::from_le_bytes).map(i32::from).collect(),
        DataType::Int16 => contents.int_contents = elements(bytes, i16::from_le_bytes).map(i32::from).collect(),
        DataType::Int32 => contents.int_contents = elements(bytes, i32::from_le_bytes).collect(),
        DataType::Int64 => contents.int64_contents = elements(bytes, i64::from_le_bytes).collect(),
        DataType::Uint8 => contents.uint_contents = elements(bytes, u8::from_le_bytes).map(u32::from).collect(),
        DataType::Uint16 => contents.uint_contents = elements(bytes, u16::from_le_bytes).map(u32::from).collect(),
        DataType::Uint32 => contents.uint_contents = elements(bytes, u32::from_le_bytes).collect(),
        DataType::Uint64 => contents.uint64_contents = elements(bytes, u64::from_le_bytes).collect(),
        DataType::Fp32 => contents.fp32_contents = elements(bytes, f32::from_le_bytes).collect(),
        DataType::Fp64 => contents.fp64_contents = elements(bytes, f64::from_le_bytes).collect(),
        DataType::Fp16 => return None,
    }
    Some(contents)
}

/// The elements of `N` bytes each in `bytes`.
pub(crate) fn elements<T, const N: usize>(
    bytes: &[u8],
    from_le_bytes: fn([u8; N]) -> T,
) -> impl ExactSizeIterator<Item = T> {
    bytes.as_chunks::<N>().0.iter().map(move |&chunk| from_le_bytes(chunk))
}

fn narrow<T: TryFrom<W>, W: Copy + std::fmt::Display, const N: usize>(
    values: &[W],
    to_le_bytes: fn(T) -> [u8; N],
    data_type: DataType,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    for &value in values {
        let narrowed = T::try_from(value).map_err(|_| format!("{value} is outside of {data_type}"))?;
        out.extend(to_le_bytes(narrowed));
    }
    Ok(())
}

const fn list_of(data_type: DataType) -> Option<&'static str> {
    match data_type {
        DataType::Bool => Some("bool_contents"),
        DataType::Int8 | DataType::Int16 | DataType::Int32 => Some("int_contents"),
        DataType::Int64 => Some("int64_contents"),
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 => Some("uint_contents"),
        DataType::Uint64 => Some("uint64_contents"),
        DataType::Fp32 => Some("fp32_contents"),
        DataType::Fp64 => Some("fp64_contents"),
        DataType::Fp16 => None,
    }
}

const fn lengths(contents: &InferTensorContents) -> [(&'static str, usize); 8] {
    [
        ("bool_contents", contents.bool_contents.len()),
        ("int_contents", contents.int_contents.len()),
        ("int64_contents", contents.int64_contents.len()),
        ("uint_contents", contents.uint_contents.len()),
        ("uint64_contents", contents.uint64_contents.len()),
        ("fp32_contents", contents.fp32_contents.len()),
        ("fp64_contents", contents.fp64_contents.len()),
        ("bytes_contents", contents.bytes_contents.len()),
    ]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_outside_of_its_type_is_named() {
        let contents = InferTensorContents { int_contents: vec![1, 128], ..Default::default() };
        let refused = decode(&contents, DataType::Int8, 2, &mut Vec::new());
        assert_eq!(refused, Err("128 is outside of INT8".into()));
    }

    #[test]
    fn elements_in_the_wrong_list_are_refused() {
        let contents = InferTensorContents { fp64_contents: vec![1.0], ..Default::default() };
        let refused = decode(&contents, DataType::Fp32, 4, &mut Vec::new());
        assert_eq!(
            refused,
            Err("fp32_contents has 0 elements; expected 1, as its shape and data type FP32 say".into())
        );
        let both = InferTensorContents { fp32_contents: vec![1.0], fp64_contents: vec![1.0], ..Default::default() };
        let refused = decode(&both, DataType::Fp32, 4, &mut Vec::new());
        assert_eq!(
            refused,
            Err("fp64_contents has 1 elements; expected 0, as its shape and data type FP32 say".into())
        );
    }

    #[test]
    fn half_precision_has_no_list() {
        let refused = decode(&InferTensorContents::default(), DataType::Fp16, 2, &mut Vec::new()).unwrap_err();
        assert!(refused.contains("raw_input_contents"), "{refused}");
        assert_eq!(encode(&[0, 0], DataType::Fp16), None);
    }

    proptest! {
        #[test]
        fn bytes_survive_the_way_through_the_lists(count in 0_usize..20, seed in any::<[u8; 8]>()) {
            for data_type in DataType::ALL {
                let size = data_type.size_bytes();
                let mut bytes: Vec<u8> = seed.iter().copied().cycle().take(count * size).collect();
                if data_type == DataType::Bool {
                    bytes.iter_mut().for_each(|byte| *byte &= 1);
                }
                let Some(contents) = encode(&bytes, data_type) else { continue };
                let mut back = Vec::new();
                decode(&contents, data_type, bytes.len(), &mut back).unwrap();
                prop_assert_eq!(back, bytes);
            }
        }
    }
}
