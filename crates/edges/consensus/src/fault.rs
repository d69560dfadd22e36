//! The reaction to a failed disk.

use std::fmt;

/// What a node does when a read or write of its log or snapshots fails.
///
/// After a failed fsync nothing in the page cache may be trusted, so there is no way to go on: the store is poisoned
/// and every later operation fails. The choice is only whether the process ends too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDiskError {
    /// Abort the process at once: the others elect, a supervisor restarts. The default.
    #[default]
    Abort,
    /// Stop the control group's node and leave the process alive; for tests and simulations, which have other nodes in
    /// the same process.
    Stop,
}

impl OnDiskError {
    /// Reports the failure and, if so configured, aborts.
    pub(crate) fn report(self, what: &str, error: &dyn fmt::Display) {
        tracing::error!(what, %error, "disk failed under the control group; nothing it holds may be trusted any more");
        if self == Self::Abort {
            std::process::abort();
        }
    }
}
