//! Drops worker groups that have ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use crate::threads::worker_group::WorkerGroup;

/// A thread that drops worker groups. Dropping them closes links, frees queues, and may wait a second for the disk of a
/// tape, which the watchdog's thread must not do. It ends when this value is dropped, after it has dropped every group
/// it was given.
#[derive(Debug)]
pub(crate) struct Reaper(mpsc::Sender<WorkerGroup>);

impl Reaper {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (given, gone) = mpsc::channel::<WorkerGroup>();
        std::thread::Builder::new().name("reaper".into()).spawn(move || {
            for group in gone {
                // A group that panicked may panic again while it is dropped.
                if catch_unwind(AssertUnwindSafe(|| drop(group))).is_err() {
                    tracing::error!("a lead that was over panicked when it was let go of");
                }
            }
        })?;
        Ok(Self(given))
    }

    /// Drops a group later, on the reaper's thread.
    pub(crate) fn take(&self, group: WorkerGroup) {
        // The thread runs at least as long as this value lives.
        let _ = self.0.send(group);
    }
}
