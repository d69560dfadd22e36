//! The layout of a value on disk: a fixed header, the payload, and a checksum over both.
//!
//! ```text
//! 0 version  1 kind  2..4 zero  4..8 payload length  8..16 term  16..24 node  24..32 index  32..40 link  40..44 crc32c  44.. payload
//! ```
//!
//! All numbers are little-endian. Votes, marks and the stamp use the same frame as entries, so one decoder checks
//! every byte from a disk.

use bytes::Bytes;
use prost::Message;

use super::chain::Link;
use crate::record::{Ballot, Body, Position, Record};
use crate::wire::pb;

/// Version of the frame and of the meaning of its kinds. Version 1 had no links.
pub(crate) const FORMAT_VERSION: u8 = 2;

const HEADER_BYTES: usize = 44;

/// Length of the frame of a mark: it has no payload.
pub(crate) const MARK_BYTES: usize = HEADER_BYTES;
const LINK_AT: usize = 32;
const CRC_AT: usize = 40;
/// Where version 1 has its CRC.
const CRC_AT_BEFORE: usize = 32;

const KIND_BLANK: u8 = 1;
const KIND_COMMAND: u8 = 2;
const KIND_MEMBERS: u8 = 3;
const KIND_BALLOT: u8 = 16;
const KIND_POSITION: u8 = 17;
const KIND_NEXT: u8 = 18;
const KIND_STAMP: u8 = 19;
const KIND_STEP: u8 = 20;

/// Why bytes from the disk are not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("frame has {got} bytes, expected at least {HEADER_BYTES}")]
    Short { got: usize },
    #[error("frame has format version {got}, this build reads {FORMAT_VERSION}")]
    Version { got: u8 },
    #[error("frame header announces {announced} payload bytes, {got} follow")]
    Length { announced: usize, got: usize },
    #[error("frame checksum is {stored:#010x}, its bytes give {computed:#010x}")]
    Checksum { stored: u32, computed: u32 },
    #[error("frame has kind {got}, expected {expected}")]
    Kind { got: u8, expected: &'static str },
    #[error("frame payload of kind {kind} does not parse: {reason}")]
    Payload { kind: u8, reason: String },
}

/// The owner of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) cluster: String,
    pub(crate) node: u64,
}

struct Frame {
    kind: u8,
    at: Position,
    link: Link,
    payload: Bytes,
}

/// A frame that is not part of the chain.
fn encode(kind: u8, at: Position, payload: &[u8]) -> Vec<u8> {
    encode_linked(kind, at, payload, |_| Link::default())
}

