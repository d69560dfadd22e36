//! Which levels backends and frontends know, by their watches of this replica.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use symphony_types::{BootId, Level, Member};

type Life = (Member, BootId);

/// The levels of the processes that watch this replica: each watches every replica while it lives. Clones share them.
/// As many as there are open watches.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessLevels(Arc<Mutex<BTreeMap<Life, Watches>>>);

#[derive(Debug)]
struct Watches {
    level: Level,
    open: u32,
}

impl ProcessLevels {
    fn lives(&self) -> MutexGuard<'_, BTreeMap<Life, Watches>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process watches and tells what it knows; until the returned value is dropped.
    pub(crate) fn begin(&self, life: Life, level: Level) -> LevelTold {
        let mut lives = self.lives();
        let watches = lives.entry(life).or_insert(Watches { level, open: 0 });
        watches.open += 1;
        drop(lives);
        LevelTold { levels: self.clone(), life }
    }

    /// The newest level that this boot knows; none if it does not watch, or told nothing.
    pub(crate) fn of(&self, life: Life) -> Option<Level> {
        self.lives().get(&life).map(|watches| watches.level)
    }
}

/// An open watch of a process that has told its level.
#[derive(Debug)]
pub(crate) struct LevelTold {
    levels: ProcessLevels,
    life: Life,
}

impl Drop for LevelTold {
    fn drop(&mut self) {
        let mut lives = self.levels.lives();
        if let Some(watches) = lives.get_mut(&self.life) {
            watches.open -= 1;
            if watches.open == 0 {
                lives.remove(&self.life);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_types::BackendId;

    use super::*;

    #[test]
    fn a_level_is_known_while_a_watch_is_open_and_of_that_life_only() {
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
        assert_eq!((levels.of(old), levels.of(new), levels.lives().len()), (None, None, 0));
    }
}
