//! One frame: a header, a message in rkyv, and raw bytes behind it.
//!
//! ```text
//! 0        4        6        8            12           16
//! | length | version| link   | meta length| CRC32C     | meta … (rkyv) | tail … (raw) |
//! ```
//! All numbers are little-endian. `length` counts everything behind the header; the checksum covers meta and tail, so
//! that a torn or mixed-up payload is detected before it is used, and since version 13 the header before it, too.
//! Frames are written in the version of the cluster's [`Level`] and read in all that this release knows.

use bytes::{BufMut, Bytes, BytesMut};
use rkyv::api::high::{HighDeserializer, HighSerializer, HighValidator};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::Level;

/// Bytes before meta and tail, as in the picture above.
pub const FRAME_HEADER_BYTES: usize = 16;

/// The largest frame that is read: one batch of large inputs. A header that claims more is refused before any memory
/// is reserved for it.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// The largest input or result that travels in a frame: all of one but the MiB that is left to the message beside it.
pub const PAYLOAD_BYTES_MAX: usize = FRAME_BYTES_MAX - (1 << 20);

/// Where the checksum stands in the header, behind what it covers of it.
const CHECKSUM_AT: usize = 12;

/// The first version whose checksum covers the header.
const HEADER_COVERED: u16 = 13;

/// A message of one link and direction.
pub trait Message:
    Sized
    + Archive<
        Archived: for<'a> CheckBytes<HighValidator<'a, rancor::Error>>
                      + Deserialize<Self, HighDeserializer<rancor::Error>>,
    > + for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, rancor::Error>>
{
    /// Number of the link and direction; a frame of another link is refused.
    const LINK: u16;
    /// Name of the link, for operators.
    const NAME: &str;
}

/// Why bytes are not the frame that was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The peer speaks another version.
    #[error(
        "frame version {got} from the peer; this process reads {oldest} to {newest}: run the same release on both sides, or neighbouring ones"
    )]
    Version {
        /// The peer's version.
        got: u16,
        /// The first that is read here.
        oldest: u16,
        /// The last that is read here.
        newest: u16,
    },
    /// The frame belongs to another link.
    #[error("frame of link {got} where link {expected} was expected: wrong port or wrong peer")]
    Link {
        /// Link in the header.
        got: u16,
        /// Link expected.
        expected: u16,
    },
    /// The frame is larger than the limit or its parts do not add up.
    #[error("frame of {length} bytes with {meta_length} of message; at most {FRAME_BYTES_MAX} bytes are allowed")]
    Length {
        /// Bytes behind the header.
        length: usize,
        /// Bytes of the message among them.
        meta_length: usize,
    },
    /// The checksum does not match.
    #[error("frame checksum {got:#010x}, computed {computed:#010x}: the bytes were damaged on the way")]
    Checksum {
        /// In the header.
        got: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// The bytes are no message.
    #[error("frame does not hold a message of link {link}: {reason}")]
    Malformed {
        /// Link number in the header; it says which messages are expected.
        link: u16,
        /// The error of rkyv's validation.
        reason: String,
    },
}

/// A checked header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    link: u16,
    length: usize,
    meta_length: usize,
    checksum: u32,
    /// The checksum of what it covers of the header.
    covered: u32,
}

/// The checksum of the bytes before it, as far as the version has it cover them.
fn covered(version: u16, head: &[u8; CHECKSUM_AT]) -> u32 {
    if version < HEADER_COVERED { 0 } else { crc32c::crc32c(head) }
}

/// Writes a header; `body` continues the checksum that is given to it.
fn put_header(
    out: &mut BytesMut,
    level: Level,
    link: u16,
    (length, meta_length): (usize, usize),
    body: impl FnOnce(u32) -> u32,
) {
    let (version, mut head) = (level.formats().frames, [0; CHECKSUM_AT]);
    head[..4].copy_from_slice(&(length as u32).to_le_bytes());
    head[4..6].copy_from_slice(&version.to_le_bytes());
    head[6..8].copy_from_slice(&link.to_le_bytes());
    head[8..].copy_from_slice(&(meta_length as u32).to_le_bytes());
    out.reserve(FRAME_HEADER_BYTES + length);
    out.put_slice(&head);
    out.put_u32_le(body(covered(version, &head)));
}

