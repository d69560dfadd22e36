//! Takes crews apart that are over.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use crate::crew::Crew;

/// A thread that lets go of crews: that closes links, frees queues, and may wait a second for the disk of a tape, while whoever
/// hands them over has decision threads to watch. It ends when this is dropped, after everything that it was given.
#[derive(Debug)]
pub(crate) struct Sweeper(mpsc::Sender<Crew>);

impl Sweeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (given, gone) = mpsc::channel::<Crew>();
        std::thread::Builder::new().name("sweeper".into()).spawn(move || {
            for crew in gone {
                // One that has panicked may do so again.
                if catch_unwind(AssertUnwindSafe(|| drop(crew))).is_err() {
                    tracing::error!("a lead that was over panicked when it was let go of");
                }
            }
        })?;
        Ok(Self(given))
    }

    /// Lets go of a crew, elsewhere and later.
    pub(crate) fn take(&self, crew: Crew) {
        // The thread lives as long as this does.
        let _ = self.0.send(crew);
    }
}
