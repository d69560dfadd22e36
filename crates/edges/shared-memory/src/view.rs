//! The reading side of a pool.

use std::os::fd::AsFd;

use bytes::Bytes;

use crate::buffers::Buffers;
use crate::layout::{Layout, POOL_BYTES_MIN, Unreadable};
use crate::memory::{Memory, OpenError};

/// A pool that another process made. Whatever that process does, a read neither panics nor waits.
#[derive(Debug)]
pub struct PoolView {
    memory: Memory,
    /// As read when the pool was opened; not read again.
    layout: Layout,
    /// For the copies.
    buffers: Buffers,
}

impl PoolView {
    /// The pool behind a descriptor, if it has at most `bytes_max` bytes.
    ///
    /// # Errors
    /// If it is no memory that is sealed, or no pool.
    pub fn open(descriptor: impl AsFd, bytes_max: u64) -> Result<Self, OpenError> {
        let memory = Memory::open(descriptor, POOL_BYTES_MIN, bytes_max)?;
        let layout = Layout::read(memory.words()).map_err(OpenError::NotAPool)?;
        Ok(Self { memory, layout, buffers: Buffers::default() })
    }

    /// A copy of the content of `number`, if it is at most `bytes_max` bytes.
    ///
    /// # Errors
    /// If it is not there, or damaged.
    pub fn read(&self, number: u64, bytes_max: usize) -> Result<Bytes, Unreadable> {
        self.layout.read_number(self.memory.words(), number, bytes_max, &self.buffers)
    }

    /// The most numbers stored at a time.
    #[must_use]
    pub const fn entries(&self) -> usize {
        self.layout.entries()
    }
}
