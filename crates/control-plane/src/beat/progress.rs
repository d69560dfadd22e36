//! Whether replicas apply what is agreed. One that does not knows neither its sub-clusters nor its models, however alive it is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use symphony_types::NodeId;

/// How long a replica may take to apply what the leader has applied: several times what a disk that hangs for a moment costs.
const APPLIES_WITHIN: Duration = Duration::from_secs(2);

/// How far each replica has applied the log, as its beats say. A pure value.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    nodes: BTreeMap<NodeId, Applied>,
}

#[derive(Clone, Copy, Debug)]
struct Applied {
    index: u64,
    /// What the leader had applied when this one had less, since when it owes that, and whether it was said that it is late.
    owes: Option<(u64, Instant, bool)>,
}

impl Progress {
    /// Takes a beat to a leader that has applied `own`. Whether the replica applies what is agreed.
    pub(crate) fn note(&mut self, now: Instant, node: NodeId, index: u64, own: u64) -> bool {
        let known = self.nodes.entry(node).or_insert(Applied { index, owes: None });
        known.index = index;
        if known.owes.is_none_or(|(owed, ..)| index >= owed) {
            known.owes = (index < own).then_some((own, now, false));
        }
        let Some((owed, since, told)) = &mut known.owes else { return true };
        let late = now.saturating_duration_since(*since) > APPLIES_WITHIN;
        if late && !std::mem::replace(told, true) {
            tracing::error!(
                %node, applied = index, expected = *owed,
                "replica does not apply what was agreed {APPLIES_WITHIN:?} ago: it counts as down and leads no sub-cluster until it does"
            );
        }
        !late
    }

    /// How far a replica has applied the log; 0 if it was not heard.
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
        let mut applies = |ms, index, own| progress.note(start + Duration::from_millis(ms), node, index, own);
        assert!(applies(0, 10, 10));
        assert!(applies(60_000, 10, 10), "there was nothing to apply");
        assert!(applies(60_010, 10, 40) && applies(62_010, 39, 70));
        assert!(!applies(62_011, 39, 70), "it moves, and is not where the leader was two seconds ago");
        assert!(applies(62_012, 40, 70), "it is, and owes what came since");
        assert!(applies(64_012, 41, 90) && !applies(64_013, 41, 90));
        assert!(applies(64_014, 90, 90));
        assert!(applies(90_000, 90, 91), "counted from when it was behind");
        assert_eq!((progress.of(node), progress.of(NodeId::new(3))), (90, 0));
    }
}
