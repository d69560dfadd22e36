//! What happens to which operations on which paths.

use std::ops::BitOr;
use std::time::Duration;

/// `errno` of a failed device.
pub const EIO: u32 = 5;
/// `errno` of a full one.
pub const ENOSPC: u32 = 28;

/// Layout of a rule in the control file; interposer.c has the same.
pub(crate) const RULE_BYTES: usize = 512;
pub(crate) const SEEN_AT: usize = 48;
pub(crate) const STRUCK_AT: usize = 56;
const PATTERN_AT: usize = 64;
const PATTERN_BYTES: usize = 256;

/// Which operations a rule is about; combined with `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations(u32);

impl Operations {
    /// Opening and creating.
    pub const OPEN: Self = Self(1);
    /// Writing.
    pub const WRITE: Self = Self(2);
    /// `fsync` and `fdatasync`, also of directories.
    pub const SYNC: Self = Self(4);
    /// `sync_file_range`, which promises nothing.
    pub const SYNC_RANGE: Self = Self(8);
    /// Changing a file's length.
    pub const TRUNCATE: Self = Self(16);
    /// Renaming; the pattern is about the new name.
    pub const RENAME: Self = Self(32);
    /// Removing files and directories.
    pub const UNLINK: Self = Self(64);
    /// Making directories.
    pub const MKDIR: Self = Self(128);
    /// The operations that read.
    pub const READ: Self = Self(256);
    /// All that change something.
    pub const CHANGES: Self = Self(1 | 2 | 4 | 16 | 32 | 64 | 128);
}

impl BitOr for Operations {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this `errno`, undone.
    Fail(u32),
    /// A write takes only the first half of its bytes and says so.
    Shorten,
    /// It waits for this time, or until the rule is lifted. Then it is done.
    Delay(Option<Duration>),
    /// It is not done, but reported as done: a device that lies.
    Pretend,
    /// Files of the pattern may grow by this many bytes in all, then writes that make them grow fail with `ENOSPC`;
    /// removing one gives its bytes back. Operations and counts do not matter.
    Fill {
        /// Room that is left.
        space_bytes: u64,
    },
}

/// Which operations on which files fail, how, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// About these operations,
    pub operations: Operations,
    /// on paths that match this pattern (`fnmatch`: `*` also matches `/`),
    pub paths: String,
    /// of which this many go unharmed,
    pub skip: u64,
    /// and then this many suffer; 0 is all of them.
    pub count: u64,
    /// What happens.
    pub fault: Fault,
}

impl Rule {
    /// A rule for these operations on these paths, without a limit.
    #[must_use]
    pub fn new(operations: Operations, paths: impl Into<String>, fault: Fault) -> Self {
        Self { operations, paths: paths.into(), skip: 0, count: 0, fault }
    }

    /// Only after this many have gone well, and only this many.
    #[must_use]
    pub fn only(self, skip: u64, count: u64) -> Self {
        Self { skip, count, ..self }
    }

    /// As it lies in the control file, switched off. `None` if the pattern is too long.
    pub(crate) fn encode(&self) -> Option<[u8; RULE_BYTES]> {
        let (fault, error, delay, space) = match self.fault {
            Fault::Fail(error) => (1u32, error, Duration::ZERO, 0),
            Fault::Shorten => (2, 0, Duration::ZERO, 0),
            Fault::Delay(delay) => (3, 0, delay.unwrap_or_default(), 0),
            Fault::Pretend => (4, 0, Duration::ZERO, 0),
            Fault::Fill { space_bytes } => (5, 0, Duration::ZERO, space_bytes),
        };
        let mut bytes = [0; RULE_BYTES];
        bytes[4..8].copy_from_slice(&self.operations.0.to_ne_bytes());
        bytes[8..12].copy_from_slice(&fault.to_ne_bytes());
        bytes[12..16].copy_from_slice(&error.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.skip.to_ne_bytes());
        bytes[24..32].copy_from_slice(&self.count.to_ne_bytes());
        bytes[32..40].copy_from_slice(&u64::try_from(delay.as_micros()).unwrap_or(u64::MAX).to_ne_bytes());
        bytes[40..48].copy_from_slice(&space.to_ne_bytes());
        let pattern = self.paths.as_bytes();
        if pattern.len() >= PATTERN_BYTES || pattern.contains(&0) {
            return None;
        }
        bytes[PATTERN_AT..PATTERN_AT + pattern.len()].copy_from_slice(pattern);
        Some(bytes)
    }
}
