//! Decides which replicas are dead. A pure value: time and events come in, actions go out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use symphony_types::{BootId, NodeId};

use crate::config::Liveness;

/// A replica that was declared down and is still up in the state is declared again after this time: the proposal was
/// lost.
const DECLARE_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// The detector's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DetectorEvent {
    /// A sign of life.
    Heartbeat { node: NodeId, boot: BootId },
    /// A replica's connection ended.
    Lost { node: NodeId, boot: BootId },
    /// The replica's heartbeat port refused a connection.
    Refused { node: NodeId, boot: BootId },
}

/// The detector's actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Dial the replica's heartbeat port: a process that is gone refuses within a millisecond.
    Probe { node: NodeId, boot: BootId },
    /// Propose that the replica is down.
    Declare { node: NodeId, boot: BootId },
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    boot: BootId,
    /// Time of the last sign of life, or the start of the wait for one.
    heard: Instant,
    /// How long it may be silent.
    silence_max: Duration,
    /// Its connection has ended since the last sign of life.
    lost: bool,
    /// When it was last declared down.
    declared: Option<Instant>,
}

/// Watches the other replicas while this one leads the control group. A wrong suspicion costs a hand-over, never
/// safety.
#[derive(Debug)]
pub(crate) struct Detector {
    me: NodeId,
    limits: Liveness,
    leading: bool,
    /// The last Raft leader that this replica followed.
    followed: Option<NodeId>,
    watched: BTreeMap<NodeId, Watched>,
}

impl Detector {
    pub(crate) fn new(me: NodeId, limits: Liveness) -> Self {
        Self { me, limits, leading: false, followed: None, watched: BTreeMap::new() }
    }

    /// Sets the replicas that are up in the state. A new replica, or a new boot, starts with a full grace period.
    pub(crate) fn set_members(&mut self, now: Instant, up: impl Iterator<Item = (NodeId, BootId)>) {
        let before = std::mem::take(&mut self.watched);
        for (node, boot) in up.filter(|(node, _)| *node != self.me) {
            let afresh = Watched { boot, heard: now, silence_max: self.limits.suspicion, lost: false, declared: None };
            let kept = before.get(&node).filter(|known| known.boot == boot).copied();
            self.watched.insert(node, kept.unwrap_or(afresh));
        }
    }

    /// Sets the Raft leader. A new leader gives all replicas a fresh grace period, and a shorter one to its
    /// predecessor, whose silence caused the election.
    pub(crate) fn set_leader(&mut self, now: Instant, leader: Option<NodeId>, out: &mut Vec<Action>) {
        let leads = leader == Some(self.me);
        if leads && !self.leading {
            self.reset_suspicions(now);
            let predecessor = self.followed.and_then(|node| Some((node, self.watched.get_mut(&node)?)));
            if let Some((node, watched)) = predecessor {
                watched.silence_max = self.limits.old_leader_grace;
                watched.lost = true;
                out.push(Action::Probe { node, boot: watched.boot });
            }
        }
        self.leading = leads;
        match leader {
            Some(other) if !leads => self.followed = Some(other),
            Some(_) => self.followed = None,
            None => {}
        }
    }

    /// Discards all suspicions: this replica was paused, so the silence was its own.
    pub(crate) fn reset_suspicions(&mut self, now: Instant) {
        for watched in self.watched.values_mut() {
            *watched = Watched { heard: now, lost: false, declared: None, ..*watched };
        }
    }

    /// Handles an event that was received at `now` or slightly earlier.
    pub(crate) fn step(&mut self, now: Instant, event: DetectorEvent, out: &mut Vec<Action>) {
        let (DetectorEvent::Heartbeat { node, boot }
        | DetectorEvent::Lost { node, boot }
        | DetectorEvent::Refused { node, boot }) = event;
        let suspicion = self.limits.suspicion;
        // Another boot than the one in the state is either over or not registered yet.
        let Some(watched) = self.watched.get_mut(&node).filter(|w| w.boot == boot) else { return };
        match event {
            // A heartbeat from the queue may be older than what began since (a shorter grace period, a connection
            // taken for lost) and does not count against it.
            DetectorEvent::Heartbeat { .. } if now < watched.heard => {}
            DetectorEvent::Heartbeat { .. } => {
                *watched = Watched { heard: now, silence_max: suspicion, lost: false, declared: None, ..*watched };
            }
            DetectorEvent::Lost { .. } if self.leading => {
                watched.lost = true;
                out.push(Action::Probe { node, boot });
            }
            DetectorEvent::Refused { .. } if self.leading && watched.lost => declare(now, node, watched, out),
            DetectorEvent::Lost { .. } | DetectorEvent::Refused { .. } => {}
        }
    }

