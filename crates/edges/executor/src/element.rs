//! Little-endian bytes to typed elements and back: ONNX Runtime's safe interface takes and gives typed slices.

use ort::session::SessionInputValue;
use ort::value::{DynValue, TensorElementType, TensorRef};
use symphony_types::DataType;

fn repeat_last<T: Copy>(elements: &mut Vec<T>, item: usize, times: usize) {
    let last = elements.len().saturating_sub(item)..elements.len();
    for _ in 0..times {
        elements.extend_from_within(last.clone());
    }
}

macro_rules! elements {
    (Bool: bool, Bool; $($variant:ident: $number:ty, $element:ident;)*) => {
        /// A typed buffer of one input, refilled for each batch.
        #[derive(Debug)]
        pub(crate) enum Elements {
            Bool(Vec<bool>),
            $($variant(Vec<$number>),)*
        }

        /// The data type of a tensor in ONNX Runtime's words; `None` if the executor cannot take or give such elements.
        pub(crate) fn data_type_of(element: TensorElementType) -> Option<DataType> {
            match element {
                TensorElementType::Bool => Some(DataType::Bool),
                $(TensorElementType::$element => Some(DataType::$variant),)*
                _ => None,
            }
        }

        impl Elements {
            /// An empty buffer.
            pub(crate) fn new(data_type: DataType) -> Self {
                match data_type {
                    DataType::Bool => Self::Bool(Vec::new()),
                    $(DataType::$variant => Self::$variant(Vec::new()),)*
                }
            }

            /// Replaces the content by what `bytes` spell. Their length is a multiple of the element's: callers check.
            pub(crate) fn fill(&mut self, bytes: &[u8]) {
                match self {
                    // Any byte but zero is true: the bytes come from clients.
                    Self::Bool(elements) => {
                        elements.clear();
                        elements.extend(bytes.iter().map(|&byte| byte != 0));
                    }
                    $(Self::$variant(elements) => {
                        const SIZE: usize = size_of::<$number>();
                        let spelled = bytes.as_chunks::<SIZE>().0.iter().map(|&b| <$number>::from_le_bytes(b));
                        elements.clear();
                        elements.extend(spelled);
                    })*
                }
            }

            /// Repeats the last `item` elements this many times: whatever is filled up must be something that the model
            /// takes.
            pub(crate) fn repeat_last(&mut self, item: usize, times: usize) {
                match self {
                    Self::Bool(elements) => repeat_last(elements, item, times),
                    $(Self::$variant(elements) => repeat_last(elements, item, times),)*
                }
            }

            /// The content as a tensor of this shape.
            pub(crate) fn as_input<'a>(&'a self, shape: &'a [i64]) -> ort::Result<SessionInputValue<'a>> {
                Ok(match self {
                    Self::Bool(elements) => TensorRef::from_array_view((shape, elements.as_slice()))?.into(),
                    $(Self::$variant(elements) => TensorRef::from_array_view((shape, elements.as_slice()))?.into(),)*
                })
            }
        }

        /// Appends a tensor's elements to `bytes`. A tensor of another type is an error.
        pub(crate) fn append_bytes(value: &DynValue, data_type: DataType, bytes: &mut Vec<u8>) -> ort::Result<()> {
            match data_type {
                DataType::Bool => bytes.extend(value.try_extract_tensor::<bool>()?.1.iter().map(|&b| u8::from(b))),
                $(DataType::$variant => {
                    bytes.extend(value.try_extract_tensor::<$number>()?.1.iter().flat_map(|number| number.to_le_bytes()));
                })*
            }
            Ok(())
        }
    };
}

crate::with_element_types!(elements);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_little_endian_and_any_byte_but_zero_is_true() {
        let mut shorts = Elements::new(DataType::Int16);
        shorts.fill(&[1, 0, 0xff, 0xff]);
        assert!(matches!(&shorts, Elements::Int16(v) if v == &[1, -1]));
        shorts.fill(&[2, 1]);
        assert!(matches!(&shorts, Elements::Int16(v) if v == &[258]));
        let mut bools = Elements::new(DataType::Bool);
        bools.fill(&[0, 1, 7]);
        assert!(matches!(&bools, Elements::Bool(v) if v == &[false, true, true]));
        let mut halves = Elements::new(DataType::Fp16);
        halves.fill(&[0x00, 0x3c, 0x00, 0xc1]);
        assert!(matches!(&halves, Elements::Fp16(v) if v.iter().map(|half| half.to_f32()).eq([1.0, -2.5])));
    }

    #[test]
    fn the_last_item_is_repeated() {
        let mut numbers = Elements::new(DataType::Uint8);
        numbers.fill(&[1, 2, 3, 4]);
        numbers.repeat_last(2, 2);
        assert!(matches!(&numbers, Elements::Uint8(v) if v == &[1, 2, 3, 4, 3, 4, 3, 4]));
    }
}
