//! Plans hand-overs that operators asked for, or that spread the load. A pure value beside the Raft leader.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use symphony_cluster_state::{ClusterState, Command, LeadTransfer};
use symphony_types::{BootId, NodeId, SubclusterId};

use crate::initiatives::initiative::Initiative;

/// Concurrent hand-overs off draining replicas. Each costs the successor a dial and a seal per backend.
const DRAINS_MAX: usize = 16;

/// How long a successor may take to get ready; then another replica is asked.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// How long a replica that did not get ready is not asked again.
const SHUNNED_FOR: Duration = Duration::from_secs(10);

/// How long the replicas and the Raft leader must be unchanged before the load is spread: frequent moves of leaders
/// serve worse than a slightly uneven load.
const CALM: Duration = Duration::from_secs(5);

/// Decides which hand-over begins next, and which one is given up.
#[derive(Debug, Default)]
pub(crate) struct LeadBalancer {
    /// Hand-overs in progress: the replica that was asked, and since when.
    pending: BTreeMap<(SubclusterId, u64), (NodeId, Instant)>,
    shunned: BTreeMap<NodeId, Instant>,
    /// The boots that may lead, and since when they have been the same under this Raft leader.
    shape: Option<(BTreeSet<(NodeId, BootId)>, Instant)>,
}

impl Initiative for LeadBalancer {
    fn step(&mut self, now: Instant, state: &ClusterState, me: Option<NodeId>) -> Option<Command> {
        let Some(me) = me else {
            *self = Self::default();
            return None;
        };
        self.observe(now, state);
        if let Some((&(subcluster, since), &(node, _))) =
            self.pending.iter().find(|(_, (_, begun))| now.saturating_duration_since(*begun) > READY_WITHIN)
        {
            self.shunned.insert(node, now + SHUNNED_FOR);
            return Some(Command::CancelHandover { subcluster, since });
        }
        self.shunned.retain(|_, until| *until > now);
        let under_way = state.handovers();
        let shunned = |node| self.shunned.contains_key(&node);
        if under_way < DRAINS_MAX
            && let Some(drain) = state.next_drain(Some(me), &shunned)
        {
            return Some(begin(drain));
        }
        let calm = self.shape.as_ref().is_some_and(|(_, since)| now.saturating_duration_since(*since) >= CALM);
        if under_way == 0 && calm {
            return state.next_rebalance(Some(me), &shunned).map(begin);
        }
        None
    }
}

impl LeadBalancer {
    fn observe(&mut self, now: Instant, state: &ClusterState) {
        let before = std::mem::take(&mut self.pending);
        for (&id, subcluster) in state.subclusters() {
            if let Some(next) = subcluster.successor {
                let key = (id, next.since);
                self.pending.insert(key, before.get(&key).copied().unwrap_or((next.node, now)));
            }
        }
        let willing = state.nodes().iter().filter(|(_, n)| n.takes_leads()).map(|(&id, n)| (id, n.boot)).collect();
        if self.shape.as_ref().is_none_or(|(known, _)| *known != willing) {
            self.shape = Some((willing, now));
        }
    }
}

fn begin(LeadTransfer { subcluster, token, to, boot }: LeadTransfer) -> Command {
    Command::BeginHandover { subcluster, token, to, boot }
}

#[cfg(test)]
mod tests {
    use symphony_cluster_state::{Action, BackendRegistration, GpuOffer, NodeRegistration, Operation};
    use symphony_types::{Duty, Member, OperationId};

    use super::*;

    const ME: NodeId = NodeId::new(3);

    struct Scene {
        state: ClusterState,
        lead_balancer: LeadBalancer,
        start: Instant,
        index: u64,
    }

    impl Scene {
        /// Three replicas and `count` sub-clusters, all led by the first replica; the third leads the control group.
        fn new(count: u32) -> Self {
            let (state, lead_balancer) = (ClusterState::default(), LeadBalancer::default());
            let mut scene = Self { state, lead_balancer, start: Instant::now(), index: 0 };
            scene.node(1, 10);
            for name in 1..=count {
                scene.apply(&Command::RegisterBackend(BackendRegistration {
                    name: format!("b{name}"),
                    boot: BootId::new(1),
                    exec_addr: "b:1".into(),
                    subcluster: format!("s{name}"),
                    executor: "emulated".into(),
                    gpus: vec![GpuOffer { kind: "cpu".into(), memory_bytes: 0 }],
                    avoid: None,
                }));
            }
            scene.node(2, 20);
            scene.node(3, 30);
            scene
        }

