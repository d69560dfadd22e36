//! The queue of the detector's inputs.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use tokio::sync::Notify;

use crate::failure_detector::detector::Input;

/// An input, and when it was received.
pub(crate) type Heard = (Instant, Input);

/// The input queue of a detector that runs once per heartbeat interval. Heartbeats wait for the next run; only inputs
/// that need action at once wake its thread.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    queue: SyncSender<Heard>,
    bell: Arc<Notify>,
}

impl Inputs {
    /// A queue with room for `max` inputs, and its receiver.
    pub(crate) fn new(max: usize) -> (Self, Receiver<Heard>) {
        let (queue, heard) = sync_channel(max);
        (Self { queue, bell: Arc::default() }, heard)
    }

    /// Queues an input received at that time. False if the detector has ended.
    pub(crate) fn queue(&self, at: Instant, input: Input) -> bool {
        match self.queue.try_send((at, input)) {
            Ok(()) => {
                if !matches!(input, Input::Heartbeat { .. }) {
                    self.ring();
                }
                true
            }
            // The queue is full of heartbeats. Another heartbeat will follow; and silence will follow the end of a
            // connection.
            Err(TrySendError::Full(_)) => {
                self.ring();
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    /// Wakes the detector's thread.
    pub(crate) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Waits for a ring.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use symphony_types::{BootId, NodeId};

    use super::*;

    #[test]
    fn beats_wait_for_the_next_look_and_what_is_urgent_or_too_much_does_not() {
        let (node, boot, now) = (NodeId::new(2), BootId::new(20), Instant::now());
        let (inputs, heard) = Inputs::new(2);
        let rung = || inputs.rung().now_or_never().is_some();
        assert!(inputs.queue(now, Input::Heartbeat { node, boot }) && !rung());
        assert!(inputs.queue(now, Input::Lost { node, boot }) && rung());
        assert!(inputs.queue(now, Input::Heartbeat { node, boot }) && rung(), "there is no room");
        assert_eq!(heard.try_iter().map(|(_, input)| input).last(), Some(Input::Lost { node, boot }));
        drop(heard);
        assert!(!inputs.queue(now, Input::Heartbeat { node, boot }));
    }
}
