//! Tensors by what they hold, however they hold it: `raw_data` and typed lists of the same elements hash alike.

use super::sum::{Sum, ValueHash};
use crate::error::Error;
use crate::onnx::tensor_proto::{DataLocation, DataType};
use crate::onnx::{SparseTensorProto, TensorProto};

/// Numbers that are written out at a time before they are hashed.
const CHUNK_NUMBERS: usize = 1 << 12;

/// How elements of a type lie in `raw_data`.
#[derive(Clone, Copy)]
struct Layout {
    bits: u64,
    list: List,
}

/// The list that holds them instead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Floats,
    Doubles,
    /// The number of bytes of each entry that count.
    Int32(usize),
    Int64,
    Uint64(usize),
}

/// A tensor by shape, element type and elements.
///
/// # Errors
/// If its elements are in another file, in more than one place, or do not fit shape and type.
pub(super) fn of_tensor(tensor: &TensorProto) -> Result<ValueHash, Error> {
    let refused = |problem: String| Error::Tensor { tensor: tensor.name().to_owned(), problem };
    inside(tensor)?;
    if tensor.segment.is_some() {
        return Err(refused("is one of several segments; expected whole tensors".to_owned()));
    }
    let count = tensor.dims.iter().try_fold(1_u64, |count, &dim| count.checked_mul(u64::try_from(dim).ok()?));
    let count = count.ok_or_else(|| {
        refused(format!("has the shape {:?}; expected dimensions of 0 or more whose product fits 64 bits", tensor.dims))
    })?;
    let sum = Sum::of("tensor").int(tensor.data_type().into()).ints(&tensor.dims);
    if places(tensor) > 1 {
        return Err(refused("has elements in more than one place; expected one".to_owned()));
    }
    if tensor.data_type() == i32::from(DataType::String) {
        let sum = strings(tensor, count, sum).map_err(refused)?;
        return Ok(sum.hash());
    }
    let kind = tensor.data_type();
    let layout = layout(kind).ok_or_else(|| refused(format!("has elements of the unknown type {kind}")))?;
    let bytes = count.checked_mul(layout.bits).map(|bits| bits.div_ceil(8));
    let bytes = bytes.ok_or_else(|| refused(format!("has {count} elements; expected fewer")))?;
    let sum = match tensor.raw_data.as_deref().filter(|raw| !raw.is_empty()) {
        Some(raw) if raw.len() as u64 == bytes => Ok(sum.raw(raw)),
        Some(raw) => Err(format!("has {} bytes; expected {bytes} for {count} elements", raw.len())),
        None => listed(tensor, layout.list, bytes, sum),
    };
    sum.map(Sum::hash).map_err(refused)
}

/// Checks that the elements are in the model.
///
/// # Errors
/// If they are in another file.
pub(crate) fn inside(tensor: &TensorProto) -> Result<(), Error> {
    let is_outside = tensor.data_location.is_some_and(|place| place != i32::from(DataLocation::Default));
    if is_outside || !tensor.external_data.is_empty() {
        return Err(Error::External { tensor: tensor.name().to_owned() });
    }
    Ok(())
}

/// A sparse tensor by its shape, values and indices.
pub(super) fn of_sparse(sparse: &SparseTensorProto) -> Result<ValueHash, Error> {
    let part = |tensor: &Option<TensorProto>| tensor.as_ref().map(of_tensor).transpose();
    let sum = Sum::of("sparse tensor").ints(&sparse.dims);
    Ok(sum.optional(part(&sparse.values)?).optional(part(&sparse.indices)?).hash())
}

/// In how many fields the tensor has elements.
fn places(tensor: &TensorProto) -> usize {
    let TensorProto { float_data, int32_data, string_data, int64_data, raw_data, double_data, uint64_data, .. } =
        tensor;
    let has = [
        !float_data.is_empty(),
        !int32_data.is_empty(),
        !string_data.is_empty(),
        !int64_data.is_empty(),
        !double_data.is_empty(),
        !uint64_data.is_empty(),
        raw_data.as_ref().is_some_and(|raw| !raw.is_empty()),
    ];
    has.into_iter().filter(|&has| has).count()
}

