//! Passes what was learnt to the workers of a sub-cluster: corrected profiles, and quarantined GPUs.

use std::sync::PoisonError;

use symphony_controllers::Correction;
use symphony_types::Nanos;

use crate::workers::counters::add;
use crate::workers::messages::{ModelMessage, RankMessage};
use crate::workers::subcluster_workers::Workers;

/// A backend reports a GPU as lost.
pub(crate) fn lost(workers: &Workers, ordinal: u32) {
    let mut learner = workers.learner.lock().unwrap_or_else(PoisonError::into_inner);
    let correction = learner.lost(ordinal);
    correct(workers, correction.into_iter().collect());
}

/// Passes the corrections to the workers.
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
