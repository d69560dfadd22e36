//! Frontends whose inputs plans have waited for without success. Plans do not wait for them again until one of their
//! inputs arrives: a frontend that backends cannot reach goes on announcing requests, and each batch with one of them
//! would start late for all the others.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use symphony_types::{BootId, FrontendId};

/// A boot of a frontend that inputs are read from.
pub(crate) type FrontendBoot = (FrontendId, BootId);

/// As many as there can be frontends; beyond that, former boots are forgotten.
const UNRESPONSIVE_MAX: usize = 4096;

/// Shared by the threads of all GPUs and the readers of their inputs.
#[derive(Debug, Default)]
pub(crate) struct UnresponsiveFrontends(Mutex<HashSet<FrontendBoot>>);

impl UnresponsiveFrontends {
    fn set(&self) -> MutexGuard<'_, HashSet<FrontendBoot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A plan waited for these and they did not answer.
    pub(crate) fn mark_unresponsive(&self, frontends: impl IntoIterator<Item = FrontendBoot>) {
        let mut unresponsive = self.set();
        for frontend in frontends {
            if unresponsive.len() >= UNRESPONSIVE_MAX {
                unresponsive.clear();
            }
            if unresponsive.insert(frontend) {
                tracing::warn!(frontend = %frontend.0, "inputs do not come in time; batches start without them until one comes");
            }
        }
    }

    /// An input came, in time or not.
    pub(crate) fn mark_responsive(&self, frontend: FrontendBoot) {
        if self.set().remove(&frontend) {
            tracing::info!(frontend = %frontend.0, "inputs come again");
        }
    }

    /// Whether any of these is worth waiting for.
    pub(crate) fn any_responsive(&self, frontends: &[FrontendBoot]) -> bool {
        let unresponsive = self.set();
        frontends.iter().any(|frontend| !unresponsive.contains(frontend))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frontend(number: u32) -> FrontendBoot {
        (FrontendId::new(number), BootId::new(1))
    }

    #[test]
    fn who_was_waited_for_in_vain_is_late_until_an_input_comes() {
        let unresponsive = UnresponsiveFrontends::default();
        assert!(unresponsive.any_responsive(&[frontend(1)]));
        assert!(!unresponsive.any_responsive(&[]), "nobody is waited for");
        unresponsive.mark_unresponsive([frontend(1)]);
        assert!(!unresponsive.any_responsive(&[frontend(1)]));
        assert!(unresponsive.any_responsive(&[frontend(1), frontend(2)]));
        let next_boot = (FrontendId::new(1), BootId::new(2));
        assert!(unresponsive.any_responsive(&[next_boot]));
        unresponsive.mark_responsive(frontend(1));
        assert!(unresponsive.any_responsive(&[frontend(1)]));
    }

    #[test]
    fn no_more_are_kept_than_there_can_be() {
        let unresponsive = UnresponsiveFrontends::default();
        unresponsive.mark_unresponsive((0..=UNRESPONSIVE_MAX as u32).map(frontend));
        assert_eq!(unresponsive.set().len(), 1);
        assert!(!unresponsive.any_responsive(&[frontend(UNRESPONSIVE_MAX as u32)]));
    }
}
