//! Hosts the [`Learner`](symphony_controllers::Learner)s of all leads, off the paths of their decisions.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::lead::leads::Leads;
use crate::workers::corrections::correct;
use crate::workers::of_subcluster::Workers;

/// How often the ends of batches are collected. In between,
/// [`RUNS_WAITING_MAX`](crate::workers::of_subcluster::RUNS_WAITING_MAX) of them wait.
const COLLECT_EVERY: Duration = Duration::from_millis(100);
/// Every so many times leads are looked at in which nothing has ended, too: a GPU's time out may be over, a profile
/// due.
const COLLECTIONS_PER_LOOK: u64 = 5;

/// Learns until the runtime ends.
pub(crate) async fn learn(leads: Arc<Leads>, ended: CancellationToken) {
    let mut ticks = tokio::time::interval(COLLECT_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut rounds = 0_u64..;
    while let (Some(_), Some(round)) = (ended.run_until_cancelled(ticks.tick()).await, rounds.next()) {
        // Of a thousand leads in which nothing happens this touches as little as can be.
        for lead in leads.of(|lead| round.is_multiple_of(COLLECTIONS_PER_LOOK) || lead.workers.has_runs()) {
            collect(&lead.workers);
        }
    }
}

/// Takes what has ended, and has it corrected what must be.
fn collect(workers: &Workers) {
    let Some(runs) = &workers.runs else { return };
    let now = workers.clock.now();
    let mut learner = workers.learner.lock().unwrap_or_else(PoisonError::into_inner);
    // As many as there is room for: workers that are faster than this do not hold it up.
    let ended = (0..runs.capacity()).map_while(|_| runs.pop());
    let mut corrections: Vec<_> = ended.filter_map(|run| learner.ran(now, run)).collect();
    corrections.extend(learner.look(now));
    // Under the lock: what the lead says of a GPU that goes meanwhile comes after it.
    correct(workers, corrections);
    drop(learner);
}
