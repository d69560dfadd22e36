//! Aborts runs that do not end by themselves: a model may loop for ever. ONNX Runtime checks between operators whether
//! a run should end.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How often runs are checked: their limits are at least ten seconds.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// A run that is still going after this many checks (a minute) since it was ended is stuck within one operator, which
/// ONNX Runtime does not interrupt. Checks and not time, because a process that was paused did not run either.
const STUCK_AFTER_CHECKS: u32 = 120;

static STUCK: AtomicBool = AtomicBool::new(false);

/// Whether a run of this process goes on although it was ended a minute ago. Only the end of the process frees its
/// thread.
#[must_use]
pub fn a_run_is_stuck() -> bool {
    STUCK.load(Ordering::Relaxed)
}

/// Aborts the runs of one model: when the model is given up, or when a run takes too long.
#[derive(Clone, Default)]
pub struct Stop(Arc<Mutex<Runs>>);

/// A run was not begun because the model is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GivenUp;

/// A run that is under way, until this is dropped.
pub(crate) struct Run {
    stop: Stop,
    number: u64,
}

#[derive(Default)]
struct Runs {
    is_given_up: bool,
    next: u64,
    running: BTreeMap<u64, Running>,
}

struct Running {
    /// When the run is overdue; none if it has no limit.
    until: Option<Instant>,
    is_ended: bool,
    /// Checks since it was ended.
    checks: u32,
    end: Box<dyn Fn() + Send>,
}

impl Stop {
    /// Gives the model up: its runs are aborted, and no more begin.
    pub fn give_up(&self) {
        let mut runs = self.runs();
        runs.is_given_up = true;
        runs.end(|_| true);
    }

    /// Registers a run that `end` aborts, from any thread.
    pub(crate) fn begin(&self, until: Option<Instant>, end: impl Fn() + Send + 'static) -> Result<Run, GivenUp> {
        let mut runs = self.runs();
        if runs.is_given_up {
            return Err(GivenUp);
        }
        let number = runs.next;
        runs.next += 1;
        runs.running.insert(number, Running { until, is_ended: false, checks: 0, end: Box::new(end) });
        Ok(Run { stop: self.clone(), number })
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts aborting overdue runs.
    pub(crate) fn watched(self) -> Self {
        static WATCHED: Mutex<Vec<Weak<Mutex<Runs>>>> = Mutex::new(Vec::new());
        static BEGIN: Once = Once::new();
        let watched = || WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        watched().push(Arc::downgrade(&self.0));
        BEGIN.call_once(|| {
            let check = move || {
                loop {
                    thread::sleep(CHECK_EVERY);
                    watched().retain(|weak| {
                        let Some(runs) = weak.upgrade() else { return false };
                        if Self(runs).end_overdue(Instant::now()) {
                            tracing::error!(
                                "a run was ended a minute ago and goes on: only a restart of this process ends it"
                            );
                            STUCK.store(true, Ordering::Relaxed);
                        }
                        true
                    });
                }
            };
            if let Err(error) = thread::Builder::new().name("run-watch".to_owned()).spawn(check) {
                tracing::error!(%error, "no thread that ends runs which take too long");
            }
        });
        self
    }

    /// Ends overdue runs. Returns whether one has just proved to be stuck.
    fn end_overdue(&self, now: Instant) -> bool {
        let mut runs = self.runs();
        runs.end(|running| running.until.is_some_and(|until| until <= now));
        let mut is_stuck = false;
        for running in runs.running.values_mut().filter(|running| running.is_ended) {
            running.checks = running.checks.saturating_add(1);
            is_stuck |= running.checks == STUCK_AFTER_CHECKS;
        }
        is_stuck
    }
}

impl Runs {
    fn end(&mut self, which: impl Fn(&Running) -> bool) {
        for running in self.running.values_mut().filter(|running| which(running)) {
            running.is_ended = true;
            (running.end)();
        }
    }
}

impl Run {
    /// Whether it was aborted.
    pub(crate) fn is_ended(&self) -> bool {
        self.stop.runs().running.get(&self.number).is_some_and(|running| running.is_ended)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop.runs().running.remove(&self.number);
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.runs();
        f.debug_struct("Stop").field("is_given_up", &runs.is_given_up).field("running", &runs.running.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn what_takes_too_long_is_ended_and_nothing_else() {
        let (stop, now) = (Stop::default(), Instant::now());
        let ended = Arc::new(AtomicU32::new(0));
        let begin = |until: Option<Instant>, bit: u32| {
            let ended = Arc::clone(&ended);
            let end = move || {
                ended.fetch_or(bit, Ordering::Relaxed);
            };
            stop.begin(until, end).unwrap()
        };
        let second = Duration::from_secs(1);
        let (overdue, early, any) = (begin(Some(now + second), 1), begin(Some(now + 3 * second), 2), begin(None, 4));
        stop.end_overdue(now);
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        stop.end_overdue(now + 2 * second);
        assert_eq!(ended.load(Ordering::Relaxed), 1);
        assert!(overdue.is_ended() && !early.is_ended() && !any.is_ended());

        // A finished run is not aborted: its options may belong to another run by now.
        drop((overdue, early));
        ended.store(0, Ordering::Relaxed);
        stop.give_up();
        assert_eq!(ended.load(Ordering::Relaxed), 4);
        assert!(any.is_ended());
        assert!(stop.begin(None, || ()).is_err(), "nothing is begun any more");
    }
    #[test]
    fn a_run_that_goes_on_for_a_minute_after_it_was_ended_is_stuck_and_a_long_one_is_not() {
        let (stop, now) = (Stop::default(), Instant::now());
        let hour = Duration::from_secs(3_600);
        let (stuck, _long) = (stop.begin(Some(now), || ()).unwrap(), stop.begin(Some(now + hour), || ()).unwrap());
        let overdue: Vec<_> = (1..=2 * STUCK_AFTER_CHECKS).filter(|_| stop.end_overdue(now)).collect();
        assert_eq!(overdue, [STUCK_AFTER_CHECKS], "it is told once");
        drop(stuck);
        assert!((0..2 * STUCK_AFTER_CHECKS).all(|_| !stop.end_overdue(now + hour / 2)));
    }
}
