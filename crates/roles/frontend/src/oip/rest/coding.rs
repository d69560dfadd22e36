//! Bodies that travel compressed: `content-encoding` of a request, `accept-encoding` of a client that wants its answer
//! so.

use std::io::{self, Read, Write};

use axum::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::oip::InferError;
use crate::oip::in_flight::{Unpacked, UnpackedLimit};
use crate::oip::refusal_text::{invalid, shorten};

/// Answers with fewer bytes fit a packet or two as they are.
pub(crate) const PACKED_BYTES_MIN: usize = 1 << 10;

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    /// What HTTP calls so: the format of zlib.
    Deflate,
}

impl Coding {
    /// All there are, the one that is preferred first.
    const ALL: [Self; 2] = [Self::Gzip, Self::Deflate];

    const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// The header's value for an answer.
    pub(crate) fn header(self) -> HeaderValue {
        HeaderValue::from_static(self.name())
    }

    /// How the body of a request is compressed, if it is.
    ///
    /// # Errors
    /// If in an unknown way.
    pub(crate) fn of_request(headers: &HeaderMap) -> Result<Option<Self>, InferError> {
        let mut lines = headers.get_all(header::CONTENT_ENCODING).iter();
        let Some(encoding) = lines.next() else { return Ok(None) };
        let named = |name: &str| encoding.as_bytes().eq_ignore_ascii_case(name.as_bytes());
        let refused = |encoding: &str| {
            InferError::Unsupported(format!("content-encoding is `{encoding}`; expected gzip, deflate, or none"))
        };
        if lines.next().is_some() {
            return Err(refused("there several times"));
        }
        if named("identity") {
            return Ok(None);
        }
        // A name of gzip from before HTTP had one.
        let coding = if named("x-gzip") { Some(Self::Gzip) } else { Self::ALL.into_iter().find(|c| named(c.name())) };
        coding.map(Some).ok_or_else(|| refused(&shorten(&String::from_utf8_lossy(encoding.as_bytes()))))
    }

    /// How a client asks for its answer, if it asks at all.
    pub(crate) fn of_answer(headers: &HeaderMap) -> Option<Self> {
        // What is no text asks for nothing.
        let encodings = || headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let takes = |name: &str| encodings().flat_map(|text| text.split(',')).any(|one| accepts(one, name));
        Self::ALL.into_iter().find(|coding| takes(coding.name()))
    }

    /// Unpacks `packed`. Unpacking stops at `bytes_max`: a thousand times as many may come of a few. `room` is what
    /// they take.
    ///
    /// # Errors
    /// If they are more, `packed` is malformed, or there is no room for them beside those of other requests.
    pub(crate) fn unpack(
        self,
        packed: &[u8],
        bytes_max: usize,
        room: Unpacked,
    ) -> Result<(Bytes, Unpacked), InferError> {
        let mut left = packed;
        let unpacked = match self {
            // Parts that were compressed one by one and put together are one body.
            Self::Gzip => self.read(MultiGzDecoder::new(&mut left), bytes_max, room)?,
            Self::Deflate => self.read(ZlibDecoder::new(&mut left), bytes_max, room)?,
        };
        if left.is_empty() { Ok(unpacked) } else { Err(self.is_not(&format!("{} bytes are left over", left.len()))) }
    }

    fn read(
        self,
        mut unpacking: impl Read,
        bytes_max: usize,
        mut room: Unpacked,
    ) -> Result<(Bytes, Unpacked), InferError> {
        let mut bytes = Vec::new();
        loop {
            room.take()?;
            let piece = unpacking.by_ref().take(UnpackedLimit::PIECE_BYTES as u64).read_to_end(&mut bytes);
            let read = piece.map_err(|error| self.is_not(&error.to_string()))?;
            if bytes.len() > bytes_max {
                return Err(InferError::TooLarge { bytes_max });
            }
            if read < UnpackedLimit::PIECE_BYTES {
                return Ok((bytes.into(), room));
            }
        }
    }

    fn is_not(self, why: &str) -> InferError {
        invalid(format!("content-encoding is {}, and the body is not: {why}", self.name()))
    }

    /// The bytes that stand for `bytes`, found in haste: tensors shrink little, and clients wait.
    pub(crate) fn pack(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip => {
                let mut packing = GzEncoder::new(Vec::new(), Compression::fast());
                packing.write_all(bytes)?;
                packing.finish()
            }
            Self::Deflate => {
                let mut packing = ZlibEncoder::new(Vec::new(), Compression::fast());
                packing.write_all(bytes)?;
                packing.finish()
            }
        }
    }
}

