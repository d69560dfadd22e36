//! The contents of one SEND: a header, and a piece of the stream. Parsed from memory that the peer writes, so every
//! field is untrusted.

/// Bytes of one SEND at most, and of each buffer that waits for one.
pub const SEGMENT_BYTES: usize = 32 << 10;
/// Bytes before the data.
pub const SEGMENT_HEADER_BYTES: usize = 24;

/// What a segment begins with: its name and version.
const MAGIC: [u8; 3] = *b"SR1";
/// Where the checksum of everything else stands.
const CHECKSUM_AT: usize = 20;

/// What a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// Data follows.
    Data,
    /// Nothing but credits.
    Credits,
    /// Credits and padding: checks that a segment of this length arrives.
    Proof,
    /// No data will follow.
    End,
}

/// The head of one SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Data, credits, a proof or the end.
    pub kind: SegmentKind,
    /// Counts the segments of one direction from 0, to detect stale contents of a reused buffer.
    pub number: u64,
    /// Number of data segments consumed since the last credits.
    pub credits: u32,
}

/// Why bytes are not a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// It has no room for a header.
    #[error("{0} bytes came; a segment has at least {SEGMENT_HEADER_BYTES}")]
    Short(usize),
    /// Another magic or version, or a kind that does not exist.
    #[error("other magic, version or kind")]
    Magic,
    /// Its header states another length than it has, it has data that its kind does not carry, or lacks data that its
    /// kind needs.
    #[error("it speaks of {said} bytes of data and has {has}")]
    Length {
        /// The length in its header.
        said: u32,
        /// What came.
        has: usize,
    },
    /// Bytes are damaged.
    #[error("its checksum is wrong")]
    Checksum,
}

impl Segment {
    /// Writes the header before data that is at [`SEGMENT_HEADER_BYTES`] already; `buffer` ends with the data.
    ///
    /// # Panics
    /// If the buffer has no room for a header.
    pub fn write(&self, buffer: &mut [u8]) {
        let data = buffer.len() - SEGMENT_HEADER_BYTES;
        let kind = match self.kind {
            SegmentKind::Data => 1,
            SegmentKind::Credits => 2,
            SegmentKind::End => 3,
            SegmentKind::Proof => 4,
        };
        buffer[..3].copy_from_slice(&MAGIC);
        buffer[3] = kind;
        buffer[4..8].copy_from_slice(&(data as u32).to_le_bytes());
        buffer[8..16].copy_from_slice(&self.number.to_le_bytes());
        buffer[16..CHECKSUM_AT].copy_from_slice(&self.credits.to_le_bytes());
        let checksum = checksum(buffer);
        buffer[CHECKSUM_AT..SEGMENT_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Parses a segment: its header and data.
    ///
    /// # Errors
    /// If it is no segment.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), SegmentError> {
        let Some((header, data)) = bytes.split_first_chunk::<SEGMENT_HEADER_BYTES>() else {
            return Err(SegmentError::Short(bytes.len()));
        };
        let kind = match header {
            [a, b, c, 1, ..] if [*a, *b, *c] == MAGIC => SegmentKind::Data,
            [a, b, c, 2, ..] if [*a, *b, *c] == MAGIC => SegmentKind::Credits,
            [a, b, c, 3, ..] if [*a, *b, *c] == MAGIC => SegmentKind::End,
            [a, b, c, 4, ..] if [*a, *b, *c] == MAGIC => SegmentKind::Proof,
            _ => return Err(SegmentError::Magic),
        };
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        let declared = word(4);
        // Of a stream an empty piece is the end, which has a kind of its own.
        let has_data = matches!(kind, SegmentKind::Data | SegmentKind::Proof);
        if declared as usize != data.len() || has_data != (declared != 0) {
            return Err(SegmentError::Length { said: declared, has: data.len() });
        }
        if word(CHECKSUM_AT) != checksum(bytes) {
            return Err(SegmentError::Checksum);
        }
        let number = u64::from(word(8)) | u64::from(word(12)) << 32;
        Ok((Self { kind, number, credits: word(16) }, data))
    }
}

/// Of everything but the checksum itself.
fn checksum(segment: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&segment[..CHECKSUM_AT]), &segment[SEGMENT_HEADER_BYTES..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(segment: Segment, data: &[u8]) -> Vec<u8> {
        let mut bytes = [&[0; SEGMENT_HEADER_BYTES][..], data].concat();
        segment.write(&mut bytes);
        bytes
    }

    #[test]
    fn each_single_bit_that_is_wrong_is_noticed() {
        let good = written(Segment { kind: SegmentKind::Data, number: 7, credits: 3 }, b"some bytes");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Segment::parse(&bad).is_err(), "bit {bit}");
        }
        for length in 0..good.len() {
            assert!(Segment::parse(&good[..length]).is_err(), "cut to {length}");
        }
    }

    #[test]
    fn data_and_proofs_have_data_and_nothing_else_has() {
        for kind in [SegmentKind::Data, SegmentKind::Proof] {
            let segment = Segment { kind, number: 1, credits: 1 };
            assert_eq!(Segment::parse(&written(segment, b"x")), Ok((segment, &b"x"[..])));
            assert_eq!(Segment::parse(&written(segment, b"")), Err(SegmentError::Length { said: 0, has: 0 }));
        }
        for kind in [SegmentKind::Credits, SegmentKind::End] {
            let segment = Segment { kind, number: 1, credits: 1 };
            assert_eq!(Segment::parse(&written(segment, b"")), Ok((segment, &b""[..])));
            let bytes = written(segment, b"x");
            assert_eq!(Segment::parse(&bytes), Err(SegmentError::Length { said: 1, has: 1 }));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_parsed(number: u64, credits: u32, data in prop::collection::vec(any::<u8>(), 1..2000)) {
            let segment = Segment { kind: SegmentKind::Data, number, credits };
            let bytes = written(segment, &data);
            prop_assert_eq!(Segment::parse(&bytes), Ok((segment, &data[..])));
        }

        #[test]
        fn garbage_is_never_believed(bytes in prop::collection::vec(any::<u8>(), 0..200), whole: bool) {
            let mut bytes = bytes;
            if whole && bytes.len() >= SEGMENT_HEADER_BYTES {
                bytes[..3].copy_from_slice(&MAGIC);
                bytes[3] = 1;
                let data = (bytes.len() - SEGMENT_HEADER_BYTES) as u32;
                bytes[4..8].copy_from_slice(&data.to_le_bytes());
            }
            prop_assert!(Segment::parse(&bytes).is_err());
        }
    }
}