        fn apply(&mut self, command: &Command) {
            self.index += 1;
            assert!(self.state.apply(self.index, command).outcome.is_ok(), "{command:?}");
        }

        fn node(&mut self, id: u64, boot: u64) {
            self.apply(&Command::RegisterNode(NodeRegistration {
                node: NodeId::new(id),
                boot: BootId::new(boot),
                control_addr: "n:1".into(),
                dispatch_addr: "n:2".into(),
                beat_addr: "n:3".into(),
                disk: id,
                avoid: None,
            }));
        }

        fn drain(&mut self, id: u64) {
            let action = Action::SetDuty { member: Member::Scheduler(NodeId::new(id)), duty: Duty::Draining };
            let (id, actor) = (OperationId::new(u128::from(self.index) + 1), "operator/ann".to_owned());
            self.apply(&Command::Operate(Operation { id, actor, at_unix_ms: 0, avoid: None, action }));
        }

        fn step(&mut self, ms: u64) -> Option<Command> {
            self.lead_balancer.step(self.start + Duration::from_millis(ms), &self.state, Some(ME))
        }

        /// Applies the proposals of the lead balancer until there are none, and returns the replicas that were asked.
        fn successors(&mut self, ms: u64) -> Vec<u64> {
            let mut successors = Vec::new();
            while let Some(command) = self.step(ms) {
                if let Command::BeginHandover { to, .. } = &command {
                    successors.push(to.get());
                }
                self.apply(&command);
                assert!(successors.len() < 100);
            }
            successors
        }

        fn complete_all(&mut self) {
            let pending: Vec<_> =
                self.state.subclusters().iter().filter_map(|(&id, s)| Some((id, s.successor?))).collect();
            for (subcluster, next) in pending {
                let (since, node, boot) = (next.since, next.node, next.boot);
                self.apply(&Command::CompleteHandover { subcluster, since, node, boot });
            }
        }
    }

    #[test]
    fn the_load_is_spread_only_after_a_calm_and_one_at_a_time() {
        let mut scene = Scene::new(4);
        assert_eq!(scene.successors(0), [0_u64; 0]);
        assert_eq!(scene.successors(4_999), [0_u64; 0]);
        assert_eq!(scene.successors(5_000), [2], "one, and not to the Raft leader");
        scene.complete_all();
        assert_eq!(scene.successors(5_001), [2]);
        scene.complete_all();
        assert_eq!(scene.successors(60_000), [0_u64; 0], "two and two");
        scene.node(2, 21);
        assert_eq!(scene.successors(61_000), [0_u64; 0], "a replica that just restarted gets nothing yet");
        assert_eq!(scene.successors(66_000), [2]);
    }

    #[test]
    fn a_drain_waits_for_no_calm_and_goes_many_at_a_time() {
        let mut scene = Scene::new(40);
        scene.drain(1);
        assert_eq!(scene.successors(0), [2; DRAINS_MAX]);
        scene.complete_all();
        assert_eq!(scene.successors(1).len(), DRAINS_MAX);
        scene.complete_all();
        assert_eq!(scene.successors(2).len(), 40 - 2 * DRAINS_MAX);
    }

    #[test]
    fn a_successor_that_does_not_get_ready_is_given_up_and_another_one_is_asked() {
        let mut scene = Scene::new(1);
        scene.drain(1);
        assert_eq!(scene.successors(0), [2]);
        assert_eq!(scene.successors(2_000), [0_u64; 0]);
        assert_eq!(scene.successors(2_001), [3], "the Raft leader rather than one that does not get ready");
        assert_eq!(scene.successors(4_100), [0_u64; 0], "nobody is left to ask");
        assert_eq!(scene.state.handovers(), 0);
        assert_eq!(scene.successors(12_100), [2], "forgiven");
    }

    #[test]
    fn who_does_not_lead_the_control_group_plans_nothing_and_starts_afresh() {
        let mut scene = Scene::new(4);
        assert_eq!(scene.successors(0), [0_u64; 0]);
        let later = scene.start + Duration::from_secs(20);
        assert_eq!(scene.lead_balancer.step(later, &scene.state, None), None);
        assert_eq!(scene.successors(20_001), [0_u64; 0], "the calm begins with the leadership");
        assert_eq!(scene.successors(25_001), [2]);
    }
}
