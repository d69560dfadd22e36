//! Elements of BYTES as they travel raw: each with its length, a little-endian `u32`, before it.

use bytes::Bytes;

const LENGTH_BYTES: usize = size_of::<u32>();

/// Cuts `data` into `count` strings, without a copy.
pub(crate) fn decode(mut data: Bytes, count: usize) -> Result<Vec<Bytes>, String> {
    let mut strings = Vec::new();
    for index in 0..count {
        let length = data.split_first_chunk::<LENGTH_BYTES>().map(|(length, _)| u32::from_le_bytes(*length) as usize);
        let end = length.and_then(|length| length.checked_add(LENGTH_BYTES)).filter(|&end| end <= data.len());
        let Some(end) = end else {
            let left = data.len();
            return Err(format!(
                "element {index} of {count} is cut off: {left} bytes are left for its length and itself"
            ));
        };
        strings.push(data.split_to(end).slice(LENGTH_BYTES..));
    }
    if data.is_empty() { Ok(strings) } else { Err(format!("{} bytes are left behind {count} elements", data.len())) }
}

/// The strings as they travel.
pub(crate) fn encode(strings: &[String]) -> Bytes {
    let mut data = Vec::with_capacity(strings.iter().map(|string| LENGTH_BYTES + string.len()).sum());
    for string in strings {
        // Labels and numbers: far shorter.
        data.extend_from_slice(&u32::try_from(string.len()).unwrap_or(u32::MAX).to_le_bytes());
        data.extend_from_slice(string.as_bytes());
    }
    data.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_cut_off_or_left_behind_is_told() {
        let data = encode(&["one".to_owned(), String::new()]);
        assert_eq!(&data[..], b"\x03\0\0\0one\0\0\0\0");
        assert!(decode(data.slice(..6), 1).unwrap_err().contains("element 0 of 1 is cut off: 6 bytes are left"));
        assert!(decode(data.clone(), 3).unwrap_err().contains("element 2 of 3 is cut off"));
        assert_eq!(decode(data, 1).unwrap_err(), "4 bytes are left behind 1 elements");
        assert!(decode(Bytes::from_static(&[0xff; 8]), 1).is_err());
    }

    proptest! {
        #[test]
        fn strings_survive_and_no_bytes_panic(strings in prop::collection::vec(".*", 0..5), count in 0_usize..9, data in prop::collection::vec(any::<u8>(), 0..40)) {
            let back = decode(encode(&strings), strings.len()).unwrap();
            prop_assert!(back.iter().eq(strings.iter().map(String::as_bytes)));
            let _ = decode(data.into(), count);
        }
    }
}
