//! Tensors with a name, a type and a shape, in wire format: little-endian, row-major, without gaps.

use std::fmt;

use bytes::Bytes;
use symphony_types::DataType;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// Elements of a fixed width.
    Fixed(DataType),
    /// Byte strings of any length: encoded pictures, labels.
    Bytes,
}

impl ElementType {
    /// The protocol's name of the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed(data_type) => data_type.name(),
            Self::Bytes => "BYTES",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        if name == Self::Bytes.name() { Some(Self::Bytes) } else { name.parse().ok().map(Self::Fixed) }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Rust's types that tensors are made of and read as. FP16 has none: see [`Tensor::raw`].
pub trait Element: Copy + sealed::Sealed {
    /// The protocol's type.
    const DATA_TYPE: DataType;
    /// Appends the element, little-endian.
    fn append(self, bytes: &mut Vec<u8>);
    /// Reads one element of exactly its own width.
    fn read(bytes: &[u8]) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($rust:ty => $data_type:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DATA_TYPE: DataType = DataType::$data_type;
            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<Self>()];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }
        }
    )*};
}

elements!(
    u8 => Uint8, u16 => Uint16, u32 => Uint32, u64 => Uint64,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    f32 => Fp32, f64 => Fp64,
);

impl sealed::Sealed for bool {}
impl Element for bool {
    const DATA_TYPE: DataType = DataType::Bool;
    fn append(self, bytes: &mut Vec<u8>) {
        bytes.push(self.into());
    }
    fn read(bytes: &[u8]) -> Self {
        bytes.first().is_some_and(|&byte| byte != 0)
    }
}

/// Why bytes, shape and type do not form a tensor, or not the requested one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// The number of elements contradicts the shape.
    #[error("tensor `{name}` of {element} has {got} in its data; its shape {shape:?} says {expected}")]
    Size {
        /// Name of the tensor.
        name: String,
        /// Type of its elements.
        element: ElementType,
        /// Its shape, with the dimension that counts items.
        shape: Vec<u64>,
        /// The expected contents, as text.
        expected: String,
        /// The actual contents, as text.
        got: String,
    },
    /// It is of another type.
    #[error("tensor `{name}` is of {got}; asked for as {asked}")]
    Type {
        /// Name of the tensor.
        name: String,
        /// Type of its elements.
        got: ElementType,
        /// Type of the elements that the caller asked for.
        asked: ElementType,
    },
}

/// A tensor: its name, the type of its elements, its shape (with the dimension that counts items), and its data, which
/// always fits the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    name: String,
    element: ElementType,
    shape: Vec<u64>,
    data: Bytes,
}

impl Tensor {
    /// A tensor of these elements.
    ///
    /// # Errors
    /// If the shape stands for another number of elements.
    pub fn new<T: Element>(name: impl Into<String>, shape: &[u64], values: &[T]) -> Result<Self, TensorError> {
        let mut data = Vec::with_capacity(size_of_val(values));
        values.iter().for_each(|&value| value.append(&mut data));
        Self::raw(name, ElementType::Fixed(T::DATA_TYPE), shape, data.into())
    }

    /// A tensor of byte strings, for example of encoded pictures.
    ///
    /// # Errors
    /// If the shape stands for another number of strings, or one is longer than 4 GiB.
    pub fn bytes<V: AsRef<[u8]>>(name: impl Into<String>, shape: &[u64], values: &[V]) -> Result<Self, TensorError> {
        let lengths: usize = values.iter().map(|value| LENGTH_BYTES + value.as_ref().len()).sum();
        let mut data = Vec::with_capacity(lengths);
        for value in values.iter().map(AsRef::as_ref) {
            // A longer one does not fit a message by far; its length then is not that of its data, which is refused
            // below.
            let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
            data.extend_from_slice(&length.to_le_bytes());
            data.extend_from_slice(value);
        }
        Self::raw(name, ElementType::Bytes, shape, data.into())
    }

