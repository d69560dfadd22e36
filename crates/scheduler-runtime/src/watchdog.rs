//! Finds decision threads that hang although their process lives. A pure value; a thread beside the runtime keeps it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::doorbell::Pulse;

/// How often the threads are looked at, as long as there are not too many.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Threads that are looked at in that time: they cost one to three hundredths of a core. Of more, which only leads with threads
/// of their own have, each is looked at less often.
const THREADS_PER_LOOK: usize = 250;

/// A look that comes later than so many pauses was itself held up: then so, perhaps, was the thread that is looked at.
const LATE_PAUSES: u32 = 3;

/// The pause between two looks at so many threads.
pub(crate) fn look_every(threads: usize) -> Duration {
    LOOK_EVERY * threads.div_ceil(THREADS_PER_LOOK).clamp(1, u16::MAX.into()) as u32
}

/// Watches the decision threads of a replica.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    /// By the number of the thread: its pulse, and since when it has not changed while there was something to do.
    threads: HashMap<u64, (u64, Instant)>,
    looked: Option<Instant>,
    /// The pause that was announced with the last look.
    pause: Duration,
}

impl Watchdog {
    /// Takes a look at all threads, and says which have been busy with one thing for longer than `stuck_after`. The next look
    /// comes after `pause`.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        pause: Duration,
        stuck_after: Duration,
        pulses: impl Iterator<Item = (u64, Pulse)>,
    ) -> Vec<u64> {
        let late = self.looked.is_some_and(|last| now.saturating_duration_since(last) > self.pause * LATE_PAUSES);
        (self.looked, self.pause) = (Some(now), pause);
        let (mut threads, mut stuck) = (HashMap::with_capacity(self.threads.len()), Vec::new());
        for (number, pulse) in pulses {
            let known = self.threads.get(&number);
            let same = known.filter(|(count, _)| *count == pulse.count && pulse.busy && !late);
            let since = same.map_or(now, |(_, since)| *since);
            if now.saturating_duration_since(since) > stuck_after {
                stuck.push(number);
            }
            threads.insert(number, (pulse.count, since));
        }
        self.threads = threads;
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUCK_AFTER: Duration = Duration::from_millis(100);
    const WELL: u64 = 3;
    const ILL: u64 = 8;

    struct Scene {
        watchdog: Watchdog,
        start: Instant,
    }

    impl Scene {
        /// A look at two threads: one is well, the other has this pulse. Whether that one is stuck.
        fn look(&mut self, ms: u64, count: u64, busy: bool) -> bool {
            let well = Pulse { count: ms, busy: true };
            let now = self.start + Duration::from_millis(ms);
            let pulses = [(WELL, well), (ILL, Pulse { count, busy })].into_iter();
            let stuck = self.watchdog.look(now, LOOK_EVERY, STUCK_AFTER, pulses);
            assert!(!stuck.contains(&WELL), "at {ms} ms");
            stuck.contains(&ILL)
        }
    }

    fn scene() -> Scene {
        Scene { watchdog: Watchdog::default(), start: Instant::now() }
    }

    #[test]
    fn a_thread_that_stays_in_one_turn_is_stuck_and_one_that_sleeps_is_not() {
        let mut scene = scene();
        for ms in (0..=2_000).step_by(10) {
            assert!(!scene.look(ms, 4, false), "nothing to do at {ms} ms");
        }
        for ms in (2_010..=2_110).step_by(10) {
            assert!(!scene.look(ms, 5, true), "in a turn until {ms} ms");
        }
        assert!(scene.look(2_120, 5, true));
        assert!(!scene.look(2_130, 6, true), "it goes on");
    }

    #[test]
    fn a_thread_that_does_not_wake_when_it_is_rung_is_stuck() {
        let mut scene = scene();
        let found = (0..).step_by(10).find(|&ms| scene.look(ms, 4, true));
        assert_eq!(found, Some(110));
    }

    #[test]
    fn a_thread_that_takes_the_place_of_another_begins_anew() {
        let (mut watchdog, start) = (Watchdog::default(), Instant::now());
        let mut look = |ms, number| {
            let pulses = std::iter::once((number, Pulse { count: 4, busy: true }));
            watchdog.look(start + Duration::from_millis(ms), LOOK_EVERY, STUCK_AFTER, pulses)
        };
        for ms in (0..=100).step_by(10) {
            assert!(look(ms, ILL).is_empty());
        }
        assert_eq!(look(110, ILL), [ILL]);
        assert!(look(120, ILL + 1).is_empty());
        assert!(look(130, ILL).is_empty(), "long forgotten");
    }

    #[test]
    fn many_threads_are_looked_at_less_often_and_that_is_not_late() {
        let pauses = [0, 1, 250, 251, 1_000].map(|threads| look_every(threads).as_millis());
        assert_eq!(pauses, [10, 10, 10, 20, 40]);
        let (mut watchdog, start) = (Watchdog::default(), Instant::now());
        let found = (0..).step_by(40).find(|&ms| {
            let now = start + Duration::from_millis(ms);
            let pulses = std::iter::once((ILL, Pulse { count: 4, busy: true }));
            watchdog.look(now, look_every(1_000), STUCK_AFTER, pulses) == [ILL]
        });
        assert_eq!(found, Some(120));
    }

    #[test]
    fn who_looks_late_was_held_up_itself_and_forgives() {
        let mut scene = scene();
        assert!(!scene.look(0, 5, true));
        assert!(!scene.look(5_000, 5, true), "the whole process was paused");
        assert!(!scene.look(5_030, 5, true));
        assert!(!scene.look(5_061, 5, true), "paused again");
        let found = (5_070..).step_by(10).find(|&ms| scene.look(ms, 5, true));
        assert_eq!(found, Some(5_170), "stuck for as long after the pause");
    }
}
