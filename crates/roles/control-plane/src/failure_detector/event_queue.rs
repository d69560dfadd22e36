//! The queue of the detector's events.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use tokio::sync::Notify;

use crate::failure_detector::detector::DetectorEvent;

/// An event, and when it was received.
pub(crate) type TimedEvent = (Instant, DetectorEvent);

/// The event queue of a detector that runs once per heartbeat interval. Heartbeats wait for the next run; only events
/// that need action at once wake its thread.
#[derive(Clone, Debug)]
pub(crate) struct EventQueue {
    queue: SyncSender<TimedEvent>,
    waker: Arc<Notify>,
}

impl EventQueue {
    /// A queue with room for `max` events, and its receiver.
    pub(crate) fn new(max: usize) -> (Self, Receiver<TimedEvent>) {
        let (queue, receiver) = sync_channel(max);
        (Self { queue, waker: Arc::default() }, receiver)
    }

    /// Queues an event received at that time. False if the detector has ended.
    pub(crate) fn queue(&self, at: Instant, event: DetectorEvent) -> bool {
        match self.queue.try_send((at, event)) {
            Ok(()) => {
                if !matches!(event, DetectorEvent::Heartbeat { .. }) {
                    self.wake();
                }
                true
            }
            // The queue is full of heartbeats. Another heartbeat will follow; and silence will follow the end of a
            // connection.
            Err(TrySendError::Full(_)) => {
                self.wake();
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    /// Wakes the detector's thread.
    pub(crate) fn wake(&self) {
        self.waker.notify_one();
    }

    /// Waits for a wake-up.
    pub(crate) async fn woken(&self) {
        self.waker.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use symphony_types::{BootId, NodeId};

    use super::*;

    #[test]
    fn heartbeats_wait_for_the_next_look_and_what_is_urgent_or_too_much_does_not() {
        let (node, boot, now) = (NodeId::new(2), BootId::new(20), Instant::now());
        let (events, receiver) = EventQueue::new(2);
        let woken = || events.woken().now_or_never().is_some();
        assert!(events.queue(now, DetectorEvent::Heartbeat { node, boot }) && !woken());
        assert!(events.queue(now, DetectorEvent::Lost { node, boot }) && woken());
        assert!(events.queue(now, DetectorEvent::Heartbeat { node, boot }) && woken(), "there is no room");
        assert_eq!(receiver.try_iter().map(|(_, event)| event).last(), Some(DetectorEvent::Lost { node, boot }));
        drop(receiver);
        assert!(!events.queue(now, DetectorEvent::Heartbeat { node, boot }));
    }
}
