//! What a process changed on its disk, in order.

use std::path::PathBuf;

use crate::bytes::{u32_at, u64_at};

const MAGIC: u32 = 0x4452_4f43;
const HEADER_BYTES: usize = 32;

/// What a process did to its disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<'a> {
    /// A file came into being.
    Created {
        /// Its number.
        inode: u64,
        /// Its name.
        path: PathBuf,
    },
    /// A directory came into being.
    MadeDir {
        /// Its number.
        inode: u64,
        /// Its name.
        path: PathBuf,
    },
    /// Bytes were written.
    Written {
        /// To this file,
        inode: u64,
        /// from this byte on.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// A file's length was set.
    Truncated {
        /// The file.
        inode: u64,
        /// Its length now.
        length: u64,
    },
    /// A name was changed.
    Renamed {
        /// The old one.
        from: PathBuf,
        /// The new one; what had it before has none any more.
        to: PathBuf,
    },
    /// A name was removed.
    Unlinked {
        /// The name.
        path: PathBuf,
    },
    /// A file or directory was synced: what was changed in it before is durable.
    Synced {
        /// The file's inode.
        inode: u64,
    },
    /// The process wrote a mark.
    Mark(&'a [u8]),
    /// Something that the record cannot describe: whatever is built on it is not to be trusted.
    Unknown(String),
}

/// Why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the record is damaged at byte {at}: {reason}")]
pub struct RecordError {
    at: usize,
    reason: &'static str,
}

/// Reads a record. A last change that was cut off, by a kill while it was written, is left out: it had not happened.
///
/// # Errors
/// Bytes that are no change.
pub fn changes(bytes: &[u8]) -> Result<Vec<Change<'_>>, RecordError> {
    let mut found = Vec::new();
    let mut at = 0;
    while bytes.len() - at >= HEADER_BYTES {
        let header = &bytes[at..at + HEADER_BYTES];
        if u32_at(header, 0) != MAGIC {
            return Err(RecordError { at, reason: "no change begins here" });
        }
        let (first, second) = (u32_at(header, 24) as usize, u32_at(header, 28) as usize);
        let body = at + HEADER_BYTES;
        if bytes.len() - body < first + second {
            break;
        }
        let (text, data) = (&bytes[body..body + first], &bytes[body + first..body + first + second]);
        let (inode, number) = (u64_at(header, 8), u64_at(header, 16));
        found.push(match u32_at(header, 4) {
            1 => Change::Created { inode, path: path(text) },
            2 => Change::MadeDir { inode, path: path(text) },
            3 => Change::Written { inode, offset: number, data },
            4 => Change::Truncated { inode, length: number },
            5 => Change::Renamed { from: path(text), to: path(data) },
            6 => Change::Unlinked { path: path(text) },
            7 => Change::Synced { inode },
            8 => Change::Mark(data),
            9 => Change::Unknown(String::from_utf8_lossy(text).into_owned()),
            _ => return Err(RecordError { at, reason: "a change of unknown kind" }),
        });
        at = body + first + second;
    }
    Ok(found)
}

fn path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}
