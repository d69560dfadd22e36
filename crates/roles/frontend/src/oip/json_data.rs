//! Elements of a tensor in JSON ⇄ little-endian bytes.
//!
//! The text is read straight into bytes, without a tree between them: a tree would take 32 bytes for each `0,`.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use symphony_types::DataType;

use super::typed_data::elements;

/// Appends the elements of a JSON array to `out`. The array is flat, or nested exactly like `shape`, which has been
/// checked against a signature.
pub(crate) fn decode(text: &RawValue, data_type: DataType, shape: &[i64], out: &mut Vec<u8>) -> Result<(), String> {
    if data_type == DataType::Fp16 {
        return Err("FP16 cannot be sent as JSON; send it as binary data (binary_data_size)".into());
    }
    let expected = shape.iter().try_fold(1_usize, |count, &dim| count.checked_mul(usize::try_from(dim).ok()?));
    let Some(expected) = expected else { return Err("the shape has too many elements".into()) };
    let mut reader = Reader { data_type, shape, expected, found: 0, nesting: None, out };
    let mut deserializer = serde_json::Deserializer::from_str(text.get());
    Level { reader: &mut reader, depth: 0 }.deserialize(&mut deserializer).map_err(|error| format!("data: {error}"))?;
    if reader.found != expected {
        return Err(format!("data has {} elements; expected {expected}, as its shape says", reader.found));
    }
    Ok(())
}

struct Reader<'a> {
    data_type: DataType,
    shape: &'a [i64],
    expected: usize,
    found: usize,
    // The depth at which elements stand: 1 in a flat array, the rank of the shape in a nested one.
    nesting: Option<usize>,
    out: &'a mut Vec<u8>,
}

