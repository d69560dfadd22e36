//! Finds hung decision threads in a live process. A pure value, run by a thread beside the runtime.

use std::collections::HashMap;

use symphony_types::{Nanos, Time};

use crate::threads::waker::Pulse;

/// How often a thread is checked whose turn may soon count as hung, while the number of threads is small.
const CHECK_EVERY: Nanos = Nanos::from_millis(10);

/// Threads checked per [`CHECK_EVERY`]; they cost one to three hundredths of a core. Only leads with threads of their
/// own reach more threads, and each is then checked less often.
const THREADS_PER_CHECK: usize = 250;

/// The longest pause is the time after which a thread is stuck, divided by this. Threads publish when their turn began
/// or when they were woken. So a turn that begins just after a check is seen by the next one, and checked again
/// exactly when it counts as hung.
const LONGEST_PAUSE_PART: u64 = 2;

/// A check that comes this many times [`CHECK_EVERY`] late was itself delayed, and so, perhaps, was the thread under
/// watch.
const LATE_CHECKS: u64 = 2;

/// The shortest pause between two checks of this many threads.
fn check_pause_min(threads: usize) -> Nanos {
    CHECK_EVERY.saturating_mul(threads.div_ceil(THREADS_PER_CHECK).max(1) as u64)
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// Threads that hang.
    pub(crate) stuck: Vec<u64>,
    /// The pause until the next check.
    pub(crate) pause: Nanos,
}

/// Watches the decision threads of a replica.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stuck_after: Nanos,
    /// By thread number: its pulse, and since when the pulse has stood still although there is work.
    threads: HashMap<u64, (u64, Option<Time>)>,
    /// When the last check was, and when the next one is due.
    checked: Option<(Time, Time)>,
}

impl Watchdog {
    /// A watchdog for which a thread hangs if one turn takes longer than `stuck_after`.
    pub(crate) fn new(stuck_after: Nanos) -> Self {
        Self { stuck_after, threads: HashMap::new(), checked: None }
    }

