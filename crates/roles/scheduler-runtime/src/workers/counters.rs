//! Counters of the workers, read by the metrics outside the request path.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a worker, or of the links of a sub-cluster. They only grow.
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
    /// Requests announced again after a take-over.
    redriven_requests,
    /// Requests announced again and not queued, because a backend had them already.
    redriven_known_requests,
    /// Batch plans sent.
    plans,
    /// Requests in sent plans.
    planned_requests,
    /// Candidates that were ranked.
    offers,
    /// GPUs given to models.
    grants,
    /// Grants that no batch could use.
    grants_returned,
    /// Requests that were given up, for any reason.
    dropped_requests,
    /// Requests dropped as a model's part of an overload.
    shed_requests,
    /// Requests that ended otherwise without a result.
    failed_requests,
    /// Plans that a backend refused.
    plans_refused,
    /// Requests queued again because their plan was lost or refused.
    requeued_requests,
    /// Timers that fired.
    timers,
    /// Timers whose time had passed already when they were armed.
    timers_past,
    /// Sum of start delays of plans, in nanoseconds.
    start_late_nanoseconds,
    /// Sum of predicted execution times of plans, in nanoseconds.
    predicted_nanoseconds,
    /// Sum of measured execution times of plans, in nanoseconds.
    measured_nanoseconds,
    /// Plans whose end was reported.
    plans_done,
    /// Batches, ends of batches and drops that cannot be explained, because a reader held the recorder for too long.
    unrecorded,
    /// Ended batches that were not learnt from, because too many waited.
    unlearnt,
    /// GPUs quarantined because they were slower than their peers.
    quarantines,
    /// Profiles corrected by what was measured.
    profiles_corrected,
    /// Tapes that ended before their lead did, or never began.
    tapes_cut,
    /// Violations of invariants S1 and S2 found in plans.
    violations,
}

/// Adds to a counter that several tasks write; nothing is ordered by these counters.
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Adds to a counter that only the calling thread writes: cheaper than [`add`], and wrong otherwise.
pub(crate) fn count(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}
