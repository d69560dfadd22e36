//! A link: one connection between two processes, and frames of one message type each way. Frames travel on the
//! connection itself at first, and later through shared memory or over RDMA if the two agree
//! ([`crate::carrier_negotiation`]).
//!
//! Writing never waits: frames go into a bounded queue, and the link's own task writes everything that has gathered
//! with one system call (coalescing). A full queue means that the peer has stopped reading. The sender learns it and
//! gives the link up, because a late plan or request is worth nothing.

mod open;
mod receiver;
mod rest;
mod streams;
mod writer;

pub use open::{CONNECT_TIMEOUT, HELLO_WITHIN, connect_link, link_over};
pub(crate) use open::{connect_data_link, data_link_over, link_over_streams};
pub use receiver::LinkReceiver;
pub use rest::EchoTrigger;
pub(crate) use streams::{Inbound, Outbound, Streams};

use std::sync::Arc;

use bytes::Bytes;
use symphony_protocol::{FrameError, Message};
use tokio::sync::{Notify, mpsc};

/// Frames that may wait for the writer of a link. At a hundred thousand frames per second this is 80 ms of them.
pub const LINK_FRAMES_MAX: usize = 8192;

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The connection failed.
    #[error("link to {peer}: {source}")]
    Io {
        /// The other end.
        peer: String,
        /// What happened.
        source: std::io::Error,
    },
    /// No connection within [`CONNECT_TIMEOUT`].
    #[error("link to {peer}: no connection within {} ms", CONNECT_TIMEOUT.as_millis())]
    ConnectTimeout {
        /// The other end.
        peer: String,
    },
    /// The peer sent something that is not a frame of this link.
    #[error("link to {peer}: {source}")]
    Frame {
        /// The other end.
        peer: String,
        /// What is wrong with it.
        source: FrameError,
    },
    /// The peer closed the connection.
    #[error("link to {peer} was closed by the peer")]
    Closed {
        /// The other end.
        peer: String,
    },
    /// One of the two ends refuses frames over TCP.
    #[error(
        "link to {peer}: another way than TCP is required for frames (frames.required), and the two have none: {reason}"
    )]
    OnlyTcp {
        /// The other end.
        peer: String,
        /// Why not.
        reason: String,
    },
}

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// [`LINK_FRAMES_MAX`] frames wait already.
    #[error("the link's queue of {LINK_FRAMES_MAX} frames is full: the peer does not read")]
    Full,
    /// The link has ended.
    #[error("the link has ended")]
    Closed,
}

/// The writing end; cheap to clone, usable from any thread.
#[derive(Debug)]
pub struct LinkSender<M> {
    pub(crate) queue: mpsc::Sender<(M, Vec<Bytes>)>,
    pub(crate) close: Arc<Notify>,
}

impl<M> Clone for LinkSender<M> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), close: Arc::clone(&self.close) }
    }
}

impl<M: Message + Send + 'static> LinkSender<M> {
    /// Queues a message; never waits.
    ///
    /// # Errors
    /// If the queue is full or the link has ended.
    pub fn send(&self, message: M) -> Result<(), SendError> {
        self.send_with(message, Vec::new())
    }

    /// Queues a message and raw bytes; never waits.
    ///
    /// # Errors
    /// If the queue is full or the link has ended.
    pub fn send_with(&self, message: M, tail: Vec<Bytes>) -> Result<(), SendError> {
        self.queue.try_send((message, tail)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Closed,
        })
    }

    /// Ends the link for all of its senders: queued frames are written, the peer sees the end, further messages are
    /// refused.
    pub fn close(&self) {
        self.close.notify_one();
    }

    /// Resolves once the link has ended and everything sent before the close is written.
    pub async fn written(&self) {
        self.queue.closed().await;
    }

    /// Whether the link has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}
