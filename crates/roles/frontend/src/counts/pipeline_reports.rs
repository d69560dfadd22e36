//! Tells the control group what was counted of pipelines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clusters::cluster::Cluster;
use crate::inner::Inner;

/// How often counts are reported to the leader: splits follow loads within a few of these.
const REPORTED_EVERY: Duration = Duration::from_secs(1);
/// How long one report may take. What is not reported in time is lost: the next report serves as well.
const REPORTED_WITHIN: Duration = Duration::from_secs(1);

/// Reports the counts of its pipelines to the leader of the cluster's control group, until the frontend ends.
pub(crate) async fn report_pipelines(inner: Arc<Inner>, cluster: Arc<Cluster>) {
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + REPORTED_EVERY, REPORTED_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut reachable = true;
    loop {
        tokio::select! {
            () = inner.ended.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let pipelines = cluster.pipelines();
        let counts = inner.pipeline_counters.take(Instant::now(), |loaded_as| pipelines.contains_key(loaded_as));
        if counts.is_empty() {
            continue;
        }
        match cluster.report_pipelines(counts, REPORTED_WITHIN).await {
            Ok(()) => reachable = true,
            // Once, not every second.
            Err(error) if reachable => {
                tracing::warn!(%error, "the cluster does not hear how pipelines fan out; the last split stays");
                reachable = false;
            }
            Err(error) => tracing::debug!(%error, "the cluster does not hear how pipelines fan out"),
        }
    }
}
