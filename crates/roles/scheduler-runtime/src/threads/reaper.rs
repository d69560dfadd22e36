//! Takes groups apart that are over.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use crate::threads::worker_group::WorkerGroup;

/// A thread that lets go of groups: that closes links, frees queues, and may wait a second for the disk of a tape,
/// while whoever hands them over has decision threads to watch. It ends when this is dropped, after everything that it
/// was given.
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
                // One that has panicked may do so again.
                if catch_unwind(AssertUnwindSafe(|| drop(group))).is_err() {
                    tracing::error!("a lead that was over panicked when it was let go of");
                }
            }
        })?;
        Ok(Self(given))
    }

    /// Lets go of a group, elsewhere and later.
    pub(crate) fn take(&self, group: WorkerGroup) {
        // The thread lives as long as this does.
        let _ = self.0.send(group);
    }
}