/// One value in the array of arrays, `depth` brackets deep.
struct Level<'r, 'a> {
    reader: &'r mut Reader<'a>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Level<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Level<'_, '_> {
    fn element<E: serde::de::Error>(self, bytes: Option<&[u8]>, value: &dyn fmt::Display) -> Result<(), E> {
        let Self { reader, depth } = self;
        let Some(bytes) = bytes else {
            return Err(E::custom(format_args!("{value} is not a value of {}", reader.data_type)));
        };
        let nesting = *reader.nesting.get_or_insert(depth);
        if depth != nesting || (depth != 1 && depth != reader.shape.len()) {
            return Err(E::custom("expected a flat array, or arrays nested like the shape"));
        }
        if reader.found == reader.expected {
            return Err(E::custom(format_args!("more than the {} elements that the shape says", reader.expected)));
        }
        reader.found += 1;
        reader.out.extend_from_slice(bytes);
        Ok(())
    }

    fn integer<E: serde::de::Error>(self, value: i128) -> Result<(), E> {
        macro_rules! narrowed {
            ($t:ty) => {
                self.element(<$t>::try_from(value).ok().map(<$t>::to_le_bytes).as_ref().map(|b| b.as_slice()), &value)
            };
        }
        match self.reader.data_type {
            DataType::Int8 => narrowed!(i8),
            DataType::Int16 => narrowed!(i16),
            DataType::Int32 => narrowed!(i32),
            DataType::Int64 => narrowed!(i64),
            DataType::Uint8 => narrowed!(u8),
            DataType::Uint16 => narrowed!(u16),
            DataType::Uint32 => narrowed!(u32),
            DataType::Uint64 => narrowed!(u64),
            DataType::Fp32 => self.element(Some(&(value as f32).to_le_bytes()), &value),
            DataType::Fp64 => self.element(Some(&(value as f64).to_le_bytes()), &value),
            DataType::Bool | DataType::Fp16 => self.element(None, &value),
        }
    }
}

impl<'de> Visitor<'de> for Level<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of {}", self.reader.data_type)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        let byte = [u8::from(value)];
        let fits = self.reader.data_type == DataType::Bool;
        self.element(fits.then_some(byte.as_slice()), &value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        match self.reader.data_type {
            // The text was finite, so an infinity here means that the number was too large.
            DataType::Fp32 => {
                let narrowed = value as f32;
                let bytes = narrowed.to_le_bytes();
                self.element(narrowed.is_finite().then_some(bytes.as_slice()), &value)
            }
            DataType::Fp64 => self.element(Some(&value.to_le_bytes()), &value),
            _ => self.element(None, &value),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        let Self { reader, depth } = self;
        if depth >= reader.shape.len() {
            return Err(A::Error::custom(format_args!("arrays are nested deeper than the shape's {depth} dimensions")));
        }
        let mut length = 0_usize;
        while array.next_element_seed(Level { reader: &mut *reader, depth: depth + 1 })?.is_some() {
            length += 1;
        }
        // A flat array is judged by its elements alone, at the end.
        let nested = depth > 0 || reader.nesting != Some(1) || reader.shape.len() == 1;
        if nested && i64::try_from(length) != Ok(reader.shape[depth]) {
            return Err(A::Error::custom(format_args!(
                "an array of dimension {depth} has {length} elements; expected {}, as the shape says",
                reader.shape[depth]
            )));
        }
        Ok(())
    }
}

/// Writes the elements in `bytes` as a flat JSON array.
///
/// Numbers that are not finite become `NaN`, `Infinity` and `-Infinity`. Strict JSON has no word for them, but the
/// protocol's servers and clients use these; a client that wants strict JSON and models that overflow asks for binary.
pub(crate) fn encode(bytes: &[u8], data_type: DataType, out: &mut Vec<u8>) {
    out.push(b'[');
    match data_type {
        DataType::Bool => write_list(bytes.iter().map(|&byte| byte != 0), out),
        DataType::Int8 => write_list(elements(bytes, i8::from_le_bytes), out),
        DataType::Int16 => write_list(elements(bytes, i16::from_le_bytes), out),
        DataType::Int32 => write_list(elements(bytes, i32::from_le_bytes), out),
        DataType::Int64 => write_list(elements(bytes, i64::from_le_bytes), out),
        DataType::Uint8 => write_list(elements(bytes, u8::from_le_bytes), out),
        DataType::Uint16 => write_list(elements(bytes, u16::from_le_bytes), out),
        DataType::Uint32 => write_list(elements(bytes, u32::from_le_bytes), out),
        DataType::Uint64 => write_list(elements(bytes, u64::from_le_bytes), out),
        DataType::Fp32 => write_list(elements(bytes, f32::from_le_bytes).map(Float), out),
        DataType::Fp64 => write_list(elements(bytes, f64::from_le_bytes).map(Float), out),
        // Refused before the request runs, see `Selection`.
        DataType::Fp16 => {}
    }
    out.push(b']');
}

/// A number that may not be finite.
struct Float<T>(T);

trait JsonElement {
    fn write(&self, out: &mut Vec<u8>);
}

macro_rules! json_elements {
    ($($t:ty),*) => {
        $(impl JsonElement for $t {
            fn write(&self, out: &mut Vec<u8>) {
                use std::io::Write as _;
                // Writing to memory does not fail.
                let _ = write!(out, "{self}");
            }
        })*
    };
}

json_elements!(bool, i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! json_floats {
    ($($t:ty),*) => {
        $(impl JsonElement for Float<$t> {
            fn write(&self, out: &mut Vec<u8>) {
                let value = self.0;
                if value.is_nan() {
                    out.extend_from_slice(b"NaN");
                } else if value.is_infinite() {
                    out.extend_from_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
                } else {
                    // The shortest text that reads back as the same number; memory takes it without an error.
                    let _ = serde_json::to_writer(&mut *out, &value);
                }
            }
        })*
    };
}

json_floats!(f32, f64);

fn write_list<T: JsonElement>(values: impl Iterator<Item = T>, out: &mut Vec<u8>) {
    for (index, value) in values.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        value.write(out);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, data_type: DataType, shape: &[i64]) -> Result<Vec<u8>, String> {
        let text = RawValue::from_string(text.to_owned()).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        decode(&text, data_type, shape, &mut out).map(|()| out)
    }

    #[test]
    fn flat_and_nested_arrays_mean_the_same() {
        let flat = read("[1, 2, 3, 4, 5, 6]", DataType::Uint8, &[2, 3, 1]);
        assert_eq!(flat, Ok(vec![1, 2, 3, 4, 5, 6]));
        assert_eq!(read("[[[1],[2],[3]],[[4],[5],[6]]]", DataType::Uint8, &[2, 3, 1]), flat);
        assert_eq!(read("[true, false]", DataType::Bool, &[2]), Ok(vec![1, 0]));
    }

    #[test]
    fn arrays_of_another_shape_are_refused() {
        for (text, shape) in [
            ("[1,2,3]", [2, 2]),
            ("[1,2,3,4,5]", [2, 2]),
            ("[[1,2,3],[4]]", [2, 2]),
            ("[[1,2],[3,4],[5,6]]", [2, 2]),
            ("[[1,2]]", [2, 2]),
            ("[[1,2],3,4]", [2, 2]),
            ("[1,[2,3],4]", [2, 2]),
            ("[[[1]],[[2]]]", [2, 1]),
            ("[1,[]]", [1, 1]),
            ("[]", [1, 1]),
            ("[[],[]]", [2, 2]),
            ("7", [1, 1]),
            ("{\"a\":1}", [1, 1]),
            ("null", [1, 1]),
            ("[null]", [1, 1]),
            ("\"text\"", [1, 1]),
        ] {
            assert!(read(text, DataType::Uint8, &shape).is_err(), "{text}");
        }
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert!(read(&deep, DataType::Uint8, &[1, 1]).is_err());
    }

    #[test]
    fn values_outside_of_the_type_are_refused() {
        for (text, data_type) in [
            ("[256]", DataType::Uint8),
            ("[-1]", DataType::Uint64),
            ("[1.5]", DataType::Int32),
            ("[9223372036854775808]", DataType::Int64),
            ("[1e39]", DataType::Fp32),
            ("[1e999]", DataType::Fp64),
            ("[true]", DataType::Int8),
            ("[1]", DataType::Bool),
            ("[\"1\"]", DataType::Fp32),
            ("[1.0]", DataType::Fp16),
        ] {
            assert!(read(text, data_type, &[1]).is_err(), "{text} as {data_type}");
        }
    }

    #[test]
    fn numbers_that_are_not_finite_have_words() {
        let bytes: Vec<u8> =
            [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.5].into_iter().flat_map(f32::to_le_bytes).collect();
        let mut out = Vec::new();
        encode(&bytes, DataType::Fp32, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "[NaN,Infinity,-Infinity,1.5]");
    }

    proptest! {
        #[test]
        fn bytes_survive_the_way_through_json(count in 1_usize..20, seed in any::<[u8; 8]>()) {
            for data_type in DataType::ALL {
                let size = data_type.size_bytes();
                let mut bytes: Vec<u8> = seed.iter().copied().cycle().take(count * size).collect();
                let finite = match data_type {
                    DataType::Bool => {
                        bytes.iter_mut().for_each(|byte| *byte &= 1);
                        true
                    }
                    DataType::Fp32 => elements(&bytes, f32::from_le_bytes).all(f32::is_finite),
                    DataType::Fp64 => elements(&bytes, f64::from_le_bytes).all(f64::is_finite),
                    DataType::Fp16 => false,
                    _ => true,
                };
                if !finite {
                    continue;
                }
                let mut text = Vec::new();
                encode(&bytes, data_type, &mut text);
                let back = read(std::str::from_utf8(&text).unwrap(), data_type, &[count as i64]);
                prop_assert_eq!(back, Ok(bytes));
            }
        }

        #[test]
        fn no_text_panics(text in "[\\[\\],0-9.eE+\\-truefalsn\" ]{0,64}", dims in prop::collection::vec(-2_i64..5, 0..4)) {
            for data_type in DataType::ALL {
                let _ = read(&text, data_type, &dims);
            }
        }
    }
}
