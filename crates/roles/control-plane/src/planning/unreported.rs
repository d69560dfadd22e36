//! Which of a replica's loads the Raft leader has not seen yet.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use symphony_protocol::control as pb;
use symphony_types::NodeId;

/// How long an unchanged load may go unreported. Most of a thousand leads are idle: reporting each of them every
/// second would cost both ends a hundredth of a core.
pub(crate) const UNCHANGED_AFTER: Duration = Duration::from_secs(4);

/// What was reported, to which leader and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unreported {
    to: Option<NodeId>,
    reported: BTreeMap<u32, (pb::SubclusterLoad, Instant)>,
}

impl Unreported {
    /// The loads to report to `leader` now: changed ones, and those not reported for [`UNCHANGED_AFTER`]. They count
    /// as reported.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        leader: NodeId,
        mut loads: Vec<pb::SubclusterLoad>,
    ) -> Vec<pb::SubclusterLoad> {
        if self.to.replace(leader) != Some(leader) {
            self.reported.clear();
        }
        let mut reported = std::mem::take(&mut self.reported);
        loads.retain(|load| {
            let known = reported
                .remove(&load.subcluster)
                .filter(|(known, at)| known == load && now.saturating_duration_since(*at) < UNCHANGED_AFTER);
            let is_new = known.is_none();
            self.reported.insert(load.subcluster, known.unwrap_or_else(|| (load.clone(), now)));
            is_new
        });
        loads
    }

    /// Forgets all reports: the last ones may not have arrived.
    pub(crate) fn forget(&mut self) {
        self.reported.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NodeId = NodeId::new(1);
    const OTHER: NodeId = NodeId::new(2);

    fn load(subcluster: u32, executed: u64) -> pb::SubclusterLoad {
        let models = vec![pb::ModelLoad { executed, ..Default::default() }];
        pb::SubclusterLoad { subcluster, models, ..Default::default() }
    }

    #[test]
    fn what_is_new_is_said_at_once_and_the_rest_now_and_then() {
        let start = Instant::now();
        let mut unreported = Unreported::default();
        let mut reported = |at: u64, leader, executed: &[u64]| {
            let loads = (1..).zip(executed).map(|(id, &executed)| load(id, executed)).collect();
            let due = unreported.take(start + Duration::from_secs(at), leader, loads);
            due.iter().map(|load| load.subcluster).collect::<Vec<_>>()
        };
        assert_eq!(reported(0, ONE, &[5, 5]), [1, 2]);
        assert_eq!(reported(1, ONE, &[5, 6]), [2]);
        assert_eq!(reported(3, ONE, &[5, 6]), [0; 0]);
        assert_eq!(reported(4, ONE, &[5, 6]), [1], "not heard of for a while");
        assert_eq!(reported(5, ONE, &[5, 6]), [2]);
        assert_eq!(reported(6, OTHER, &[5, 6]), [1, 2], "somebody else leads the group");
        assert_eq!(reported(7, OTHER, &[5]), [0; 0]);
        assert_eq!(reported(7, OTHER, &[5, 6]), [2], "it had gone");
    }

    #[test]
    fn what_was_perhaps_not_heard_is_said_again() {
        let mut unsaid = Unreported::default();
        let now = Instant::now();
        assert_eq!(unsaid.take(now, ONE, vec![load(1, 5)]).len(), 1);
        assert_eq!(unsaid.take(now, ONE, vec![load(1, 5)]).len(), 0);
        unsaid.forget();
        assert_eq!(unsaid.take(now, ONE, vec![load(1, 5)]).len(), 1);
    }
}