    /// Looks for replicas that have been silent for too long; to be called about once per heartbeat interval.
    pub(crate) fn tick(&mut self, now: Instant, out: &mut Vec<Action>) {
        if !self.leading {
            return;
        }
        for (&node, watched) in &mut self.watched {
            if now.saturating_duration_since(watched.heard) > watched.silence_max {
                declare(now, node, watched, out);
            }
        }
    }
}

fn declare(now: Instant, node: NodeId, watched: &mut Watched, out: &mut Vec<Action>) {
    if watched.declared.is_none_or(|at| now >= at + DECLARE_AGAIN_AFTER) {
        watched.declared = Some(now);
        out.push(Action::Declare { node, boot: watched.boot });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId::new(1);
    const TWO: NodeId = NodeId::new(2);
    const THREE: NodeId = NodeId::new(3);

    fn boot(node: NodeId) -> BootId {
        BootId::new(node.get() * 10)
    }

    fn heartbeat(node: NodeId) -> DetectorEvent {
        DetectorEvent::Heartbeat { node, boot: boot(node) }
    }

    fn declare(node: NodeId) -> Action {
        Action::Declare { node, boot: boot(node) }
    }

    /// A detector with a clock in milliseconds.
    struct Scene {
        detector: Detector,
        start: Instant,
    }

    impl Scene {
        fn new() -> Self {
            let mut scene = Self { detector: Detector::new(ME, Liveness::LAN), start: Instant::now() };
            scene.members(0, &[ME, TWO, THREE]);
            scene
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn members(&mut self, ms: u64, nodes: &[NodeId]) {
            self.detector.set_members(self.at(ms), nodes.iter().map(|&node| (node, boot(node))));
        }

        fn leader(&mut self, ms: u64, leader: Option<NodeId>) -> Vec<Action> {
            let mut out = Vec::new();
            self.detector.set_leader(self.at(ms), leader, &mut out);
            out
        }

        fn step(&mut self, ms: u64, event: DetectorEvent) -> Vec<Action> {
            let mut out = Vec::new();
            self.detector.step(self.at(ms), event, &mut out);
            out
        }

        fn tick(&mut self, ms: u64) -> Vec<Action> {
            let mut out = Vec::new();
            self.detector.tick(self.at(ms), &mut out);
            out
        }
    }

    #[test]
    fn silence_beyond_the_limit_is_declared_once_and_again_only_if_it_was_of_no_use() {
        let mut scene = Scene::new();
        assert_eq!(scene.leader(0, Some(ME)), []);
        scene.step(30, heartbeat(TWO));
        assert_eq!(scene.tick(50), []);
        assert_eq!(scene.tick(51), [declare(THREE)], "never heard, and the grace of a new leader is over");
        scene.step(70, heartbeat(TWO));
        assert_eq!(scene.tick(120), []);
        assert_eq!(scene.tick(121), [declare(TWO)]);
        assert_eq!(scene.tick(300), []);
        assert_eq!(scene.tick(301), [declare(THREE)], "still up in the state: the proposal was lost");
        scene.members(310, &[ME]);
        assert_eq!(scene.tick(900), [], "the state shows them as down");
        scene.members(910, &[ME, TWO]);
        assert_eq!(scene.tick(960), [], "back again, with a fresh grace");
        assert_eq!(scene.tick(961), [declare(TWO)]);
    }

    #[test]
    fn followers_declare_nobody() {
        let mut scene = Scene::new();
        assert_eq!(scene.leader(0, Some(TWO)), []);
        assert_eq!(scene.tick(1_000), []);
        assert_eq!(scene.step(1_000, DetectorEvent::Lost { node: THREE, boot: boot(THREE) }), []);
        assert_eq!(scene.step(1_000, DetectorEvent::Refused { node: THREE, boot: boot(THREE) }), []);
    }

    #[test]
    fn a_lost_connection_is_probed_and_a_refused_probe_is_a_death() {
        let mut scene = Scene::new();
        scene.leader(0, Some(ME));
        let (lost, refused) =
            (DetectorEvent::Lost { node: TWO, boot: boot(TWO) }, DetectorEvent::Refused { node: TWO, boot: boot(TWO) });
        assert_eq!(scene.step(10, refused), [], "a probe that was not asked for");
        assert_eq!(scene.step(11, lost), [Action::Probe { node: TWO, boot: boot(TWO) }]);
        assert_eq!(scene.step(12, refused), [declare(TWO)], "long before the silence would tell");

        let mut scene = Scene::new();
        scene.leader(0, Some(ME));
        scene.step(11, lost);
        scene.step(12, heartbeat(TWO));
        assert_eq!(scene.step(13, refused), [], "it has connected again meanwhile");
    }

    #[test]
    fn another_boot_counts_for_nothing() {
        let mut scene = Scene::new();
        scene.leader(0, Some(ME));
        let stranger = BootId::new(999);
        assert_eq!(scene.step(40, DetectorEvent::Heartbeat { node: TWO, boot: stranger }), []);
        assert_eq!(scene.step(40, DetectorEvent::Lost { node: TWO, boot: stranger }), []);
        assert_eq!(scene.tick(51), [declare(TWO), declare(THREE)], "the registered boot was silent");
    }

    #[test]
    fn a_new_leader_is_patient_with_all_but_its_predecessor() {
        let mut scene = Scene::new();
        scene.leader(0, Some(TWO));
        scene.leader(500, None);
        let probe = Action::Probe { node: TWO, boot: boot(TWO) };
        assert_eq!(scene.leader(1_000, Some(ME)), [probe], "its predecessor may be gone for good");
        assert_eq!(scene.tick(1_030), []);
        assert_eq!(scene.tick(1_031), [declare(TWO)]);
        assert_eq!(scene.tick(1_051), [declare(THREE)]);

        let mut scene = Scene::new();
        scene.leader(0, Some(TWO));
        scene.leader(1_000, Some(ME));
        scene.step(1_020, heartbeat(TWO));
        scene.step(1_020, heartbeat(THREE));
        assert_eq!(scene.tick(1_070), [], "a predecessor that sends heartbeats is a replica as any other");

        let mut scene = Scene::new();
        scene.leader(0, Some(TWO));
        scene.leader(1_000, Some(ME));
        let refused = DetectorEvent::Refused { node: TWO, boot: boot(TWO) };
        assert_eq!(scene.step(1_001, refused), [declare(TWO)], "a predecessor that is gone is declared at once");
    }

    #[test]
    fn a_heartbeat_from_before_the_change_of_leaders_says_nothing_about_the_former_one() {
        let gone = || {
            let mut scene = Scene::new();
            scene.leader(0, Some(TWO));
            scene.leader(1_000, Some(ME));
            // It arrived while this replica followed, and waited in the queue.
            assert_eq!(scene.step(995, heartbeat(TWO)), []);
            scene
        };
        let refused = DetectorEvent::Refused { node: TWO, boot: boot(TWO) };
        assert_eq!(gone().step(1_001, refused), [declare(TWO)], "its connection still counts as lost");
        assert_eq!(gone().tick(1_031), [declare(TWO)], "and its grace is no longer than before");
    }

    #[test]
    fn a_detector_that_was_paused_forgives() {
        let mut scene = Scene::new();
        scene.leader(0, Some(ME));
        scene.step(10, DetectorEvent::Lost { node: THREE, boot: boot(THREE) });
        scene.detector.reset_suspicions(scene.at(10_000));
        assert_eq!(
            scene.step(10_001, DetectorEvent::Refused { node: THREE, boot: boot(THREE) }),
            [],
            "asked before the pause"
        );
        assert_eq!(scene.tick(10_050), []);
        assert_eq!(scene.tick(10_051), [declare(TWO), declare(THREE)]);
    }
}
