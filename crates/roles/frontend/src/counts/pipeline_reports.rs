//! Tells the control group what was counted of pipelines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_protocol::control as pb;
use symphony_protocol::view::PipelineCounts;
use symphony_types::VersionedName;

use crate::clusters::cluster::Cluster;
use crate::inner::Inner;

/// How often counts are reported to the leader: splits follow loads within a few of these.
const REPORTED_EVERY: Duration = Duration::from_secs(1);
/// How long one report may take. The next one has what is not reported in time.
const REPORTED_WITHIN: Duration = Duration::from_secs(1);

/// Reports the counts of its pipelines to the leader of the cluster's control group, until the frontend ends.
pub(crate) async fn report_pipelines(inner: Arc<Inner>, cluster: Arc<Cluster>) {
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + REPORTED_EVERY, REPORTED_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut reachable = true;
    // What the leader has of each version. Each cluster is told all: another that has the same version takes nothing.
    let mut told = BTreeMap::new();
    loop {
        tokio::select! {
            () = inner.ended.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let pipelines = cluster.pipelines();
        if pipelines.is_empty() {
            continue;
        }
        // Also without counts: the leader counts ends from a frontend's first report on.
        let counted = inner.pipeline_counters.counted(Instant::now(), |loaded_as| pipelines.contains_key(loaded_as));
        match cluster.report_pipelines(news(&counted, &told), REPORTED_WITHIN).await {
            Ok(()) => (reachable, told) = (true, counted),
            // Once, not every second.
            Err(error) if reachable => {
                tracing::warn!(%error, "the cluster does not hear how pipelines fan out; the last split stays");
                reachable = false;
            }
            Err(error) => tracing::debug!(%error, "the cluster does not hear how pipelines fan out"),
        }
    }
}

/// What has come since the leader was told that. How requests ended is said in all: a report may arrive twice, and the
/// averages of the rest bear that.
fn news(
    counted: &BTreeMap<String, PipelineCounts>,
    told: &BTreeMap<String, PipelineCounts>,
) -> Vec<pb::PipelineCounts> {
    let new = |(loaded_as, counts): (&String, &PipelineCounts)| {
        let name = VersionedName::parse(loaded_as).name.to_owned();
        let before = told.get(loaded_as).filter(|before| before.begun_unix_ns == counts.begun_unix_ns);
        let Some(before) = before else { return pb::PipelineCounts::from((&name, counts)) };
        let edges = counts.edges.iter().zip(&before.edges);
        let new = PipelineCounts {
            within: counts.within - before.within,
            items: counts.items - before.items,
            edges: edges.map(|(now, before)| (now.0 - before.0, now.1 - before.1)).collect(),
            hops: counts.hops - before.hops,
            hop_count: counts.hop_count - before.hop_count,
            ..counts.clone()
        };
        pb::PipelineCounts::from((&name, &new))
    };
    counted.iter().map(new).collect()
}

#[cfg(test)]
mod tests {
    use symphony_types::Nanos;

    use super::*;

    fn counts(begun_unix_ns: u64, seconds: u64, items: u64) -> BTreeMap<String, PipelineCounts> {
        let counts = PipelineCounts {
            version: 2,
            begun_unix_ns,
            within: Nanos::from_millis(1000 * seconds),
            items,
            edges: vec![(items, 3 * items)],
            hops: Nanos::new(7 * items),
            hop_count: items,
            ended: items,
            bad: items / 10,
        };
        [("p@2".to_owned(), counts)].into()
    }

    #[test]
    fn a_report_has_what_is_new_and_how_all_requests_ended() {
        let of = |items: u64, seconds: u64, ended: u64| {
            let mut report = counts(5, seconds, items).remove("p@2").unwrap();
            (report.ended, report.bad) = (ended, ended / 10);
            vec![pb::PipelineCounts::from((&"p".to_owned(), &report))]
        };
        let (first, second) = (counts(5, 1, 100), counts(5, 4, 150));
        assert_eq!(news(&first, &BTreeMap::new()), of(100, 1, 100));
        assert_eq!(news(&second, &first), of(50, 3, 150));
        // The report between them was not taken.
        assert_eq!(news(&second, &BTreeMap::new()), of(150, 4, 150));
        // It was unloaded and loaded again, and counted from nothing.
        let anew = counts(6, 1, 20);
        let [report] = &news(&anew, &second)[..] else { panic!("one version") };
        assert_eq!((report.items, report.ended, report.begun_unix_ns), (20, 20, 6));
    }
}
