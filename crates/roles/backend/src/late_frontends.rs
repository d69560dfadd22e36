//! Frontends that plans have waited for in vain. Plans do not wait for them again until one of their inputs arrives: a
//! frontend that backends cannot reach goes on announcing requests, and each batch with one of them would start late
//! for all the others.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use symphony_types::{BootId, FrontendId};

/// A boot of a frontend that inputs are read from.
pub(crate) type FrontendBoot = (FrontendId, BootId);

/// As many as there can be frontends; beyond that, former boots are forgotten.
const LATE_FRONTENDS_MAX: usize = 4096;

/// Shared by the threads of all GPUs and the readers of their inputs.
#[derive(Debug, Default)]
pub(crate) struct LateFrontends(Mutex<HashSet<FrontendBoot>>);

impl LateFrontends {
    fn set(&self) -> MutexGuard<'_, HashSet<FrontendBoot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A plan waited for these and they did not answer.
    pub(crate) fn waited_in_vain(&self, frontends: impl IntoIterator<Item = FrontendBoot>) {
        let mut late = self.set();
        for frontend in frontends {
            if late.len() >= LATE_FRONTENDS_MAX {
                late.clear();
            }
            if late.insert(frontend) {
                tracing::warn!(frontend = %frontend.0, "inputs do not come in time; batches start without them until one comes");
            }
        }
    }

    /// An input came, in time or not.
    pub(crate) fn came(&self, frontend: FrontendBoot) {
        if self.set().remove(&frontend) {
            tracing::info!(frontend = %frontend.0, "inputs come again");
        }
    }

    /// Whether any of these is worth waiting for.
    pub(crate) fn is_one_in_time(&self, frontends: &[FrontendBoot]) -> bool {
        let late = self.set();
        frontends.iter().any(|frontend| !late.contains(frontend))
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
        let late = LateFrontends::default();
        assert!(late.is_one_in_time(&[frontend(1)]));
        assert!(!late.is_one_in_time(&[]), "nobody is waited for");
        late.waited_in_vain([frontend(1)]);
        assert!(!late.is_one_in_time(&[frontend(1)]));
        assert!(late.is_one_in_time(&[frontend(1), frontend(2)]));
        let next_life = (FrontendId::new(1), BootId::new(2));
        assert!(late.is_one_in_time(&[next_life]));
        late.came(frontend(1));
        assert!(late.is_one_in_time(&[frontend(1)]));
    }

    #[test]
    fn no_more_are_kept_than_there_can_be() {
        let late = LateFrontends::default();
        late.waited_in_vain((0..=LATE_FRONTENDS_MAX as u32).map(frontend));
        assert_eq!(late.set().len(), 1);
        assert!(!late.is_one_in_time(&[frontend(LATE_FRONTENDS_MAX as u32)]));
    }
}
