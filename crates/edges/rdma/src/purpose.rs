//! The purposes of connections, which determine their buffer sizes.

use crate::flow::WINDOW;
use crate::segment::SEGMENT_BYTES;

/// Buffers of one connection for what is sent.
pub(crate) const SEND_BUFFERS: usize = 8;
/// Buffers of one connection for what comes: the window, and some for what carries no data and is done with at once.
pub(crate) const RECEIVE_BUFFERS: usize = WINDOW as usize + 4;
/// READs and bindings of windows that one connection may have posted: more than one process's credits allow at a time.
const READS_POSTED: usize = 88;

/// What the connections of `Fabric` are for. Both ends of a connection have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Payloads are read, and the messages about them are large: some hundred peers, with 0.9 MiB for each stream.
    Payloads,
    /// Frames: a thousand links, with 112 KiB for each. No peer reads memory.
    Frames,
}

impl Purpose {
    /// Bytes of one SEND at most, and of each buffer. Both ends go by it: a longer one finds no buffer that holds it,
    /// and breaks the connection.
    #[must_use]
    pub const fn segment_bytes(self) -> usize {
        match self {
            Self::Payloads => SEGMENT_BYTES,
            // One packet of the largest kind, and more than a hundred requests.
            Self::Frames => 4 << 10,
        }
    }

    /// Memory of one connection, which stays in memory.
    #[must_use]
    pub const fn stream_bytes(self) -> usize {
        (SEND_BUFFERS + RECEIVE_BUFFERS) * self.segment_bytes()
    }

    /// The most connections of one process, if its device's completion queue has room for them.
    #[must_use]
    pub const fn connections_max(self) -> u32 {
        match self {
            Self::Payloads => 256,
            Self::Frames => 1024,
        }
    }

    /// Whether memory is read over these connections.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Payloads)
    }

    /// Work that may be posted to one connection besides receive buffers.
    #[must_use]
    pub const fn send_queue(self) -> u32 {
        match self {
            Self::Payloads => (SEND_BUFFERS + READS_POSTED) as u32,
            Self::Frames => SEND_BUFFERS as u32,
        }
    }

    /// Completions of one connection that may wait to be polled at a time: each work that is posted has one.
    #[must_use]
    pub const fn completions(self) -> u32 {
        self.send_queue() + RECEIVE_BUFFERS as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_connections_take_is_what_the_documents_say() {
        assert_eq!(Purpose::Frames.stream_bytes(), 112 << 10);
        assert_eq!(Purpose::Payloads.stream_bytes(), 896 << 10);
        let all = |purpose: Purpose| purpose.stream_bytes() * purpose.connections_max() as usize;
        assert_eq!(all(Purpose::Frames), 112 << 20);
        assert_eq!(all(Purpose::Payloads), 224 << 20);
    }

    /// A queue of completions that runs over breaks every connection. Soft-RoCE has 32767 places, and hardware has
    /// more.
    #[test]
    fn all_connections_together_cannot_say_more_than_a_device_remembers() {
        for purpose in [Purpose::Payloads, Purpose::Frames] {
            assert!(purpose.completions() * purpose.connections_max() <= 32_767, "{purpose:?}");
        }
    }
}