fn layout(data_type: i32) -> Option<Layout> {
    let layout = |bits, list| Some(Layout { bits, list });
    match DataType::try_from(data_type).ok()? {
        DataType::Undefined | DataType::String => None,
        DataType::Float => layout(32, List::Floats),
        DataType::Complex64 => layout(64, List::Floats),
        DataType::Double => layout(64, List::Doubles),
        DataType::Complex128 => layout(128, List::Doubles),
        DataType::Int64 => layout(64, List::Int64),
        DataType::Uint64 => layout(64, List::Uint64(8)),
        DataType::Uint32 => layout(32, List::Uint64(4)),
        DataType::Int32 => layout(32, List::Int32(4)),
        DataType::Int16 | DataType::Uint16 | DataType::Float16 | DataType::Bfloat16 => layout(16, List::Int32(2)),
        DataType::Uint4 | DataType::Int4 | DataType::Float4e2m1 => layout(4, List::Int32(1)),
        DataType::Uint2 | DataType::Int2 => layout(2, List::Int32(1)),
        // Integers, truth values and floats of eight bits.
        _ => layout(8, List::Int32(1)),
    }
}

fn strings(tensor: &TensorProto, count: u64, sum: Sum) -> Result<Sum, String> {
    let has = tensor.string_data.len() as u64;
    if has != count || (has == 0 && places(tensor) > 0) {
        return Err(format!("has {has} strings; expected {count}"));
    }
    Ok(tensor.string_data.iter().fold(sum, |sum, string| sum.bytes(string)))
}

/// The elements of a typed list, as the bytes that `raw_data` would have.
fn listed(tensor: &TensorProto, list: List, bytes: u64, sum: Sum) -> Result<Sum, String> {
    let (entries, sum) = match list {
        List::Floats => numbers(&tensor.float_data, sum, |n, out| put(out, &n.to_le_bytes()))?,
        List::Doubles => numbers(&tensor.double_data, sum, |n, out| put(out, &n.to_le_bytes()))?,
        List::Int64 => numbers(&tensor.int64_data, sum, |n, out| put(out, &n.to_le_bytes()))?,
        List::Int32(width) => numbers(&tensor.int32_data, sum, |n, out| {
            fits(n.into(), width)?;
            put(out, &n.to_le_bytes()[..width])
        })?,
        List::Uint64(width) => numbers(&tensor.uint64_data, sum, |n, out| {
            fits(n.into(), width)?;
            put(out, &n.to_le_bytes()[..width])
        })?,
    };
    if entries != bytes {
        return Err(format!("has numbers for {entries} bytes; expected {bytes}, in the list of its type"));
    }
    Ok(sum)
}

/// The bytes that the numbers make, hashed, and how many they are.
fn numbers<T: Copy>(
    numbers: &[T],
    mut sum: Sum,
    write: impl Fn(T, &mut Vec<u8>) -> Result<(), String>,
) -> Result<(u64, Sum), String> {
    let (mut buffer, mut bytes) = (Vec::new(), 0);
    for chunk in numbers.chunks(CHUNK_NUMBERS) {
        buffer.clear();
        chunk.iter().try_for_each(|&number| write(number, &mut buffer))?;
        bytes += buffer.len() as u64;
        sum = sum.raw(&buffer);
    }
    Ok((bytes, sum))
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), String> {
    out.extend_from_slice(bytes);
    Ok(())
}

