//! The decision threads of a replica, and the choice of a thread for each lead.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use core_affinity::CoreId;
use symphony_types::{Nanos, Time};

use crate::threads::clock::Clock;
use crate::threads::decision_thread::{DecisionThread, Slot, ThreadSharing};
use crate::threads::worker_group::WorkerGroup;
use crate::workers::decision_config::DecisionConfig;

/// Default maximum of shared threads, if there are as many cores. One thread decides several hundred thousand requests
/// a second, more than the links of a replica bring to eight of them.
pub(crate) const SHARED_THREADS_MAX: usize = 8;

/// The interval over which the threads' load is measured.
const BUSY_OVER: Nanos = Nanos::from_millis(1_000);

/// The decision threads of a replica, and the configuration of new leads.
///
/// Leads without threads of their own share a few threads. A shared thread starts when a lead needs it. A lead goes to
/// the least loaded thread, and stays there.
#[derive(Debug)]
pub struct DecisionThreads {
    config: DecisionConfig,
    clock: Clock,
    shared_max: usize,
    /// The cores that threads are bound to, in this order; empty without pinning.
    cores: Vec<CoreId>,
    threads: Mutex<Vec<Known>>,
    /// Threads started so far.
    numbers: AtomicU64,
    /// Worker groups that have panicked so far.
    panics: Arc<AtomicU64>,
    /// Threads that have hung so far.
    hangs: AtomicU64,
    /// Leads that have ended so far by a fault of their policy.
    policy_faults: Arc<AtomicU64>,
}

/// A thread, and its recent load in percent.
#[derive(Debug)]
struct Known {
    thread: Arc<DecisionThread>,
    measured: (Time, u64),
    busy_percent: usize,
}

/// The load of a thread: one group counts as a hundredth of a core.
fn load(groups: usize, busy_percent: usize) -> usize {
    groups + busy_percent
}