    /// A tensor of bytes as they travel: little-endian, row-major; of byte strings each with its length, a `u32`,
    /// before it.
    ///
    /// # Errors
    /// If the shape stands for another number of elements.
    pub fn raw(name: impl Into<String>, element: ElementType, shape: &[u64], data: Bytes) -> Result<Self, TensorError> {
        let name = name.into();
        let elements = shape.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim));
        let size = |expected: String, got: String| TensorError::Size {
            name: name.clone(),
            element,
            shape: shape.to_vec(),
            expected,
            got,
        };
        let elements = elements.ok_or_else(|| size("more than can be".to_owned(), format!("{} bytes", data.len())))?;
        match element {
            ElementType::Fixed(data_type) => {
                let expected = elements.checked_mul(data_type.size_bytes() as u64);
                if expected != Some(data.len() as u64) {
                    let width = data_type.size_bytes();
                    return Err(size(format!("{elements} × {width} bytes"), format!("{} bytes", data.len())));
                }
            }
            ElementType::Bytes => {
                match Strings(data.clone()).try_fold(0_u64, |count, string| string.map(|_| count + 1)) {
                    Ok(count) if count == elements => {}
                    Ok(count) => return Err(size(format!("{elements} strings"), format!("{count} strings"))),
                    Err(Cut) => return Err(size(format!("{elements} strings"), "a string that is cut off".to_owned())),
                }
            }
        }
        Ok(Self { name, element, shape: shape.to_vec(), data })
    }

    /// Name of the input or output that it is.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its data consists of.
    #[must_use]
    pub const fn element(&self) -> ElementType {
        self.element
    }

    /// Its shape; the first dimension counts items.
    #[must_use]
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Its data as it travels.
    #[must_use]
    pub const fn data(&self) -> &Bytes {
        &self.data
    }

    /// Its data as it travels, without a copy.
    #[must_use]
    pub fn into_data(self) -> Bytes {
        self.data
    }

    /// Its elements.
    ///
    /// # Errors
    /// If they are of another type.
    pub fn values<T: Element>(&self) -> Result<Vec<T>, TensorError> {
        self.must_be(ElementType::Fixed(T::DATA_TYPE))?;
        Ok(self.data.chunks_exact(T::DATA_TYPE.size_bytes()).map(T::read).collect())
    }

    /// Its byte strings, without a copy.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn byte_strings(&self) -> Result<Vec<Bytes>, TensorError> {
        self.must_be(ElementType::Bytes)?;
        // Checked when it was made.
        Ok(Strings(self.data.clone()).map_while(Result::ok).collect())
    }

    fn must_be(&self, expected: ElementType) -> Result<(), TensorError> {
        if self.element == expected {
            return Ok(());
        }
        Err(TensorError::Type { name: self.name.clone(), got: self.element, asked: expected })
    }
}

/// Bytes of the length in front of each string.
const LENGTH_BYTES: usize = size_of::<u32>();

/// The rest of the strings of a tensor.
struct Strings(Bytes);

/// A string is shorter than its length.
#[derive(Debug)]
struct Cut;

impl Iterator for Strings {
    type Item = Result<Bytes, Cut>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let Some((&length, _)) = self.0.split_first_chunk::<LENGTH_BYTES>() else { return Some(Err(Cut)) };
        let end = (u32::from_le_bytes(length) as usize).checked_add(LENGTH_BYTES).filter(|&end| end <= self.0.len());
        let Some(end) = end else { return Some(Err(Cut)) };
        Some(Ok(self.0.split_to(end).slice(LENGTH_BYTES..)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip<T: Element + PartialEq + fmt::Debug>(values: &[T]) {
        let tensor = Tensor::new("x", &[values.len() as u64, 1], values).unwrap();
        assert_eq!(tensor.values::<T>().unwrap(), values);
        assert_eq!(tensor.data().len(), size_of_val(values));
    }

    #[test]
    fn elements_of_every_type_come_out_as_they_went_in() {
        round_trip(&[true, false]);
        round_trip(&[u8::MAX, 1]);
        round_trip(&[u16::MAX, 1]);
        round_trip(&[u32::MAX, 1]);
        round_trip(&[u64::MAX, 1]);
        round_trip(&[i8::MIN, 1]);
        round_trip(&[i16::MIN, 1]);
        round_trip(&[i32::MIN, 1]);
        round_trip(&[i64::MIN, 1]);
        round_trip(&[f32::MIN_POSITIVE, -1.5]);
        round_trip(&[f64::MIN_POSITIVE, -1.5]);
        let words = [&b"one"[..], b"", b"three"];
        let tensor = Tensor::bytes("w", &[3], &words).unwrap();
        assert_eq!(tensor.byte_strings().unwrap(), words);
        assert_eq!(&tensor.data()[..7], b"\x03\0\0\0one");
    }

    #[test]
    fn shapes_that_do_not_fit_and_types_that_are_others_are_refused_with_both() {
        let error = Tensor::new("x", &[2, 2], &[1.0_f32]).unwrap_err();
        assert_eq!(error.to_string(), "tensor `x` of FP32 has 4 bytes in its data; its shape [2, 2] says 4 × 4 bytes");
        assert!(Tensor::new("x", &[u64::MAX, 2], &[1.0_f32]).is_err());
        let error = Tensor::bytes("w", &[2], &["one"]).unwrap_err();
        assert!(error.to_string().contains("has 1 strings in its data; its shape [2] says 2 strings"), "{error}");
        let cut = Bytes::from_static(b"\x09\0\0\0one");
        assert!(Tensor::raw("w", ElementType::Bytes, &[1], cut).unwrap_err().to_string().contains("cut off"));
        let tensor = Tensor::new("x", &[1], &[1_i64]).unwrap();
        let error = tensor.values::<f32>().unwrap_err();
        assert_eq!(error.to_string(), "tensor `x` is of INT64; asked for as FP32");
        assert!(tensor.byte_strings().is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_taken_as_strings_is_read_whole(
            data in proptest::collection::vec(any::<u8>(), 0..64), strings in 0_u64..4,
        ) {
            if let Ok(tensor) = Tensor::raw("w", ElementType::Bytes, &[strings], data.clone().into()) {
                let strings = tensor.byte_strings().unwrap();
                let bytes: usize = strings.iter().map(|string| LENGTH_BYTES + string.len()).sum();
                prop_assert_eq!(bytes, data.len());
            }
        }
    }
}
