//! Encoding of values: integers have variable length, variants are one byte, sequences start with their length.
//!
//! Written by hand instead of derived, so that equal values have equal bytes, a step is encoded without allocation, and
//! an addition to an input or action fails to compile in `encodings.rs` instead of silently changing the format
//! (docs/adr/0009).

use crate::TapeError;

/// A value on a tape.
pub(crate) trait Coded: Sized {
    /// Appends its bytes.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads it back.
    fn take(from: &mut Source<'_>) -> Result<Self, TapeError>;
}

/// A reader of bytes that knows their offset on the tape.
#[derive(Clone, Debug)]
pub(crate) struct Source<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Source<'a> {
    /// `bytes` start at `offset` of the tape.
    pub(crate) const fn new(bytes: &'a [u8], offset: usize) -> Self {
        Self { rest: bytes, offset }
    }

    /// The offset of the next byte on the tape.
    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `length` bytes.
    pub(crate) fn bytes(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], TapeError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(length) else {
            return Err(TapeError::Short { offset: self.offset, what });
        };
        (self.rest, self.offset) = (rest, self.offset + length);
        Ok(bytes)
    }

    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, TapeError> {
        Ok(self.bytes(1, what)?[0])
    }

    /// The length of a sequence whose members take at least one byte each.
    pub(crate) fn length(&mut self, what: &'static str) -> Result<usize, TapeError> {
        let (offset, got) = (self.offset, u64::take(self)?);
        match usize::try_from(got) {
            Ok(length) if length <= self.rest.len() => Ok(length),
            _ => Err(TapeError::NoSuch { offset, what, got }),
        }
    }
}

impl Coded for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        from.byte("a small number")
    }
}

impl Coded for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let offset = from.offset();
        let mut number = 0;
        for shift in (0..Self::BITS).step_by(7) {
            let byte = from.byte("a number")?;
            let bits = Self::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(TapeError::NoSuch { offset, what: "tenth byte of a number", got: bits });
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(TapeError::NoSuch { offset, what: "number of at most ten bytes", got: number })
    }
}

impl Coded for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(*self).put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let (offset, got) = (from.offset(), u64::take(from)?);
        Self::try_from(got).map_err(|_| TapeError::NoSuch { offset, what: "number of 32 bits", got })
    }
}

impl Coded for usize {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64).put(out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let (offset, got) = (from.offset(), u64::take(from)?);
        Self::try_from(got).map_err(|_| TapeError::NoSuch { offset, what: "size", got })
    }
}

impl<T: Coded> Coded for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                value.put(out);
            }
        }
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        let offset = from.offset();
        match from.byte("an optional value")? {
            0 => Ok(None),
            1 => Ok(Some(T::take(from)?)),
            got => Err(TapeError::NoSuch { offset, what: "optional value", got: got.into() }),
        }
    }
}

impl<T: Coded> Coded for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_list(self, out);
    }

    fn take(from: &mut Source<'_>) -> Result<Self, TapeError> {
        // Not reserved in advance: a length is trusted only as far as there are values.
        (0..from.length("length of a list")?).map(|_| T::take(from)).collect()
    }
}

/// A text as its length and its bytes, cut to `bytes_max`.
pub(crate) fn put_text(text: &str, bytes_max: usize, out: &mut Vec<u8>) {
    let text = &text[..text.floor_char_boundary(bytes_max)];
    text.len().put(out);
    out.extend_from_slice(text.as_bytes());
}

/// A text of at most `bytes_max` bytes.
pub(crate) fn take_text(from: &mut Source<'_>, bytes_max: usize) -> Result<String, TapeError> {
    let offset = from.offset();
    let length = from.length("length of a name")?;
    if length > bytes_max {
        return Err(TapeError::NoSuch { offset, what: "length of a name", got: length as u64 });
    }
    let text = std::str::from_utf8(from.bytes(length, "a name")?);
    Ok(text.map_err(|_| TapeError::NotText { offset })?.to_owned())
}

/// A list as its length and its members.
pub(crate) fn put_list<T: Coded>(list: &[T], out: &mut Vec<u8>) {
    list.len().put(out);
    for value in list {
        value.put(out);
    }
}

/// A struct as its fields in order. A field that is missing here fails to compile.
macro_rules! coded_struct {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Coded for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let Self { $($field),* } = self;
                $($crate::codec::Coded::put($field, out);)*
            }

            fn take(from: &mut $crate::codec::Source<'_>) -> Result<Self, $crate::TapeError> {
                Ok(Self { $($field: $crate::codec::Coded::take(from)?),* })
            }
        }
    };
}

/// An enum as a byte for the variant, and its fields. A variant that is missing here fails to compile.
macro_rules! coded_enum {
    ($name:ident, $what:literal { $($tag:literal => $variant:ident
        $( ( $($tuple:ident),* ) )? $( { $($field:ident),* } )? ),* $(,)? }) => {
        impl $crate::codec::Coded for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $( ( $($tuple),* ) )? $( { $($field),* } )? => {
                        out.push($tag);
                        $( $($crate::codec::Coded::put($tuple, out);)* )?
                        $( $($crate::codec::Coded::put($field, out);)* )?
                    })*
                }
            }

            fn take(from: &mut $crate::codec::Source<'_>) -> Result<Self, $crate::TapeError> {
                let offset = from.offset();
                match from.byte($what)? {
                    $($tag => {
                        $( $(let $tuple = $crate::codec::Coded::take(from)?;)* )?
                        $( $(let $field = $crate::codec::Coded::take(from)?;)* )?
                        Ok(Self::$variant $( ( $($tuple),* ) )? $( { $($field),* } )?)
                    })*
                    got => Err($crate::TapeError::NoSuch { offset, what: $what, got: got.into() }),
                }
            }
        }
    };
}

pub(crate) use {coded_enum, coded_struct};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read<T: Coded>(bytes: &[u8]) -> Result<T, TapeError> {
        T::take(&mut Source::new(bytes, 0))
    }

    #[test]
    fn numbers_too_large_for_their_type_are_refused_where_they_stand() {
        let mut bytes = Vec::new();
        (u64::from(u32::MAX) + 1).put(&mut bytes);
        assert!(matches!(read::<u32>(&bytes), Err(TapeError::NoSuch { offset: 0, got: 0x1_0000_0000, .. })));
        assert!(matches!(read::<u64>(&[0xff; 10]), Err(TapeError::NoSuch { .. })), "70 bits");
        assert!(matches!(read::<u64>(&[0x80, 0x80]), Err(TapeError::Short { offset: 2, .. })));
    }

    #[test]
    fn a_list_longer_than_its_bytes_is_refused_before_it_is_read() {
        let mut bytes = Vec::new();
        u64::MAX.put(&mut bytes);
        assert!(matches!(read::<Vec<u64>>(&bytes), Err(TapeError::NoSuch { what: "length of a list", .. })));
    }

    proptest! {
        #[test]
        fn numbers_are_read_as_they_were_written(numbers: Vec<u64>, word: Option<u32>) {
            let mut bytes = Vec::new();
            numbers.put(&mut bytes);
            word.put(&mut bytes);
            let mut from = Source::new(&bytes, 0);
            prop_assert_eq!(Vec::<u64>::take(&mut from), Ok(numbers));
            prop_assert_eq!(<Option<u32> as Coded>::take(&mut from), Ok(word));
            prop_assert!(from.is_empty());
        }
    }
}
