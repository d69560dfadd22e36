//! Protobuf as it lies in the file: fields with their places, nothing decoded.

use std::ops::Range;

/// A varint of 64 bits.
const VARINT_BYTES_MAX: usize = 10;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Varint,
    Fixed64,
    Delimited,
    Fixed32,
}

/// One field, by its position in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) number: u32,
    pub(crate) wire: Wire,
    /// Key, length and value.
    pub(crate) whole: Range<usize>,
    /// The value alone.
    pub(crate) value: Range<usize>,
}

/// What is no field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoField {
    pub(crate) at: usize,
    pub(crate) problem: &'static str,
}

/// The fields of the message in a range of the file, in order; ends at the first invalid one.
pub(crate) struct Fields<'a> {
    /// The file up to the end of the message.
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// `range` is within `bytes`; what is beyond them counts as cut off.
    pub(crate) fn new(bytes: &'a [u8], range: &Range<usize>) -> Self {
        Self { bytes: &bytes[..range.end.min(bytes.len())], at: range.start }
    }

    fn field(&self) -> Result<Field, NoField> {
        let start = self.at;
        let bad = |problem| NoField { at: start, problem };
        let (key, at) = varint(self.bytes, start).ok_or_else(|| bad("a key is cut off"))?;
        let number = u32::try_from(key >> 3).ok().filter(|&number| number > 0);
        let number = number.ok_or_else(|| bad("a key has no number that fields may have"))?;
        let (wire, value) = match key & 7 {
            0 => {
                let (_, end) = varint(self.bytes, at).ok_or_else(|| bad("a number is cut off"))?;
                (Wire::Varint, Some(at..end))
            }
            1 => (Wire::Fixed64, after(at, 8)),
            2 => {
                let (length, at) = varint(self.bytes, at).ok_or_else(|| bad("a length is cut off"))?;
                (Wire::Delimited, usize::try_from(length).ok().and_then(|length| after(at, length)))
            }
            5 => (Wire::Fixed32, after(at, 4)),
            _ => return Err(bad("a group, which ONNX does not have")),
        };
        let value = value.filter(|value| value.end <= self.bytes.len());
        let value = value.ok_or_else(|| bad("a field reaches beyond its message"))?;
        Ok(Field { number, wire, whole: start..value.end, value })
    }
}

impl Iterator for Fields<'_> {
    type Item = Result<Field, NoField>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let field = self.field();
        self.at = field.as_ref().map_or(self.bytes.len(), |field| field.whole.end);
        Some(field)
    }
}

fn after(at: usize, length: usize) -> Option<Range<usize>> {
    Some(at..at.checked_add(length)?)
}

/// The number at `at`, and where it ends.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0_u64;
    for (index, &byte) in bytes.get(at..)?.iter().take(VARINT_BYTES_MAX).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some((number, at + index + 1));
        }
    }
    None
}

/// Appends a field of bytes: key, length, value.
pub(crate) fn put_delimited(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, out);
    prost::encoding::encode_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_where_they_lie() {
        let mut bytes = vec![0xff, 0x08, 0x96, 0x01, 0x15, 1, 2, 3, 4];
        put_delimited(&mut bytes, 300, b"ab");
        let fields: Vec<_> = Fields::new(&bytes, &(1..bytes.len())).map(Result::unwrap).collect();
        let found: Vec<_> = fields.iter().map(|field| (field.number, field.wire, field.value.clone())).collect();
        let expected = [(1, Wire::Varint, 2..4), (2, Wire::Fixed32, 5..9), (300, Wire::Delimited, 12..14)];
        assert_eq!(found, expected);
        assert_eq!(fields[2].whole, 9..14);
    }

    #[test]
    fn what_is_no_field_ends_the_message() {
        let problem = |bytes: &[u8]| {
            let found: Vec<_> = Fields::new(bytes, &(0..bytes.len())).collect();
            found.last().unwrap().as_ref().unwrap_err().problem
        };
        assert_eq!(problem(&[0x80]), "a key is cut off");
        assert_eq!(problem(&[0x00, 0x01]), "a key has no number that fields may have");
        assert_eq!(problem(&[0x08, 0x80]), "a number is cut off");
        assert_eq!(problem(&[0x0a, 0x02, 0x00]), "a field reaches beyond its message");
        assert_eq!(problem(&[0x0b]), "a group, which ONNX does not have");
        assert_eq!(
            problem(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
            "a field reaches beyond its message"
        );
    }
}
