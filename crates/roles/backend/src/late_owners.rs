//! Frontends that plans have waited for in vain. Plans do not wait for them again until one of their inputs arrives: a
//! frontend that backends cannot reach goes on announcing requests, and each batch with one of them would start late
//! for all the others.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use symphony_types::{BootId, FrontendId};

/// A boot of a frontend that inputs are read from.
pub(crate) type Owner = (FrontendId, BootId);

/// As many as there can be frontends; beyond that, former boots are forgotten.
const LATE_OWNERS_MAX: usize = 4096;

/// Shared by the threads of all GPUs and the readers of their inputs.
#[derive(Debug, Default)]
pub(crate) struct LateOwners(Mutex<HashSet<Owner>>);

impl LateOwners {
    fn set(&self) -> MutexGuard<'_, HashSet<Owner>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A plan has waited for these frontends without an answer.
    pub(crate) fn waited_in_vain(&self, owners: impl IntoIterator<Item = Owner>) {
        let mut late = self.set();
        for owner in owners {
            if late.len() >= LATE_OWNERS_MAX {
                late.clear();
            }
            if late.insert(owner) {
                tracing::warn!(frontend = %owner.0, "inputs do not come in time; batches start without them until one comes");
            }
        }
    }

    /// An input arrived, in time or not.
    pub(crate) fn came(&self, owner: Owner) {
        if self.set().remove(&owner) {
            tracing::info!(frontend = %owner.0, "inputs come again");
        }
    }

    /// Whether any of these is worth waiting for.
    pub(crate) fn is_one_in_time(&self, owners: &[Owner]) -> bool {
        let late = self.set();
        owners.iter().any(|owner| !late.contains(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(number: u32) -> Owner {
        (FrontendId::new(number), BootId::new(1))
    }

    #[test]
    fn who_was_waited_for_in_vain_is_late_until_an_input_comes() {
        let late = LateOwners::default();
        assert!(late.is_one_in_time(&[owner(1)]));
        assert!(!late.is_one_in_time(&[]), "nobody is waited for");
        late.waited_in_vain([owner(1)]);
        assert!(!late.is_one_in_time(&[owner(1)]));
        assert!(late.is_one_in_time(&[owner(1), owner(2)]));
        let next_life = (FrontendId::new(1), BootId::new(2));
        assert!(late.is_one_in_time(&[next_life]));
        late.came(owner(1));
        assert!(late.is_one_in_time(&[owner(1)]));
    }

    #[test]
    fn no_more_are_kept_than_there_can_be() {
        let late = LateOwners::default();
        late.waited_in_vain((0..=LATE_OWNERS_MAX as u32).map(owner));
        assert_eq!(late.set().len(), 1);
        assert!(!late.is_one_in_time(&[owner(LATE_OWNERS_MAX as u32)]));
    }
}