impl DecisionThreads {
    /// Threads for leads with this configuration; none is started yet.
    #[must_use]
    pub fn new(config: DecisionConfig) -> Self {
        let shared_max = match config.shared_threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(SHARED_THREADS_MAX),
            threads => threads as usize,
        };
        // The cores are read here, not by the threads: threads inherit the caller's cores, and the caller may be bound
        // later.
        let mut cores = if config.threads.pin { core_affinity::get_core_ids().unwrap_or_default() } else { Vec::new() };
        if !cores.is_empty() {
            let first = config.first_core % cores.len();
            cores.rotate_left(first);
        }
        let (threads, clock) = (Mutex::default(), Clock::start());
        let (numbers, panics, hangs) = (AtomicU64::new(0), Arc::default(), AtomicU64::new(0));
        Self { config, clock, shared_max, cores, threads, numbers, panics, hangs, policy_faults: Arc::default() }
    }

    /// How leads decide.
    pub(crate) const fn config(&self) -> &DecisionConfig {
        &self.config
    }

    /// The clock of all leads on these threads: the timers of one thread must share a clock.
    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    /// A slot on the least loaded shared thread; on a new thread if each has load and the limit permits one more.
    ///
    /// # Errors
    /// If the system refuses the first thread.
    pub(crate) fn shared(&self) -> std::io::Result<Slot> {
        let mut threads = self.living();
        let shared = || threads.iter().filter(|known| known.thread.sharing == ThreadSharing::Any);
        let least = shared().min_by_key(|known| known.load()).map(|known| (known.load(), Arc::clone(&known.thread)));
        let may_start = shared().count() < self.shared_max;
        match least {
            Some((load, thread)) if load == 0 || !may_start => Ok(thread.slot()),
            least => match (self.start(&mut threads, "decide", ThreadSharing::Any), least) {
                (Ok(thread), _) => Ok(thread.slot()),
                (Err(error), Some((_, thread))) => {
                    tracing::warn!(%error, "no further decision thread; leads share those that there are");
                    Ok(thread.slot())
                }
                (Err(error), None) => Err(error),
            },
        }
    }

    /// A slot on a thread of its own.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn own(&self, name: &str) -> std::io::Result<Slot> {
        Ok(self.start(&mut self.living(), name, ThreadSharing::One)?.slot())
    }

    /// A shared thread whose steps are run by the caller.
    #[cfg(test)]
    pub(crate) fn host_on(&self, thread: &Arc<DecisionThread>) {
        let measured = (self.clock.now(), 0);
        self.lock().push(Known { thread: Arc::clone(thread), measured, busy_percent: 0 });
    }

    fn start(
        &self,
        threads: &mut Vec<Known>,
        name: &str,
        sharing: ThreadSharing,
    ) -> std::io::Result<Arc<DecisionThread>> {
        let bound = |core: &CoreId| threads.iter().filter(|known| known.thread.core == Some(*core)).count();
        let core = self.cores.iter().copied().min_by_key(bound);
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let name = match sharing {
            ThreadSharing::Any => format!("{name}-{number}"),
            ThreadSharing::One => name.to_owned(),
        };
        let thread =
            DecisionThread::start(name, (number, sharing), self.clock, self.config.threads, core, &self.panics)?;
        let measured = (self.clock.now(), 0);
        threads.push(Known { thread: Arc::clone(&thread), measured, busy_percent: 0 });
        Ok(thread)
    }

    /// The threads that run.
    pub(crate) fn running(&self) -> Vec<Arc<DecisionThread>> {
        self.living().iter().map(|known| Arc::clone(&known.thread)).collect()
    }

    /// Regular upkeep: measures the load of the threads, and returns the ended groups on the threads in `running`, some
    /// of which may have been asked to end since. Dropping a group may wait a second for the disk of its tape.
    pub(crate) fn tend(&self, running: &[Arc<DecisionThread>], mut gone: impl FnMut(WorkerGroup)) {
        let now = self.clock.now();
        for known in &mut *self.lock() {
            known.measure(now);
        }
        for thread in running {
            while let Some(group) = thread.gone() {
                gone(group);
            }
        }
    }

    /// Worker groups that have panicked so far; each has ended its lead.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Running threads that should be bound to a core and are not: the system refused it, or listed no core.
    pub(crate) fn not_pinned(&self) -> usize {
        let wanted = self.config.threads.pin;
        let not = |known: &&Known| known.thread.core.is_none() || known.thread.core_refused();
        if wanted { self.living().iter().filter(not).count() } else { 0 }
    }

    /// Gives up a hung thread: it decides nothing any more, and the next lead may start another one.
    pub(crate) fn give_up(&self, thread: &DecisionThread) {
        thread.stop();
        self.hangs.fetch_add(1, Ordering::Relaxed);
    }

    /// Threads that have hung so far; each has ended every lead on it.
    pub(crate) fn hangs(&self) -> u64 {
        self.hangs.load(Ordering::Relaxed)
    }

    /// Where leads count that they end by a fault of their policy.
    pub(crate) fn policy_fault_counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.policy_faults)
    }

    /// Leads that have ended so far by a fault of their policy.
    pub(crate) fn policy_faults(&self) -> u64 {
        self.policy_faults.load(Ordering::Relaxed)
    }

    /// Ends all threads, with everything on them.
    pub(crate) fn stop(&self) {
        for known in self.lock().drain(..) {
            known.thread.stop();
        }
    }

    /// The running threads; those that were asked to end are forgotten.
    fn living(&self) -> MutexGuard<'_, Vec<Known>> {
        let mut threads = self.lock();
        threads.retain(|known| !known.thread.is_over());
        threads
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DecisionThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Known {
    fn load(&self) -> usize {
        load(self.thread.groups(), self.busy_percent)
    }

    fn measure(&mut self, now: Time) {
        let (since, busy_then) = self.measured;
        let over = now.since(since);
        if over >= BUSY_OVER {
            let busy = self.thread.busy();
            self.busy_percent = (busy.wrapping_sub(busy_then).saturating_mul(100) / over.get()).min(100) as usize;
            self.measured = (now, busy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(shared_threads: u32) -> DecisionThreads {
        DecisionThreads::new(DecisionConfig { shared_threads, ..DecisionConfig::default() })
    }

    fn numbers(slots: &[Slot]) -> Vec<u64> {
        slots.iter().map(|slot| slot.thread.number).collect()
    }

    #[test]
    fn leads_are_spread_over_a_fixed_number_of_threads() {
        let threads = threads(3);
        let slots: Vec<_> = (0..7).map(|_| threads.shared().unwrap()).collect();
        assert_eq!(numbers(&slots), [0, 1, 2, 0, 1, 2, 0]);
        let own = threads.own("rank-s1").unwrap();
        assert_eq!(threads.running().len(), 4);
        drop(own);
        assert_eq!(threads.running().len(), 3, "it ends with its group");
        threads.stop();
        assert_eq!(threads.running().len(), 0);
    }

    #[test]
    fn a_lead_goes_where_there_is_the_least_to_do() {
        let threads = threads(2);
        let _seats: Vec<_> = (0..4).map(|_| threads.shared().unwrap()).collect();
        // The first thread has load, the second one has more leads.
        threads.lock()[0].busy_percent = 3;
        let more: Vec<_> = (0..4).map(|_| threads.shared().unwrap()).collect();
        assert_eq!(numbers(&more), [1, 1, 1, 0], "three hundredths of a core are three leads");
    }

    #[test]
    fn threads_that_are_not_bound_as_asked_are_counted_while_they_run() {
        let pinned = |pin: bool, cores: &[usize]| {
            let mut config = DecisionConfig { shared_threads: 2, ..DecisionConfig::default() };
            config.threads.pin = pin;
            let mut threads = DecisionThreads::new(config);
            threads.cores = cores.iter().map(|&id| CoreId { id }).collect();
            threads
        };
        // A core number that no test machine has.
        const NO_CORE: usize = 1023;
        for (pin, cores, expected) in [(true, &[][..], 2), (true, &[NO_CORE][..], 2), (false, &[][..], 0)] {
            let threads = pinned(pin, cores);
            let _seats: Vec<_> = (0..2).map(|_| threads.shared().unwrap()).collect();
            let began = std::time::Instant::now();
            // A thread binds itself to its core once it runs.
            while threads.not_pinned() != expected && began.elapsed() < std::time::Duration::from_secs(20) {
                std::thread::yield_now();
            }
            assert_eq!(threads.not_pinned(), expected, "pin {pin}, cores {cores:?}");
            threads.stop();
            assert_eq!(threads.not_pinned(), 0, "those that have ended are no threads");
        }
        let core = core_affinity::get_core_ids().unwrap()[0].id;
        let threads = pinned(true, &[core]);
        let _seat = threads.shared().unwrap();
        assert_eq!(threads.not_pinned(), 0, "the system gives it the core");
    }

    #[test]
    fn what_a_thread_is_busy_is_measured_over_a_second() {
        let threads = threads(1);
        let _seat = threads.shared().unwrap();
        let known = &mut threads.lock()[0];
        let (since, _) = known.measured;
        known.measured = (since, known.thread.busy().wrapping_sub(BUSY_OVER.get() / 4));
        known.measure(since + BUSY_OVER - Nanos::new(1));
        assert_eq!(known.busy_percent, 0, "too early to say");
        known.measure(since + BUSY_OVER);
        assert_eq!((known.busy_percent, known.measured.0), (25, since + BUSY_OVER));
    }

    #[test]
    fn threads_are_bound_to_the_cores_that_have_the_fewest() {
        let mut threads = threads(3);
        threads.cores = (0..2).map(|id| CoreId { id }).collect();
        let slots: Vec<_> = (0..3).map(|_| threads.shared().unwrap()).collect();
        let cores: Vec<_> = slots.iter().map(|slot| slot.thread.core.unwrap().id).collect();
        assert_eq!(cores, [0, 1, 0]);
        // A new thread replaces one that hangs.
        slots[1].thread.stop();
        assert_eq!(threads.shared().unwrap().thread.core.unwrap().id, 1);
    }
}
