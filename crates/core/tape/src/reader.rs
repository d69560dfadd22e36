//! Reads a tape without trusting its contents.

use crate::TapeError;
use crate::chunk::CHUNK_HEADER_BYTES;
use crate::codec::Source;
use crate::header::{PREAMBLE_BYTES, TapeHeader};
use crate::record::Record;

/// A tape in memory, with its header read.
#[derive(Clone, Debug)]
pub struct Tape<'a> {
    header: TapeHeader,
    bytes: &'a [u8],
    /// Offset of the first chunk of records.
    begin: usize,
}

impl<'a> Tape<'a> {
    /// Reads the header.
    ///
    /// # Errors
    /// If the bytes are not a tape of this release.
    pub fn open(bytes: &'a [u8]) -> Result<Self, TapeError> {
        TapeHeader::check_preamble(bytes)?;
        let Some(chunk) = chunk(bytes, PREAMBLE_BYTES)? else {
            return Err(TapeError::NoHeader { offset: bytes.len() });
        };
        let begin = PREAMBLE_BYTES + CHUNK_HEADER_BYTES + chunk.len();
        let header = TapeHeader::read(&mut Source::new(chunk, PREAMBLE_BYTES + CHUNK_HEADER_BYTES))?;
        Ok(Self { header, bytes, begin })
    }

    /// The origin of the tape.
    #[must_use]
    pub const fn header(&self) -> &TapeHeader {
        &self.header
    }

    /// Its records in order.
    #[must_use]
    pub fn records(&self) -> Records<'a> {
        Records { bytes: self.bytes, next_chunk: self.begin, chunk: Source::new(&[], self.begin), failed: false }
    }
}

/// Records of a tape with their offsets. A tape that is cut within a chunk ends before that chunk.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    next_chunk: usize,
    chunk: Source<'a>,
    failed: bool,
}

impl<'a> Records<'a> {
    fn read(&mut self) -> Result<Option<(usize, Record<'a>)>, TapeError> {
        while self.chunk.is_empty() {
            let Some(chunk) = chunk(self.bytes, self.next_chunk)? else { return Ok(None) };
            self.chunk = Source::new(chunk, self.next_chunk + CHUNK_HEADER_BYTES);
            self.next_chunk += CHUNK_HEADER_BYTES + chunk.len();
        }
        let offset = self.chunk.offset();
        Record::read(&mut self.chunk).map(|record| Some((offset, record)))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(usize, Record<'a>), TapeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.read().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

/// The payload of the chunk at `offset`, if it is complete.
fn chunk(bytes: &[u8], offset: usize) -> Result<Option<&[u8]>, TapeError> {
    let rest = bytes.get(offset..).unwrap_or_default();
    let Some((header, rest)) = rest.split_first_chunk::<CHUNK_HEADER_BYTES>() else { return Ok(None) };
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (length, got) = (word(0) as usize, word(4));
    let Some(payload) = rest.get(..length) else { return Ok(None) };
    let computed = crc32c::crc32c(payload);
    if got != computed {
        return Err(TapeError::Checksum { offset, bytes: length, got, computed });
    }
    Ok(Some(payload))
}
