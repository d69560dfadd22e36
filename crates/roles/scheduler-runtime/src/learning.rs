//! Hosts the [`Learner`](symphony_controllers::Learner)s of all leads, off the paths of their decisions.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::counters::add;
use crate::leads::Leads;
use crate::messages::{ModelMessage, RankMessage};
use crate::workers::Workers;
use symphony_controllers::Correction;
use symphony_types::Nanos;

/// How often the ends of batches are collected. In between, [`RUNS_WAITING_MAX`](crate::workers::RUNS_WAITING_MAX) of them wait.
const COLLECT_EVERY: Duration = Duration::from_millis(100);
/// Every so many times leads are looked at in which nothing has ended, too: a GPU's time out may be over, a profile due.
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

/// A backend says that a GPU of its is lost.
pub(crate) fn lost(workers: &Workers, ordinal: u32) {
    let mut learner = workers.learner.lock().unwrap_or_else(PoisonError::into_inner);
    let correction = learner.lost(ordinal);
    correct(workers, correction.into_iter().collect());
}

/// Tells the workers.
pub(crate) fn correct(workers: &Workers, corrections: Vec<Correction>) {
    let subcluster = &workers.name;
    for correction in corrections {
        match correction {
            Correction::Profile { model, class, published } => {
                let change = published.change;
                tracing::info!(%subcluster, %model, %class, change, "profile corrected by what was measured");
                add(&workers.link_counters.profiles_corrected, 1);
                let profile = Box::new(published.profile);
                workers.of_model(model.get()).push(ModelMessage::Profile { model, class, profile });
            }
            Correction::Out { gpu, ordinal, slowdown, failed, pause } => {
                match pause.map(Nanos::as_secs_f64) {
                    None => tracing::error!(%subcluster, %gpu, "lost; gets no batches until its backend is restarted"),
                    Some(pause_s) if failed > 0 => {
                        tracing::warn!(%subcluster, %gpu, failed, pause_s, "fails where its peers do not; gets no batches for a while");
                    }
                    Some(pause_s) => {
                        tracing::warn!(%subcluster, %gpu, slowdown, pause_s, "slower than its peers; gets no batches for a while");
                    }
                }
                add(&workers.link_counters.quarantines, 1);
                workers.rank.push(RankMessage::Quarantine { gpu: ordinal, out: true });
            }
            Correction::Try { gpu, ordinal } => {
                tracing::info!(%subcluster, %gpu, "tried again");
                workers.rank.push(RankMessage::Quarantine { gpu: ordinal, out: false });
            }
            Correction::Passed { gpu } => tracing::info!(%subcluster, %gpu, "runs like its peers again"),
        }
    }
}