/// Whether the number has no more than `width` bytes, with a sign or without. Cut off, it would look like another one.
fn fits(number: i128, width: usize) -> Result<(), String> {
    let bits = 8 * width as u32;
    let (low, high) = (-(1_i128 << (bits - 1)), 1_i128 << bits);
    if (low..high).contains(&number) {
        Ok(())
    } else {
        Err(format!("has the number {number}, which is no element of its type"))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn tensor(data_type: DataType, dims: &[i64]) -> TensorProto {
        TensorProto { dims: dims.to_vec(), data_type: Some(data_type.into()), ..Default::default() }
    }

    fn raw(data_type: DataType, dims: &[i64], bytes: &[u8]) -> TensorProto {
        TensorProto { raw_data: Some(bytes.to_vec().into()), ..tensor(data_type, dims) }
    }

    fn same(a: &TensorProto, b: &TensorProto) {
        assert_eq!(of_tensor(a).unwrap(), of_tensor(b).unwrap(), "{a:?} {b:?}");
    }

    #[test]
    fn both_encodings_hash_alike() {
        let floats = TensorProto { float_data: vec![1.0, -0.0, f32::NAN], ..tensor(DataType::Float, &[3]) };
        let bytes: Vec<u8> = floats.float_data.iter().flat_map(|number| number.to_le_bytes()).collect();
        same(&floats, &raw(DataType::Float, &[3], &bytes));
        let halves = TensorProto { int32_data: vec![0x3c00, 0xbc00], ..tensor(DataType::Float16, &[2]) };
        same(&halves, &raw(DataType::Float16, &[2], &[0x00, 0x3c, 0x00, 0xbc]));
        let bytes = TensorProto { int32_data: vec![-1, 127], ..tensor(DataType::Int8, &[2]) };
        same(&bytes, &raw(DataType::Int8, &[2], &[0xff, 0x7f]));
        let nibbles = TensorProto { int32_data: vec![0x21, 0x03], ..tensor(DataType::Uint4, &[3]) };
        same(&nibbles, &raw(DataType::Uint4, &[3], &[0x21, 0x03]));
        let longs = TensorProto { int64_data: vec![-2], ..tensor(DataType::Int64, &[]) };
        same(&longs, &raw(DataType::Int64, &[], &(-2_i64).to_le_bytes()));
        let words = TensorProto { uint64_data: vec![7, u64::from(u32::MAX)], ..tensor(DataType::Uint32, &[2]) };
        same(&words, &raw(DataType::Uint32, &[2], &[7, 0, 0, 0, 255, 255, 255, 255]));
        let none = tensor(DataType::Float, &[0, 4]);
        same(&none, &raw(DataType::Float, &[0, 4], &[]));
    }

    #[test]
    fn shape_type_and_every_bit_count() {
        let base = of_tensor(&raw(DataType::Float, &[2], &[0; 8])).unwrap();
        assert_ne!(base, of_tensor(&raw(DataType::Float, &[1, 2], &[0; 8])).unwrap());
        assert_ne!(base, of_tensor(&raw(DataType::Int32, &[2], &[0; 8])).unwrap());
        assert_ne!(base, of_tensor(&raw(DataType::Float, &[2], &[0, 0, 0, 0x80, 0, 0, 0, 0])).unwrap());
        let strings = |first: &str, second: &str| {
            let string_data = vec![Bytes::copy_from_slice(first.as_bytes()), Bytes::copy_from_slice(second.as_bytes())];
            of_tensor(&TensorProto { string_data, ..tensor(DataType::String, &[2]) }).unwrap()
        };
        assert_ne!(strings("ab", "c"), strings("a", "bc"));
    }

    #[test]
    fn what_is_ambiguous_or_does_not_fit_is_refused_in_words() {
        let words = |tensor: &TensorProto| of_tensor(tensor).unwrap_err().to_string();
        let short = raw(DataType::Float, &[2], &[0; 4]);
        assert_eq!(words(&short), "tensor `` has 4 bytes; expected 8 for 2 elements");
        let both = TensorProto { float_data: vec![0.0], ..raw(DataType::Float, &[1], &[0; 4]) };
        assert!(words(&both).contains("more than one place"));
        let other = TensorProto { int64_data: vec![0], ..tensor(DataType::Float, &[1]) };
        assert!(words(&other).contains("in the list of its type"));
        let large = TensorProto { int32_data: vec![256], ..tensor(DataType::Uint8, &[1]) };
        assert!(words(&large).contains("the number 256"));
        assert!(words(&tensor(DataType::Float, &[-1])).contains("dimensions"));
        assert!(words(&tensor(DataType::Float, &[i64::MAX, 3])).contains("dimensions"));
        let unknown = TensorProto { data_type: Some(99), ..raw(DataType::Float, &[1], &[0; 4]) };
        assert!(words(&unknown).contains("unknown type 99"));
        let external =
            TensorProto { data_location: Some(DataLocation::External.into()), ..tensor(DataType::Float, &[1]) };
        assert_eq!(of_tensor(&external), Err(Error::External { tensor: String::new() }));
        assert!(words(&tensor(DataType::String, &[1])).contains("0 strings; expected 1"));
    }
}
