//! Hosts the [`Learner`](symphony_controllers::Learner)s of all leads, off the paths of their decisions.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::lead::leads::Leads;
use crate::workers::corrections::correct;
use crate::workers::subcluster_workers::Workers;

/// How often ended batches are collected. In between, up to
/// [`RUNS_WAITING_MAX`](crate::workers::subcluster_workers::RUNS_WAITING_MAX) of them wait.
const COLLECT_EVERY: Duration = Duration::from_millis(100);
/// Every fifth round also visits idle leads: a quarantine may be over there, or a profile due.
const COLLECTIONS_PER_CHECK: u64 = 5;

/// Runs the learners until the runtime ends.
pub(crate) async fn run_learners(leads: Arc<Leads>, ended: CancellationToken) {
    let mut ticks = tokio::time::interval(COLLECT_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut rounds = 0_u64..;
    while let (Some(_), Some(round)) = (ended.run_until_cancelled(ticks.tick()).await, rounds.next()) {
        // With a thousand idle leads, a round touches as few of them as possible.
        for lead in leads.of(|lead| round.is_multiple_of(COLLECTIONS_PER_CHECK) || lead.workers.has_runs()) {
            collect(&lead.workers);
        }
    }
}

/// Collects the ended batches of a lead, and applies the corrections that follow.
fn collect(workers: &Workers) {
    let Some(runs) = &workers.runs else { return };
    let now = workers.clock.now();
    let mut learner = workers.learner.lock().unwrap_or_else(PoisonError::into_inner);
    // At most the queue's capacity: workers that fill it faster than this loop drains it do not keep the loop busy for
    // ever.
    let ended = (0..runs.capacity()).map_while(|_| runs.pop());
    let mut corrections: Vec<_> = ended.filter_map(|run| learner.ran(now, run)).collect();
    corrections.extend(learner.due_corrections(now));
    // Still under the lock: if the lead reports a lost GPU meanwhile, its report comes after these corrections.
    correct(workers, corrections);
    drop(learner);
}
