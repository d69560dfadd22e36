//! Changes of a file.

/// A change of a file that was not synced yet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FileChange<'a> {
    Write { offset: u64, data: &'a [u8] },
    Length(u64),
}

impl FileChange<'_> {
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        match *self {
            Self::Write { offset, data } => write_at(bytes, offset, data),
            Self::Length(length) => bytes.resize(length as usize, 0),
        }
    }
}

/// Writes as a file system does: what lies between the end and the offset reads as zeros.
pub(crate) fn write_at(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (from, to) = (offset as usize, offset as usize + data.len());
    if bytes.len() < to {
        bytes.resize(to, 0);
    }
    bytes[from..to].copy_from_slice(data);
}
