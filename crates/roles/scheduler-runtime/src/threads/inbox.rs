//! A worker's inbox: unbounded for messages that must not be lost, limited for those that may be refused.

use std::sync::Arc;

use crossbeam::queue::SegQueue;

use crate::threads::waker::GroupWaker;

/// Messages in an inbox beyond which requests are refused. Grants, releases and reports are never refused; their
/// number is bounded by the numbers of GPUs and backends.
pub(crate) const INBOX_REQUEST_FRAMES_MAX: usize = 4096;

/// Messages for one worker, and the waker of the group that it belongs to.
#[derive(Debug)]
pub(crate) struct Inbox<M> {
    messages: SegQueue<M>,
    waker: Arc<GroupWaker>,
}

impl<M> Inbox<M> {
    pub(crate) fn new(waker: Arc<GroupWaker>) -> Self {
        Self { messages: SegQueue::new(), waker }
    }

    /// Delivers a message that must not be lost.
    pub(crate) fn push(&self, message: M) {
        self.messages.push(message);
        self.waker.wake();
    }

    /// Delivers without waking; the caller wakes the group later, once for all messages.
    pub(crate) fn push_silently(&self, message: M) {
        self.messages.push(message);
    }

    /// Delivers a message that may be refused; returns it when the inbox is at its limit.
    pub(crate) fn try_push(&self, message: M) -> Result<(), M> {
        if self.messages.len() >= INBOX_REQUEST_FRAMES_MAX {
            return Err(message);
        }
        self.push(message);
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<M> {
        self.messages.pop()
    }

    pub(crate) fn wake(&self) {
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_refused_at_the_limit_and_orders_are_not() {
        let inbox = Inbox::new(Arc::new(GroupWaker::default()));
        for i in 0..INBOX_REQUEST_FRAMES_MAX {
            inbox.try_push(i).unwrap();
        }
        assert_eq!(inbox.try_push(7), Err(7));
        inbox.push(8);
        assert_eq!(inbox.pop(), Some(0));
    }
}