/// What either end of any link may ask, and the other one answers at once and in order with everything else: whether
/// bytes still move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// The question of that number.
    Ask(u64),
    /// The answer to the question of that number.
    Answer(u64),
}

/// The link number of an [`Echo`]; no message has it.
const ECHO_LINK: u16 = 0;

/// The link number of a [`CarrierMessage`](crate::carrier::CarrierMessage); no message of a link has it.
pub(crate) const CARRIER_LINK: u16 = 15;

/// One byte for question or answer, and its number.
const ECHO_BYTES: usize = 9;

/// A received frame: the message and the raw bytes behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<M> {
    /// Its header and meta, decoded.
    pub message: M,
    /// The raw bytes.
    pub tail: Bytes,
}

impl FrameHeader {
    /// Reads a header, for a process that knows no level above `newest`.
    ///
    /// # Errors
    /// If version or lengths are not acceptable.
    pub fn parse(bytes: [u8; FRAME_HEADER_BYTES], newest: Level) -> Result<Self, FrameError> {
        let u32_at = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        let (oldest, newest) = (Level::OLDEST.formats().frames, newest.formats().frames);
        if !(oldest..=newest).contains(&version) {
            return Err(FrameError::Version { got: version, oldest, newest });
        }
        let (length, meta_length) = (u32_at(0) as usize, u32_at(8) as usize);
        if length > FRAME_BYTES_MAX || meta_length > length {
            return Err(FrameError::Length { length, meta_length });
        }
        let link = u16::from_le_bytes([bytes[6], bytes[7]]);
        let mut head = [0; CHECKSUM_AT];
        head.copy_from_slice(&bytes[..CHECKSUM_AT]);
        let checksum = u32_at(CHECKSUM_AT);
        Ok(Self { link, length, meta_length, checksum, covered: covered(version, &head) })
    }

    /// The checksum of a frame with that body.
    fn computed(&self, body: &[u8]) -> u32 {
        crc32c::crc32c_append(self.covered, body)
    }

    /// Bytes that follow the header.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Whether an [`Echo`] follows it and no message of the link.
    #[must_use]
    pub const fn is_echo(&self) -> bool {
        self.link == ECHO_LINK
    }

    /// Whether a [`CarrierMessage`](crate::carrier::CarrierMessage) follows it and no message of the link.
    #[must_use]
    pub const fn is_carry(&self) -> bool {
        self.link == CARRIER_LINK
    }
}

impl Echo {
    /// Writes it behind what `out` holds already, in a cluster at that level.
    pub fn encode(self, level: Level, out: &mut BytesMut) {
        let (kind, number) = match self {
            Self::Ask(number) => (0, number),
            Self::Answer(number) => (1, number),
        };
        let mut body = [kind; ECHO_BYTES];
        body[1..].copy_from_slice(&number.to_le_bytes());
        put_header(out, level, ECHO_LINK, (ECHO_BYTES, 0), |crc| crc32c::crc32c_append(crc, &body));
        out.put_slice(&body);
    }

    /// Reads what followed a header that announced one.
    ///
    /// # Errors
    /// If the body is not what the header promised, or none.
    pub fn decode(header: FrameHeader, body: &[u8]) -> Result<Self, FrameError> {
        let length = FrameError::Length { length: body.len(), meta_length: header.meta_length };
        let Ok([kind, number @ ..]) = <[u8; ECHO_BYTES]>::try_from(body) else { return Err(length) };
        if header.meta_length != 0 || header.length != ECHO_BYTES {
            return Err(length);
        }
        let computed = header.computed(body);
        if computed != header.checksum {
            return Err(FrameError::Checksum { got: header.checksum, computed });
        }
        match kind {
            0 => Ok(Self::Ask(u64::from_le_bytes(number))),
            1 => Ok(Self::Answer(u64::from_le_bytes(number))),
            other => Err(FrameError::Malformed {
                link: ECHO_LINK,
                reason: format!("an echo of kind {other}; expected 0 or 1"),
            }),
        }
    }
}