    /// Checks all threads.
    pub(crate) fn check(&mut self, now: Time, pulses: impl ExactSizeIterator<Item = (u64, Pulse)>) -> Check {
        let shortest = check_pause_min(pulses.len());
        let late_by = shortest.saturating_mul(LATE_CHECKS);
        // The time before the last check has been judged by it; the time before a pause of this process counts against
        // no thread.
        let judged = match self.checked {
            Some((_, due)) if now > due + late_by => now,
            Some((last, _)) => last,
            None => now,
        };
        let mut pause = Nanos::new(self.stuck_after.get() / LONGEST_PAUSE_PART).max(shortest);
        let (mut threads, mut stuck) = (HashMap::with_capacity(self.threads.len()), Vec::new());
        for (number, pulse) in pulses {
            let same = self.threads.get(&number).filter(|(count, _)| *count == pulse.count && judged < now);
            let known = same.and_then(|(_, since)| *since);
            let since = known.unwrap_or_else(|| pulse.since.map_or(now, |since| since.max(judged)));
            threads.insert(number, (pulse.count, pulse.busy.then_some(since)));
            if !pulse.busy {
                continue;
            }
            let hangs_at = since + self.stuck_after;
            if now > hangs_at {
                stuck.push(number);
            }
            pause = pause.min(hangs_at.since(now)).max(shortest);
        }
        self.threads = threads;
        self.checked = Some((now, now + pause));
        Check { stuck, pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUCK_AFTER: Nanos = Nanos::from_millis(100);
    const WELL: u64 = 3;
    const ILL: u64 = 8;

    fn at(ms: u64) -> Time {
        Time::from_nanos(3_600_000_000_000) + Nanos::from_millis(ms)
    }

    fn woken(count: u64, since: u64) -> Pulse {
        Pulse { count, busy: true, since: Some(at(since)) }
    }

    const fn asleep(count: u64) -> Pulse {
        Pulse { count, busy: false, since: None }
    }

    fn in_turn(count: u64, since: u64) -> Pulse {
        Pulse { count, busy: true, since: Some(at(since)) }
    }

    fn watchdog() -> Watchdog {
        Watchdog::new(STUCK_AFTER)
    }

    /// Checks two threads, one of which is healthy and busy. Returns whether the other one is stuck, and the pause in
    /// milliseconds.
    fn check(watchdog: &mut Watchdog, ms: u64, ill: Pulse) -> (bool, u64) {
        let well = in_turn(ms, ms.saturating_sub(1));
        let check = watchdog.check(at(ms), [(WELL, well), (ILL, ill)].into_iter());
        assert!(!check.stuck.contains(&WELL), "at {ms} ms");
        (check.stuck.contains(&ILL), check.pause.get() / 1_000_000)
    }

    /// Checks at the requested pace until the other thread is stuck, and returns the time.
    fn found(watchdog: &mut Watchdog, mut ms: u64, ill: impl Fn(u64) -> Pulse) -> u64 {
        loop {
            match check(watchdog, ms, ill(ms)) {
                (true, _) => return ms,
                (false, pause) => ms += pause,
            }
            assert!(ms < 10_000, "never");
        }
    }

    #[test]
    fn a_thread_that_sleeps_is_never_stuck_and_seldom_looked_at() {
        let mut watchdog = watchdog();
        for ms in (0..=2_000).step_by(50) {
            assert_eq!(check(&mut watchdog, ms, asleep(4)), (false, 50), "at {ms} ms");
        }
    }

    #[test]
    fn a_turn_that_hangs_is_found_as_soon_as_it_is_one_whenever_it_began() {
        for began in 1_000..1_100 {
            let mut watchdog = watchdog();
            let pulse = |ms| if ms >= began { in_turn(5, began) } else { asleep(4) };
            let found = found(&mut watchdog, 0, pulse);
            assert!((began + 101..=began + 110).contains(&found), "began at {began}, found at {found}");
            assert!(!check(&mut watchdog, found + 10, in_turn(7, found + 9)).0, "it goes on");
        }
    }

    #[test]
    fn a_thread_that_does_not_wake_is_found_as_long_after_it_was_woken_whenever_that_was() {
        for woken_at in 1_000..1_100 {
            let found = found(&mut watchdog(), 0, |ms| if ms >= woken_at { woken(4, woken_at) } else { asleep(4) });
            assert!((woken_at + 101..=woken_at + 110).contains(&found), "woken at {woken_at}, found at {found}");
        }
    }

    #[test]
    fn a_wake_up_that_says_too_early_a_time_counts_from_the_last_look_on() {
        let found = found(&mut watchdog(), 0, |ms| if ms > 1_000 { woken(4, 3) } else { asleep(4) });
        assert_eq!(found, 1_110, "nobody was seen to be late at 1000");
    }

    #[test]
    fn a_thread_whose_first_turn_has_no_time_yet_is_stuck_as_long_after_it_was_seen() {
        assert_eq!(found(&mut watchdog(), 0, |_| Pulse { count: 1, busy: true, since: None }), 110);
    }

    #[test]
    fn a_thread_that_takes_the_place_of_another_begins_anew() {
        let mut watchdog = watchdog();
        let mut check = |ms, number| watchdog.check(at(ms), std::iter::once((number, in_turn(4, 0)))).stuck;
        for ms in [0, 50, 100] {
            assert!(check(ms, ILL).is_empty());
        }
        assert_eq!(check(110, ILL), [ILL]);
        assert!(check(120, ILL + 1).is_empty());
        assert!(check(130, ILL).is_empty(), "long forgotten");
    }

    #[test]
    fn many_threads_are_looked_at_less_often_and_that_is_not_late() {
        let pauses = [0, 1, 250, 251, 1_000].map(|threads| check_pause_min(threads).get() / 1_000_000);
        assert_eq!(pauses, [10, 10, 10, 20, 40]);
        let (mut watchdog, mut ms) = (watchdog(), 0);
        let found = loop {
            let others = (100..1_099).map(|number| (number, asleep(2)));
            let all: Vec<_> = others.chain([(ILL, in_turn(5, 0))]).collect();
            let check = watchdog.check(at(ms), all.into_iter());
            if check.stuck == [ILL] {
                break ms;
            }
            ms += check.pause.get() / 1_000_000;
        };
        assert_eq!(found, 140);
    }

    #[test]
    fn who_looks_late_was_held_up_itself_and_forgives() {
        let mut watchdog = watchdog();
        assert_eq!(check(&mut watchdog, 0, in_turn(5, 0)), (false, 50));
        assert_eq!(check(&mut watchdog, 70, in_turn(5, 0)), (false, 30), "late, but not by too much");
        assert_eq!(check(&mut watchdog, 5_000, in_turn(5, 0)), (false, 50), "the whole process was paused");
        assert_eq!(check(&mut watchdog, 5_080, in_turn(5, 0)), (false, 50), "paused again");
        assert_eq!(found(&mut watchdog, 5_130, |_| in_turn(5, 0)), 5_190, "stuck for as long after the pause");
    }
}
