//! A link without a connection: messages come out in the same process.

use std::sync::Arc;

use bytes::Bytes;
use symphony_protocol::Message;
use tokio::sync::{Notify, mpsc};

use crate::link::{LINK_FRAMES_MAX, LinkSender};

/// The receiving end of a [`local_link`].
#[derive(Debug)]
pub struct LocalReceiver<M> {
    queue: mpsc::Receiver<(M, Vec<Bytes>)>,
}

/// A link whose messages stay in this process, with the limit and the sender of a link over TCP: for benchmarks, and
/// for tests of code that holds a sender.
#[must_use]
pub fn local_link<M: Message + Send + 'static>() -> (LinkSender<M>, LocalReceiver<M>) {
    let (queue, receiver) = mpsc::channel(LINK_FRAMES_MAX);
    (LinkSender { queue, close: Arc::new(Notify::new()) }, LocalReceiver { queue: receiver })
}

impl<M> LocalReceiver<M> {
    /// The next message, if there is one.
    pub fn try_receive(&mut self) -> Option<M> {
        self.queue.try_recv().ok().map(|(message, _)| message)
    }
}

#[cfg(test)]
mod tests {
    use symphony_protocol::dispatch::ToLeader;

    use super::*;
    use crate::SendError;

    #[test]
    fn messages_come_out_in_order_and_the_limit_is_that_of_a_link() {
        let (sender, mut receiver) = local_link();
        let message = |n| ToLeader::Cancel { requests: vec![(n, 0)] };
        for n in 0..LINK_FRAMES_MAX as u64 {
            sender.send(message(n)).unwrap();
        }
        assert_eq!(sender.send(message(0)), Err(SendError::Full));
        assert_eq!(receiver.try_receive(), Some(message(0)));
        assert_eq!(receiver.try_receive(), Some(message(1)));
        drop(receiver);
        assert_eq!(sender.send(message(0)), Err(SendError::Closed));
    }
}