impl<M: Message> Frame<M> {
    /// Writes the message and the pieces of its tail behind what `out` holds already, in a cluster at that level.
    ///
    /// # Errors
    /// If the frame would be larger than [`FRAME_BYTES_MAX`].
    pub fn encode(message: &M, tail: &[Bytes], level: Level, out: &mut BytesMut) -> Result<(), FrameError> {
        let meta = rkyv::to_bytes::<rancor::Error>(message)
            .map_err(|e| FrameError::Malformed { link: M::LINK, reason: e.to_string() })?;
        let length = meta.len() + tail.iter().map(Bytes::len).sum::<usize>();
        if length > FRAME_BYTES_MAX {
            return Err(FrameError::Length { length, meta_length: meta.len() });
        }
        put_header(out, level, M::LINK, (length, meta.len()), |crc| {
            let crc = crc32c::crc32c_append(crc, &meta);
            tail.iter().fold(crc, |crc, piece| crc32c::crc32c_append(crc, piece))
        });
        out.put_slice(&meta);
        for piece in tail {
            out.put_slice(piece);
        }
        Ok(())
    }

    /// Reads what followed the header.
    ///
    /// # Errors
    /// If the body is not what the header promised or holds no message of this link.
    pub fn decode(header: FrameHeader, mut body: Bytes) -> Result<Self, FrameError> {
        if header.link != M::LINK {
            return Err(FrameError::Link { got: header.link, expected: M::LINK });
        }
        if body.len() != header.length {
            return Err(FrameError::Length { length: body.len(), meta_length: header.meta_length });
        }
        let computed = header.computed(&body);
        if computed != header.checksum {
            return Err(FrameError::Checksum { got: header.checksum, computed });
        }
        let tail = body.split_off(header.meta_length);
        // rkyv reads in place and therefore wants its own alignment.
        let mut aligned = AlignedVec::<16>::with_capacity(body.len());
        aligned.extend_from_slice(&body);
        let message = rkyv::from_bytes::<M, rancor::Error>(&aligned)
            .map_err(|e| FrameError::Malformed { link: M::LINK, reason: e.to_string() })?;
        Ok(Self { message, tail })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use symphony_types::{Nanos, Token};

    use super::*;
    use crate::dispatch::{RequestHeader, ToLeader};

    fn announce() -> ToLeader {
        let header = RequestHeader {
            sequence: 7,
            model: 3,
            items: 2,
            budget: Nanos::from_millis(25).get(),
            attempt: 1,
            weight: 1000,
        };
        ToLeader::Announce { token: Token::new(9), requests: vec![header; 3] }
    }

    fn encode(message: &ToLeader, tail: &[Bytes]) -> Bytes {
        encode_at(Level::NEWEST, message, tail)
    }

    fn encode_at(level: Level, message: &ToLeader, tail: &[Bytes]) -> Bytes {
        let mut out = BytesMut::new();
        Frame::encode(message, tail, level, &mut out).unwrap();
        out.freeze()
    }

    fn parse(bytes: &[u8]) -> Result<FrameHeader, FrameError> {
        FrameHeader::parse(bytes[..FRAME_HEADER_BYTES].try_into().unwrap(), Level::NEWEST)
    }

    fn decode(mut bytes: Bytes) -> Result<Frame<ToLeader>, FrameError> {
        if bytes.len() < FRAME_HEADER_BYTES {
            return Err(FrameError::Length { length: bytes.len(), meta_length: 0 });
        }
        let body = bytes.split_off(FRAME_HEADER_BYTES);
        Frame::decode(parse(&bytes)?, body)
    }

    #[test]
    fn a_message_and_its_tail_come_back() {
        let tail = [Bytes::from_static(b"one"), Bytes::from_static(b"two")];
        for level in [Level::OLDEST, Level::NEWEST] {
            let frame = decode(encode_at(level, &announce(), &tail)).unwrap();
            assert_eq!(frame.message, announce());
            assert_eq!(frame.tail, "onetwo");
        }
    }

    #[test]
    fn a_frame_of_a_release_that_is_no_neighbour_is_refused_with_what_is_read() {
        let newest = encode(&announce(), &[]);
        let mut former = newest.to_vec();
        former[4..6].copy_from_slice(&12_u16.to_le_bytes());
        let header = former[..FRAME_HEADER_BYTES].try_into().unwrap();
        let message = FrameHeader::parse(header, Level::OLDEST).unwrap_err().to_string();
        assert!(message.starts_with("frame version 12 from the peer; this process reads 13 to 13"), "{message}");
        for unknown in [Level::OLDEST.formats().frames - 1, Level::NEWEST.formats().frames + 1] {
            let mut bytes = newest.to_vec();
            bytes[4..6].copy_from_slice(&unknown.to_le_bytes());
            assert!(matches!(decode(bytes.into()), Err(FrameError::Version { got, .. }) if got == unknown));
        }
    }

    /// Since version 13 the checksum finds it.
    #[test]
    fn a_message_of_another_length_than_was_written_is_damage() {
        let of = |level| {
            let mut bytes = encode_at(level, &announce(), &[Bytes::from_static(&[0; 64])]).to_vec();
            bytes[8] ^= 8;
            decode(bytes.into())
        };
        assert!(matches!(of(Level::NEWEST), Err(FrameError::Checksum { .. })), "{:?}", of(Level::NEWEST));
    }

    #[test]
    fn a_frame_of_another_link_is_refused() {
        let bytes = encode(&announce(), &[]);
        let header = parse(&bytes).unwrap();
        let error =
            Frame::<crate::dispatch::ToFrontend>::decode(header, bytes.slice(FRAME_HEADER_BYTES..)).unwrap_err();
        assert!(matches!(error, FrameError::Link { .. }));
    }

    #[test]
    fn a_header_that_claims_too_much_is_refused() {
        let mut bytes = encode(&announce(), &[]).to_vec();
        bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(decode(bytes.into()), Err(FrameError::Length { .. })));
    }