/// A frame with the link that belongs to its header.
fn encode_linked(kind: u8, at: Position, payload: &[u8], link: impl FnOnce(&[u8]) -> Link) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
    frame.extend_from_slice(&[FORMAT_VERSION, kind, 0, 0]);
    frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    frame.extend_from_slice(&at.term.to_le_bytes());
    frame.extend_from_slice(&at.node.to_le_bytes());
    frame.extend_from_slice(&at.index.to_le_bytes());
    let link = link(&frame);
    frame.extend_from_slice(&link.to_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&frame), payload);
    frame.extend_from_slice(&crc.to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0u8; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn short(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0u8; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// Whether the frame is intact in the layout of version 1.
fn is_of_version_1(bytes: &[u8]) -> bool {
    let Some((header, rest)) = bytes.split_at_checked(CRC_AT_BEFORE) else { return false };
    let Some((stored, payload)) = rest.split_at_checked(4) else { return false };
    // A mark in a sector of its own is padded with zeros.
    let payload = &payload[..payload.len().min(short(header, 4) as usize)];
    header[0] == 1 && crc32c::crc32c_append(crc32c::crc32c(header), payload).to_le_bytes() == stored
}

fn decode(bytes: &Bytes) -> Result<Frame, FrameError> {
    if is_of_version_1(bytes) {
        return Err(FrameError::Version { got: 1 });
    }
    if bytes.len() < HEADER_BYTES {
        return Err(FrameError::Short { got: bytes.len() });
    }
    let announced = short(bytes, 4) as usize;
    let got = bytes.len() - HEADER_BYTES;
    if announced != got {
        return Err(FrameError::Length { announced, got });
    }
    let payload = bytes.slice(HEADER_BYTES..);
    let stored = short(bytes, CRC_AT);
    let computed = crc32c::crc32c_append(crc32c::crc32c(&bytes[..CRC_AT]), &payload);
    if stored != computed {
        return Err(FrameError::Checksum { stored, computed });
    }
    // Checked after the checksum: a flipped bit is damage, an intact foreign version is a newer program's disk.
    if bytes[0] != FORMAT_VERSION {
        return Err(FrameError::Version { got: bytes[0] });
    }
    let at = Position { term: number(bytes, 8), node: number(bytes, 16), index: number(bytes, 24) };
    let mut link = [0; 8];
    link.copy_from_slice(&bytes[LINK_AT..CRC_AT]);
    Ok(Frame { kind: bytes[1], at, link: Link::from_bytes(link), payload })
}

/// The link that follows `before` for the frame of a log entry, whatever link it carries.
pub(crate) fn link_after(before: Link, frame: &[u8]) -> Link {
    let (header, rest) = frame.split_at(frame.len().min(LINK_AT));
    before.followed_by(header, rest.get(HEADER_BYTES - LINK_AT..).unwrap_or_default())
}

/// Frames a log entry that follows one with the link `before`; also returns the entry's own link.
pub(crate) fn encode_record(record: &Record, before: Link) -> (Vec<u8>, Link) {
    let mut own = Link::default();
    let mut frame = |kind, payload: &[u8]| {
        encode_linked(kind, record.at, payload, |header| {
            own = before.followed_by(header, payload);
            own
        })
    };
    let framed = match &record.body {
        Body::Blank => frame(KIND_BLANK, &[]),
        Body::Command(bytes) => frame(KIND_COMMAND, bytes),
        Body::Members(members) => frame(KIND_MEMBERS, &pb::RaftMembership::from(members.clone()).encode_to_vec()),
    };
    (framed, own)
}

/// Reads a log entry back, with its link.
pub(crate) fn decode_record(bytes: &Bytes) -> Result<(Record, Link), FrameError> {
    let Frame { kind, at, link, payload } = decode(bytes)?;
    let body = match kind {
        KIND_BLANK if payload.is_empty() => Body::Blank,
        KIND_BLANK => return Err(FrameError::Payload { kind, reason: "a blank entry has a payload".into() }),
        KIND_COMMAND => Body::Command(payload),
        KIND_MEMBERS => {
            let refuse = |reason: String| FrameError::Payload { kind, reason };
            let wire = pb::RaftMembership::decode(payload).map_err(|e| refuse(e.to_string()))?;
            Body::Members(wire.try_into().map_err(|e: crate::wire::Malformed| refuse(e.to_string()))?)
        }
        got => return Err(FrameError::Kind { got, expected: "blank, command or members" }),
    };
    Ok((Record { at, body }, link))
}

/// Frames a vote.
pub(crate) fn encode_ballot(ballot: Ballot) -> Vec<u8> {
    let at = Position { term: ballot.term, node: ballot.node, index: 0 };
    encode(KIND_BALLOT, at, &[u8::from(ballot.committed)])
}

/// Reads a vote back.
pub(crate) fn decode_ballot(bytes: &Bytes) -> Result<Ballot, FrameError> {
    let Frame { kind, at, payload, .. } = decode(bytes)?;
    match (kind, payload.as_ref()) {
        (KIND_BALLOT, [committed @ (0 | 1)]) => Ok(Ballot { term: at.term, node: at.node, committed: *committed == 1 }),
        (KIND_BALLOT, other) => {
            Err(FrameError::Payload { kind, reason: format!("committed flag is {other:?}, expected 0 or 1") })
        }
        (got, _) => Err(FrameError::Kind { got, expected: "ballot" }),
    }
}

/// Frames a mark such as the purged or the committed position, with the link of the entry there if one follows it.
pub(crate) fn encode_position(at: Position, link: Link) -> Vec<u8> {
    encode_linked(KIND_POSITION, at, &[], |_| link)
}

/// Reads a mark back.
pub(crate) fn decode_position(bytes: &Bytes) -> Result<(Position, Link), FrameError> {
    match decode(bytes)? {
        Frame { kind: KIND_POSITION, at, link, .. } => Ok((at, link)),
        Frame { kind: got, .. } => Err(FrameError::Kind { got, expected: "position" }),
    }
}

/// Frames the index after the last complete entry.
///
/// Includes the position and the link of that entry if they are known: damage in the newest pages may bring back an
/// older entry of the same index, with a correct checksum.
pub(crate) fn encode_next(index: u64, last: Option<(Position, Link)>) -> Vec<u8> {
    let (term, node, link) = last.map_or((0, 0, Link::default()), |(last, link)| (last.term, last.node, link));
    encode_linked(KIND_NEXT, Position { term, node, index }, &[], |_| link)
}

/// Reads that index back, and the last entry's position and link if they are known.
pub(crate) fn decode_next(bytes: &Bytes) -> Result<(u64, Option<(Position, Link)>), FrameError> {
    match decode(bytes)? {
        Frame { kind: KIND_NEXT, at, link, .. } => {
            let index = at.index.checked_sub(1).filter(|_| at.term > 0);
            Ok((at.index, index.map(|index| (Position { index, ..at }, link))))
        }
        Frame { kind: got, .. } => Err(FrameError::Kind { got, expected: "next index" }),
    }
}

/// Frames the number of a batch.
pub(crate) fn encode_step(step: u64) -> Vec<u8> {
    encode(KIND_STEP, Position { term: 0, node: 0, index: step }, &[])
}

/// Reads that number back.
pub(crate) fn decode_step(bytes: &Bytes) -> Result<u64, FrameError> {
    match decode(bytes)? {
        Frame { kind: KIND_STEP, at, .. } => Ok(at.index),
        Frame { kind: got, .. } => Err(FrameError::Kind { got, expected: "step" }),
    }
}

/// Frames the owner of a disk.
pub(crate) fn encode_stamp(stamp: &Stamp) -> Vec<u8> {
    encode(KIND_STAMP, Position { term: 0, node: stamp.node, index: 0 }, stamp.cluster.as_bytes())
}

/// Reads the owner back.
pub(crate) fn decode_stamp(bytes: &Bytes) -> Result<Stamp, FrameError> {
    let Frame { kind, at, payload, .. } = decode(bytes)?;
    if kind != KIND_STAMP {
        return Err(FrameError::Kind { got: kind, expected: "stamp" });
    }
    let cluster =
        String::from_utf8(payload.to_vec()).map_err(|e| FrameError::Payload { kind, reason: e.to_string() })?;
    Ok(Stamp { cluster, node: at.node })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::record::Members;

    fn body() -> impl Strategy<Value = Body> {
        prop_oneof![
            Just(Body::Blank),
            proptest::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Body::Command(bytes.into())),
            proptest::collection::btree_set(any::<u64>(), 1..5).prop_map(|voters: BTreeSet<u64>| {
                let addresses: BTreeMap<u64, String> =
                    voters.iter().map(|id| (*id, format!("node-{id}:7000"))).collect();
                Body::Members(Members { configs: vec![voters], addresses })
            }),
        ]
    }

    fn record() -> impl Strategy<Value = Record> {
        (any::<u64>(), any::<u64>(), any::<u64>(), body())
            .prop_map(|(term, node, index, body)| Record { at: Position { term, node, index }, body })
    }

    fn link() -> impl Strategy<Value = Link> {
        any::<[u8; 8]>().prop_map(Link::from_bytes)
    }

    /// The frame of an entry that follows something.
    fn encode_record(record: &Record) -> Vec<u8> {
        super::encode_record(record, Link::from_bytes([7; 8])).0
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(record in record(), before in link()) {
            let (frame, own) = super::encode_record(&record, before);
            prop_assert_eq!(link_after(before, &frame), own);
            prop_assert_eq!(decode_record(&frame.into()), Ok((record, own)));
        }

        #[test]
        fn a_link_is_of_everything_before(record in record(), other in record(), before in link(), another in link()) {
            let own = super::encode_record(&record, before).1;
            prop_assert!(before == another || super::encode_record(&record, another).1 != own);
            prop_assert!(record == other || super::encode_record(&other, before).1 != own);
        }

        #[test]
        fn a_flipped_bit_is_seen(record in record(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut frame = encode_record(&record);
            let at = at.index(frame.len());
            frame[at] ^= 1 << bit;
            prop_assert!(decode_record(&frame.into()).is_err());
        }

        #[test]
        fn a_torn_frame_is_seen(record in record(), keep in any::<prop::sample::Index>()) {
            let mut frame = encode_record(&record);
            frame.truncate(keep.index(frame.len()));
            prop_assert!(decode_record(&frame.into()).is_err());
        }

        #[test]
        fn a_zeroed_tail_is_seen(record in record(), keep in any::<prop::sample::Index>()) {
            let whole = encode_record(&record);
            let mut frame = whole.clone();
            let keep = keep.index(frame.len());
            frame[keep..].fill(0);
            prop_assume!(frame != whole);
            prop_assert!(decode_record(&frame.into()).is_err());
        }

        #[test]
        fn rubbish_is_refused_not_feared(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode_record(&bytes.into()).is_err());
        }
    }

    #[test]
    fn marks_and_votes_come_back_and_are_not_confused() {
        let at = Position { term: 3, node: 2, index: 9 };
        let ballot = Ballot { term: 4, node: 1, committed: true };
        let stamp = Stamp { cluster: "blue".into(), node: 7 };
        let link = Link::from_bytes([5; 8]);
        assert_eq!(decode_position(&encode_position(at, link).into()), Ok((at, link)));
        assert_eq!(decode_ballot(&encode_ballot(ballot).into()), Ok(ballot));
        let last = (Position { term: 3, node: 2, index: 11 }, link);
        assert_eq!(decode_next(&encode_next(12, Some(last)).into()), Ok((12, Some(last))));
        assert_eq!(decode_next(&encode_next(12, None).into()), Ok((12, None)));
        assert_eq!(decode_step(&encode_step(13).into()), Ok(13));
        assert_eq!(encode_step(13).len(), MARK_BYTES);
        assert_eq!(decode_stamp(&encode_stamp(&stamp).into()), Ok(stamp));
        assert!(matches!(decode_ballot(&encode_position(at, link).into()), Err(FrameError::Kind { .. })));
        assert!(matches!(decode_record(&encode_next(12, None).into()), Err(FrameError::Kind { .. })));
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// These bytes are on the disks of all users of this version. A change of layout needs a new version.
    #[test]
    fn what_version_2_wrote_is_written_so() {
        assert_eq!(FORMAT_VERSION, 2, "the bytes below are of version 2");
        let (at, before) = (Position { term: 3, node: 2, index: 9 }, Link::from_bytes([7; 8]));
        let record = |body| super::encode_record(&Record { at, body }, before).0;
        let members = Members {
            configs: vec![BTreeSet::from([1, 2]), BTreeSet::from([2, 3])],
            addresses: (1..=3).map(|id| (id, format!("n{id}:7000"))).collect(),
        };
        for (name, frame, golden) in [
            (
                "blank",
                record(Body::Blank),
                "0201000000000000030000000000000002000000000000000900000000000000a9fb2315aa68e938fe18701a",
            ),
            (
                "command",
                record(Body::Command(Bytes::from_static(b"command"))),
                concat!(
                    "0202000007000000030000000000000002000000000000000900000000000000010380b9f6e474239da779d1",
                    "636f6d6d616e64",
                ),
            ),
            (
                "members",
                record(Body::Members(members)),
                concat!(
                    "0203000033000000030000000000000002000000000000000900000000000000eda7acdb9e2caa2518379eac",
                    "0a040a0201020a040a020203120b080112076e313a37303030120b080212076e323a37303030120b08031207",
                    "6e333a37303030",
                ),
            ),
            (
                "vote",
                encode_ballot(Ballot { term: 4, node: 1, committed: true }),
                "02100000010000000400000000000000010000000000000000000000000000000000000000000000f3b7ede701",
            ),
            (
                "position",
                encode_position(at, before),
                "0211000000000000030000000000000002000000000000000900000000000000070707070707070706865085",
            ),
            (
                "end",
                encode_next(10, Some((at, before))),
                "0212000000000000030000000000000002000000000000000a00000000000000070707070707070777e5aaf7",
            ),
            (
                "cut end",
                encode_next(10, None),
                "0212000000000000000000000000000000000000000000000a000000000000000000000000000000ae51e6ca",
            ),
            (
                "step",
                encode_step(13),
                "0214000000000000000000000000000000000000000000000d000000000000000000000000000000b29a1edd",
            ),
            (
                "stamp",
                encode_stamp(&Stamp { cluster: "blue".into(), node: 7 }),
                "0213000004000000000000000000000007000000000000000000000000000000000000000000000084c1d1f8626c7565",
            ),
        ] {
            assert_eq!(hex(&frame), golden, "{name}");
        }
    }

    #[test]
    fn another_format_is_named() {
        let mut frame = encode_position(Position { term: 0, node: 0, index: 0 }, Link::default());
        frame[0] = FORMAT_VERSION + 1;
        let crc = crc32c::crc32c(&frame[..CRC_AT]);
        frame[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode_position(&frame.into()), Err(FrameError::Version { got: FORMAT_VERSION + 1 }));

        // An entry and a mark of version 1, the latter in its sector.
        let of_version_1 = |kind: u8, payload: &[u8]| {
            let mut frame = vec![1, kind, 0, 0, payload.len() as u8, 0, 0, 0];
            frame.extend_from_slice(&[9; 24]);
            let crc = crc32c::crc32c_append(crc32c::crc32c(&frame), payload);
            frame.extend_from_slice(&crc.to_le_bytes());
            frame.extend_from_slice(payload);
            frame
        };
        let entry = of_version_1(KIND_COMMAND, b"command");
        assert_eq!(decode_record(&entry.into()), Err(FrameError::Version { got: 1 }));
        let mut mark = of_version_1(KIND_STEP, &[]);
        mark.resize(MARK_BYTES, 0);
        assert_eq!(decode_step(&mark.into()), Err(FrameError::Version { got: 1 }));
    }
}
