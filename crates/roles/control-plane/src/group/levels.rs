//! Which levels backends and frontends know, by their watches of this replica.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use symphony_types::{BootId, Level, Member};

type MemberBoot = (Member, BootId);

/// The levels of the processes that watch this replica: each watches every replica while it lives. Clones share them.
/// As many as there are open watches.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessLevels(Arc<Mutex<BTreeMap<MemberBoot, Watches>>>);

#[derive(Debug)]
struct Watches {
    level: Level,
    open: u32,
}

impl ProcessLevels {
    fn boots(&self) -> MutexGuard<'_, BTreeMap<MemberBoot, Watches>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process watches, and knows this level; until the returned value is dropped.
    pub(crate) fn begin(&self, boot: MemberBoot, level: Level) -> WatchedLevel {
        let mut boots = self.boots();
        let watches = boots.entry(boot).or_insert(Watches { level, open: 0 });
        watches.open += 1;
        drop(boots);
        WatchedLevel { levels: self.clone(), boot }
    }

    /// The newest level that this boot knows; none if it does not watch, or has not reported one.
    pub(crate) fn of(&self, boot: MemberBoot) -> Option<Level> {
        self.boots().get(&boot).map(|watches| watches.level)
    }
}

/// An open watch of a process that has reported its level.
#[derive(Debug)]
pub(crate) struct WatchedLevel {
    levels: ProcessLevels,
    boot: MemberBoot,
}

impl Drop for WatchedLevel {
    fn drop(&mut self) {
        let mut boots = self.levels.boots();
        if let Some(watches) = boots.get_mut(&self.boot) {
            watches.open -= 1;
            if watches.open == 0 {
                boots.remove(&self.boot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::BackendId;

    use super::*;

    #[test]
    fn a_level_is_known_while_a_watch_is_open_and_of_that_boot_only() {
        let (levels, member) = (ProcessLevels::default(), Member::Backend(BackendId::new(1)));
        let [old, new] = [7, 8].map(|boot| (member, BootId::new(boot)));
        let first = levels.begin(old, Level::OLDEST);
        // It dials again before the end of the first watch is noticed.
        let again = levels.begin(old, Level::OLDEST);
        drop(first);
        assert_eq!((levels.of(old), levels.of(new)), (Some(Level::OLDEST), None));
        let restarted = levels.begin(new, Level::NEWEST);
        assert_eq!((levels.of(old), levels.of(new)), (Some(Level::OLDEST), Some(Level::NEWEST)));
        drop((again, restarted));
        assert_eq!((levels.of(old), levels.of(new), levels.boots().len()), (None, None, 0));
    }
}