    fn read_echo(bytes: &[u8]) -> Result<Echo, FrameError> {
        let header = parse(bytes)?;
        if !header.is_echo() {
            return Err(FrameError::Link { got: header.link, expected: ECHO_LINK });
        }
        Echo::decode(header, &bytes[FRAME_HEADER_BYTES..])
    }

    #[test]
    fn an_echo_comes_back_is_no_message_and_no_flipped_bit_goes_unnoticed() {
        for echo in [Echo::Ask(7), Echo::Answer(u64::MAX)] {
            let mut bytes = BytesMut::new();
            echo.encode(Level::OLDEST, &mut bytes);
            assert_eq!(read_echo(&bytes), Ok(echo));
            bytes.clear();
            echo.encode(Level::NEWEST, &mut bytes);
            assert_eq!(read_echo(&bytes), Ok(echo));
            assert!(matches!(decode(bytes.clone().freeze()), Err(FrameError::Link { .. })));
            for at in 0..bytes.len() * 8 {
                let mut harmed = bytes.clone();
                harmed[at / 8] ^= 1 << (at % 8);
                assert!(read_echo(&harmed).is_err(), "bit {at}");
            }
        }
        assert!(!parse(&encode(&announce(), &[])).unwrap().is_echo());
    }

    proptest! {
        #[test]
        fn bytes_behind_the_header_of_an_echo_never_panic(body in proptest::collection::vec(any::<u8>(), 0..40)) {
            let header = FrameHeader {
                link: ECHO_LINK,
                length: body.len(),
                meta_length: 0,
                checksum: crc32c::crc32c(&body),
                covered: 0,
            };
            if let Ok(echo) = Echo::decode(header, &body) {
                let mut again = BytesMut::new();
                echo.encode(Level::NEWEST, &mut again);
                prop_assert_eq!(&again[FRAME_HEADER_BYTES..], &body[..]);
            }
        }

        #[test]
        fn no_flipped_bit_goes_unnoticed(position in 0_usize..200, bit in 0_u8..8) {
            let mut bytes = encode(&announce(), &[Bytes::from_static(b"payload")]).to_vec();
            let position = position % bytes.len();
            bytes[position] ^= 1 << bit;
            prop_assert!(decode(bytes.into()).is_err());
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(bytes.into());
        }

        #[test]
        fn random_messages_with_right_checksums_never_panic(meta in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = BytesMut::new();
            let lengths = (meta.len(), meta.len());
            put_header(&mut bytes, Level::NEWEST, ToLeader::LINK, lengths, |crc| crc32c::crc32c_append(crc, &meta));
            bytes.put_slice(&meta);
            let _ = decode(bytes.freeze());
        }
    }
}
