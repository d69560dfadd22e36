//! Whether replicas apply the log. A replica that does not, however alive, knows neither its sub-clusters nor its
//! models.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use symphony_types::{BootId, Level, NodeId};

/// How long a replica may take to apply what the leader has applied: several times the cost of a short disk stall.
const APPLIES_WITHIN: Duration = Duration::from_secs(2);

/// How far each replica has applied the log, by its heartbeats. A pure value.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    nodes: BTreeMap<NodeId, Applied>,
}

#[derive(Clone, Copy, Debug)]
struct Applied {
    boot: BootId,
    index: u64,
    /// The newest level that it knows, once it has reported it.
    level: Option<Level>,
    last_heard: Instant,
    /// While it lags: the index that it has to reach, since when, and whether its lag was logged.
    owes: Option<(u64, Instant, bool)>,
}

impl Applied {
    /// Whether it still reports its progress. The progress of a replica that died or was replaced is unknown.
    fn is_heard(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_heard) <= APPLIES_WITHIN
    }
}

impl Progress {
    /// Records a heartbeat to a leader that has applied `own`. Returns whether the replica applies the log.
    pub(crate) fn record(&mut self, now: Instant, (node, boot): (NodeId, BootId), index: u64, own: u64) -> bool {
        let known = self.nodes.entry(node).or_insert(Applied { boot, index, level: None, last_heard: now, owes: None });
        if known.boot != boot {
            known.level = None;
        }
        // While it was down or unheard, it could not show progress.
        if known.boot != boot || !known.is_heard(now) {
            known.owes = None;
        }
        (known.boot, known.index, known.last_heard) = (boot, index, now);
        if known.owes.is_none_or(|(owed, ..)| index >= owed) {
            known.owes = (index < own).then_some((own, now, false));
        }
        let Some((owed, since, is_logged)) = &mut known.owes else { return true };
        let late = now.saturating_duration_since(*since) > APPLIES_WITHIN;
        if late && !std::mem::replace(is_logged, true) {
            tracing::error!(
                %node, applied = index, expected = *owed,
                "replica does not apply what was agreed {APPLIES_WITHIN:?} ago: it counts as down and leads no sub-cluster until it does"
            );
        }
        !late
    }

    /// Records what a boot of a replica reported with its last heartbeat.
    pub(crate) fn set_level(&mut self, (node, boot): (NodeId, BootId), level: Level) {
        if let Some(known) = self.nodes.get_mut(&node).filter(|known| known.boot == boot) {
            known.level = Some(level);
        }
    }

    /// The newest level that a boot of a replica knows, if it has reported it.
    pub(crate) fn level_of(&self, node: NodeId, boot: BootId) -> Option<Level> {
        self.nodes.get(&node).filter(|known| known.boot == boot)?.level
    }

    /// The number of lagging replicas that send heartbeats.
    pub(crate) fn late(&self, now: Instant) -> usize {
        let is_late = |known: &&Applied| known.is_heard(now) && known.owes.is_some_and(|(.., is_logged)| is_logged);
        self.nodes.values().filter(is_late).count()
    }

    /// How long ago this replica, which has led since then, last heard from another one.
    pub(crate) fn silent(&self, now: Instant, node: NodeId, leads_since: Instant) -> Duration {
        let last_heard = self.nodes.get(&node).map_or(leads_since, |known| known.last_heard.max(leads_since));
        now.saturating_duration_since(last_heard)
    }

    /// For how long a replica has not reached what this one, which has led since then, had applied; none if it is not
    /// late, or sends no heartbeats: then it is not known.
    pub(crate) fn stuck(&self, now: Instant, node: NodeId, leads_since: Instant) -> Option<Duration> {
        let known = self.nodes.get(&node)?;
        let (_, since, is_late) = known.owes?;
        (is_late && known.is_heard(now)).then(|| now.saturating_duration_since(since.max(leads_since)))
    }

    /// How far a replica has applied the log; 0 if unknown.
    pub(crate) fn of(&self, node: NodeId) -> u64 {
        self.nodes.get(&node).map_or(0, |known| known.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_come_to_where_the_leader_was_in_time_does_not_apply() {
        let (node, start) = (NodeId::new(2), Instant::now());
        let mut progress = Progress::default();
        let mut applies = |ms, boot, index, own| {
            let now = start + Duration::from_millis(ms);
            let applies = progress.record(now, (node, BootId::new(boot)), index, own);
            (applies, progress.late(now))
        };
        assert_eq!(applies(0, 1, 10, 10), (true, 0));
        assert_eq!(applies(1_000, 1, 10, 40), (true, 0));
        assert_eq!(applies(3_000, 1, 39, 70), (true, 0));
        assert_eq!(applies(3_001, 1, 39, 70), (false, 1), "it moves, and is not where the leader was two seconds ago");
        assert_eq!(applies(3_002, 1, 40, 70), (true, 0), "it is, and owes what came since");
        assert_eq!(applies(5_002, 1, 41, 90), (true, 0));
        assert_eq!(applies(5_003, 1, 41, 90), (false, 1));
        assert_eq!(applies(5_010, 2, 3, 90), (true, 0), "another boot has its own time");
        assert_eq!(applies(7_011, 2, 3, 90), (true, 0), "and so has one that was not heard for as long");
        assert_eq!(applies(9_011, 2, 3, 90), (true, 0));
        assert_eq!(applies(9_012, 2, 3, 90), (false, 1));
        assert_eq!(applies(9_013, 2, 90, 90), (true, 0));
        assert_eq!((progress.of(node), progress.of(NodeId::new(3))), (90, 0));
    }

    #[test]
    fn silence_and_what_is_owed_count_from_when_this_replica_leads() {
        let (node, ms, start) = (NodeId::new(2), Duration::from_millis, Instant::now());
        let at = |millis| start + ms(millis);
        let mut progress = Progress::default();
        assert_eq!(progress.silent(at(3_000), node, at(1_000)), ms(2_000), "it was never heard");
        for (millis, own) in [(0, 9), (1_000, 12), (2_000, 30)] {
            assert!(progress.record(at(millis), (node, BootId::new(1)), 5, own));
        }
        assert_eq!(progress.stuck(at(2_000), node, at(0)), None, "it may still come there in time");
        assert!(!progress.record(at(2_100), (node, BootId::new(1)), 7, 40));
        assert_eq!(progress.stuck(at(3_500), node, at(0)), Some(ms(3_500)), "it moves, and is not at 9");
        assert_eq!(progress.stuck(at(3_500), node, at(3_000)), Some(ms(500)));
        assert_eq!(progress.late(at(4_100)), 1);
        assert_eq!(progress.stuck(at(4_101), node, at(0)), None, "it is not heard any more");
        assert_eq!(progress.late(at(4_101)), 0, "nor does one count that died or was replaced");
        assert_eq!(progress.silent(at(15_100), node, at(0)), ms(13_000));
        assert_eq!(progress.silent(at(15_100), node, at(10_100)), ms(5_000));
        assert!(progress.record(at(15_200), (node, BootId::new(1)), 40, 40));
        assert_eq!(progress.stuck(at(15_200), node, at(0)), None);
    }
}
