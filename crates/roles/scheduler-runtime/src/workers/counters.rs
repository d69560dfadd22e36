//! What the workers count, read by the metrics off the path.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one owner: a worker, or the links of a sub-cluster. They only grow.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Counters {
            /// Every counter with its name.
            #[must_use]
            pub fn read(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counters! {
    /// Requests received, new and announced again.
    requests,
    /// Of them, announced again after a take-over.
    redriven_requests,
    /// Of them, not queued because a backend had them already.
    redriven_known_requests,
    /// Batch plans sent.
    plans,
    /// Requests in them.
    planned_requests,
    /// Candidates that were ranked.
    offers,
    /// GPUs given to models.
    grants,
    /// Grants that no batch could use.
    grants_returned,
    /// Requests given up.
    dropped_requests,
    /// Of them, those that were a model's part of an overload.
    shed_requests,
    /// Requests failed.
    failed_requests,
    /// Plans that a backend refused.
    plans_refused,
    /// Requests queued again because their plan was lost or refused.
    requeued_requests,
    /// Timers that rang.
    timers,
    /// Of them, those whose time had passed already when they were armed.
    timers_past,
    /// Plans that started later than planned, summed, in nanoseconds.
    start_late_nanoseconds,
    /// Execution time of plans, predicted, summed, in nanoseconds.
    predicted_nanoseconds,
    /// Execution time of plans, measured, summed, in nanoseconds.
    measured_nanoseconds,
    /// Plans whose end was reported.
    plans_done,
    /// Batches, ends of batches and drops that cannot be explained, because the recorder was read for too long.
    unrecorded,
    /// Ends of batches that nothing was learnt from, because too many waited.
    unlearnt,
    /// GPUs set aside because they were slower than their peers.
    quarantines,
    /// Profiles corrected by what was measured.
    profiles_corrected,
    /// Tapes that ended before their lead did, or never began.
    tapes_cut,
    /// Violations of invariants S1 and S2 found in plans.
    violations,
}

/// Adds to a counter that several tasks add to; nobody orders anything by these counters.
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Adds to a counter that only the calling thread adds to: cheaper than [`add`], and wrong for any other.
pub(crate) fn count(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}