/// Whether one element of `accept-encoding` takes answers of this name: with a weight of 0 it refuses them.
fn accepts(one: &str, name: &str) -> bool {
    let (coding, weight) = one.split_once(';').unwrap_or((one, ""));
    let weight = weight.trim();
    let weight = weight.strip_prefix("q=").or_else(|| weight.strip_prefix("Q="));
    let weight = weight.map(|weight| weight.trim().parse::<f32>());
    coding.trim().eq_ignore_ascii_case(name) && weight.is_none_or(|weight| weight.is_ok_and(|weight| weight > 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back_and_no_more_of_it_than_may() {
        let bytes: Vec<u8> = (0..5000_u32).flat_map(|n| (n % 7).to_le_bytes()).collect();
        let limit = UnpackedLimit::new(1, bytes.len());
        let unpack = |coding: Coding, packed: &[u8], bytes_max: usize| {
            coding.unpack(packed, bytes_max, limit.begin("")).map(|(bytes, _)| bytes)
        };
        for coding in Coding::ALL {
            let packed = coding.pack(&bytes).unwrap();
            assert!(packed.len() < bytes.len() / 4, "{coding:?}");
            assert_eq!(unpack(coding, &packed, bytes.len()).unwrap(), bytes);
            let refused = unpack(coding, &packed, bytes.len() - 1).unwrap_err();
            assert_eq!(refused, InferError::TooLarge { bytes_max: bytes.len() - 1 });
            let refused = unpack(coding, b"{\"inputs\":[]}", 100).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("content-encoding is {}, and", coding.name())), "{refused}");
        }
        let packed = Coding::Gzip.pack(&bytes).unwrap();
        let cut_off = unpack(Coding::Gzip, &packed[..packed.len() - 4], bytes.len());
        assert!(matches!(cut_off, Err(InferError::InvalidRequest(_))), "{cut_off:?}");
        let twice = [packed.as_slice(), &packed].concat();
        assert_eq!(unpack(Coding::Gzip, &twice, 2 * bytes.len()).unwrap(), [bytes.as_slice(), &bytes].concat());
        for coding in Coding::ALL {
            let and_more = [coding.pack(&bytes).unwrap().as_slice(), b"more"].concat();
            let refused = unpack(coding, &and_more, 2 * bytes.len());
            assert!(matches!(refused, Err(InferError::InvalidRequest(_))), "{coding:?}: {refused:?}");
        }
        let (first, _room) = Coding::Gzip.unpack(&packed, bytes.len(), limit.begin("")).unwrap();
        assert_eq!(first, bytes);
        assert!(matches!(unpack(Coding::Gzip, &packed, bytes.len()), Err(InferError::UnpackedFull { .. })));
    }

    #[test]
    fn clients_get_what_they_ask_for() {
        let of = |text: &'static str| {
            let accepted = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(text))]);
            Coding::of_answer(&accepted)
        };
        for (text, expected) in [
            ("gzip", Some(Coding::Gzip)),
            ("deflate, gzip;q=0.5, br", Some(Coding::Gzip)),
            ("GZIP; q=0, deflate;q=1.0", Some(Coding::Deflate)),
            ("br", None),
            ("gzip;q=0", None),
            ("gzip;Q=0", None),
            ("gzip;q=much", None),
            ("", None),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
        assert_eq!(Coding::of_answer(&HeaderMap::new()), None);

        let sent = |text: &'static str| {
            let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_static(text))]);
            Coding::of_request(&headers)
        };
        assert_eq!((sent("identity"), sent("Deflate")), (Ok(None), Ok(Some(Coding::Deflate))));
        assert_eq!(sent("x-gzip"), Ok(Some(Coding::Gzip)));
        let mut several = HeaderMap::new();
        for line in ["gzip", "deflate"] {
            several.append(header::CONTENT_ENCODING, HeaderValue::from_static(line));
        }
        assert!(matches!(Coding::of_request(&several), Err(InferError::Unsupported(_))));
        for other in ["br", "gzip, gzip", ""] {
            assert!(matches!(sent(other), Err(InferError::Unsupported(_))), "{other}");
        }
    }
}
