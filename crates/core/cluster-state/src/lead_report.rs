//! What a replica reports to the control group about the sub-clusters that it leads: which command, when and how often,
//! and when to stop its heartbeats because its commands do not reach the group. A pure value, hosted by the control
//! plane and the deterministic simulation.

use std::collections::BTreeMap;

use symphony_types::{BackendId, BootId, Nanos, NodeId, SubclusterId, Time, Token};

use crate::command::Command;
use crate::subcluster_policy::PolicyFailure;

/// The time in which the control group must agree to end a hung lead; afterwards the replica stops its heartbeats.
pub const CEDE_WITHIN: Nanos = Nanos::from_millis(100);

/// Events of leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadReport {
    /// A backend of a led sub-cluster is unreachable.
    BackendDown(BackendId, BootId),
    /// This node is ready to take over a sub-cluster.
    Ready {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// Log index at which the hand-over began.
        since: u64,
    },
    /// Most links of a lead make hardly any progress, and another replica could lead. This node continues until that
    /// one leads.
    CutOff {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The assignment.
        token: Token,
    },
    /// A decision thread hangs: this node no longer leads the sub-cluster, and may be unable to lead others.
    Stuck {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The assignment.
        token: Token,
        /// How long to wait before this replica leads again: above 0 if the thread hung in a turn of this lead, and
        /// others have hung or panicked lately.
        pause: Nanos,
    },
    /// A turn of this lead panicked: this node no longer leads the sub-cluster, but leads all others as before.
    Panicked {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The assignment.
        token: Token,
        /// How long to wait before this replica leads it again: above 0 if leads of it panicked or hung here lately.
        pause: Nanos,
    },
    /// The policy of the sub-cluster has ended this lead by its fault.
    PolicyFailed {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The assignment.
        token: Token,
        /// What it did.
        failure: PolicyFailure,
    },
    /// This node does not know the policy of the sub-cluster that it should lead, and does not lead it.
    PolicyUnknown {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The assignment.
        token: Token,
        /// How long to wait before another replica is asked for.
        pause: Nanos,
    },
}

/// Input of the reporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadReportInput {
    /// An event of a lead.
    Report(LeadReport),
    /// The group has accepted or refused the proposal with this number.
    Settled(u64),
    /// The proposal with this number reached no Raft leader, or its fate is unknown.
    Open(u64),
}

/// Instructions for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadReportAction {
    /// Propose this, and abandon an earlier proposal with the same number.
    Propose {
        /// Number of the proposal.
        number: u64,
        /// What to propose.
        command: Box<Command>,
    },
    /// Stop sending heartbeats, so that the others consider this replica dead.
    BeSilent,
    /// Resume heartbeats.
    Speak,
}

/// How long a report is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetryPolicy {
    /// Once: the cause, if it persists, is reported again.
    Once,
    /// Again and again, until the control group has settled it.
    UntilSettled,
    /// Until it is settled, and without heartbeats once [`CEDE_WITHIN`] has passed: other leads may hang as well, and
    /// only this replica's death ends those.
    OrSilent,
}

#[derive(Debug)]
struct Pending {
    command: Command,
    retry: RetryPolicy,
    /// When to propose it again.
    due: Time,
    /// Whether it was proposed at least once.
    was_proposed: bool,
    silent: bool,
}

/// Turns reports into proposals. One step per input, and one when [`wake_at`](Self::wake_at) has come.
#[derive(Debug)]
pub struct LeadReporter {
    me: (NodeId, BootId),
    pending: BTreeMap<u64, Pending>,
    last_number: u64,
}

impl LeadReporter {
    /// For this boot of a replica.
    #[must_use]
    pub const fn new(me: (NodeId, BootId)) -> Self {
        Self { me, pending: BTreeMap::new(), last_number: 0 }
    }

    /// When the next step is due without an input; [`Time::NEVER`] if none is.
    #[must_use]
    pub fn wake_at(&self) -> Time {
        self.pending.values().map(|pending| pending.due).min().unwrap_or(Time::NEVER)
    }

    /// Takes an event, if any, and returns instructions.
    pub fn step(&mut self, now: Time, input: Option<LeadReportInput>, actions: &mut Vec<LeadReportAction>) {
        let silent_before = self.is_silent();
        match input {
            Some(LeadReportInput::Report(report)) => self.take(now, report),
            Some(LeadReportInput::Settled(number)) => drop(self.pending.remove(&number)),
            Some(LeadReportInput::Open(number)) => self.open(now, number),
            None => {}
        }
        self.propose_due(now, actions);
        match (silent_before, self.is_silent()) {
            (false, true) => actions.push(LeadReportAction::BeSilent),
            (true, false) => actions.push(LeadReportAction::Speak),
            _ => {}
        }
    }

    fn is_silent(&self) -> bool {
        self.pending.values().any(|pending| pending.silent)
    }

    fn take(&mut self, now: Time, report: LeadReport) {
        let (node, boot) = self.me;
        let cede = |subcluster, token| Command::CedeLead { subcluster, token, node, boot, avoid: None };
        let (command, retry, pause) = match report {
            LeadReport::BackendDown(backend, boot) => {
                (Command::BackendDown { backend, boot }, RetryPolicy::Once, Nanos::ZERO)
            }
            LeadReport::Ready { subcluster, since } => {
                (Command::CompleteHandover { subcluster, since, node, boot }, RetryPolicy::Once, Nanos::ZERO)
            }
            LeadReport::CutOff { subcluster, token } => (cede(subcluster, token), RetryPolicy::Once, Nanos::ZERO),
            LeadReport::Panicked { subcluster, token, pause }
            | LeadReport::PolicyUnknown { subcluster, token, pause } => {
                (cede(subcluster, token), RetryPolicy::UntilSettled, pause)
            }
            LeadReport::PolicyFailed { subcluster, token, failure: why } => {
                let failed = Command::PolicyFailed { subcluster, token, node, boot, why, avoid: None };
                (failed, RetryPolicy::UntilSettled, Nanos::ZERO)
            }
            LeadReport::Stuck { subcluster, token, pause } => (cede(subcluster, token), RetryPolicy::OrSilent, pause),
        };
        self.last_number += 1;
        let pending = Pending { command, retry, due: now + pause, was_proposed: false, silent: false };
        self.pending.insert(self.last_number, pending);
    }

    /// A failed proposal: it is repeated when due, if at all.
    fn open(&mut self, now: Time, number: u64) {
        let Some(pending) = self.pending.get_mut(&number) else { return };
        match pending.retry {
            RetryPolicy::Once => drop(self.pending.remove(&number)),
            RetryPolicy::UntilSettled => pending.due = now + CEDE_WITHIN,
            RetryPolicy::OrSilent => pending.silent = true,
        }
    }

    fn propose_due(&mut self, now: Time, actions: &mut Vec<LeadReportAction>) {
        for (&number, pending) in self.pending.iter_mut().filter(|(_, pending)| pending.due <= now) {
            pending.silent |= pending.was_proposed && pending.retry == RetryPolicy::OrSilent;
            pending.was_proposed = true;
            // A proposal ends by itself; only a hung replica cannot wait for that.
            pending.due = if pending.retry == RetryPolicy::OrSilent { now + CEDE_WITHIN } else { Time::NEVER };
            actions.push(LeadReportAction::Propose { number, command: Box::new(pending.command.clone()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: (NodeId, BootId) = (NodeId::new(1), BootId::new(7));
    const SUBCLUSTER: SubclusterId = SubclusterId::new(3);
    const TOKEN: Token = Token::new(40);

    struct Scene {
        reporter: LeadReporter,
        now: Time,
    }

    impl Scene {
        fn new() -> Self {
            Self { reporter: LeadReporter::new(ME), now: Time::ZERO }
        }

        fn step(&mut self, input: Option<LeadReportInput>) -> Vec<&'static str> {
            let mut actions = Vec::new();
            self.reporter.step(self.now, input, &mut actions);
            let word = |action: &LeadReportAction| match action {
                LeadReportAction::Propose { command, .. } => command.label(),
                LeadReportAction::BeSilent => "silent",
                LeadReportAction::Speak => "speak",
            };
            actions.iter().map(word).collect()
        }

        fn report(&mut self, report: LeadReport) -> Vec<&'static str> {
            self.step(Some(LeadReportInput::Report(report)))
        }

        fn after_ms(&mut self, ms: u64) -> Vec<&'static str> {
            self.now += Nanos::from_millis(ms);
            self.step(None)
        }
    }

    fn stuck(pause_ms: u64) -> LeadReport {
        LeadReport::Stuck { subcluster: SUBCLUSTER, token: TOKEN, pause: Nanos::from_millis(pause_ms) }
    }

    #[test]
    fn what_its_cause_reports_again_is_proposed_once() {
        for report in [
            LeadReport::BackendDown(BackendId::new(2), BootId::new(9)),
            LeadReport::Ready { subcluster: SUBCLUSTER, since: 12 },
            LeadReport::CutOff { subcluster: SUBCLUSTER, token: TOKEN },
        ] {
            let mut scene = Scene::new();
            assert_eq!(scene.report(report).len(), 1);
            assert_eq!(scene.after_ms(10_000), [""; 0], "{report:?}");
            assert_eq!(scene.step(Some(LeadReportInput::Open(1))), [""; 0]);
            assert_eq!((scene.reporter.wake_at(), scene.reporter.pending.len()), (Time::NEVER, 0));
        }
    }

    #[test]
    fn a_lead_that_panicked_is_given_up_until_the_group_has_heard_it_and_heartbeats_go_on() {
        let mut scene = Scene::new();
        let pause = Nanos::from_millis(250);
        assert_eq!(scene.report(LeadReport::Panicked { subcluster: SUBCLUSTER, token: TOKEN, pause }), [""; 0]);
        assert_eq!(scene.after_ms(249), [""; 0], "the pause");
        assert_eq!(scene.after_ms(1), ["cede_lead"]);
        assert_eq!(scene.step(Some(LeadReportInput::Open(1))), [""; 0], "not at once");
        assert_eq!(scene.after_ms(100), ["cede_lead"]);
        assert_eq!(scene.after_ms(1000), [""; 0], "a proposal ends by itself");
        assert_eq!(scene.step(Some(LeadReportInput::Settled(1))), [""; 0]);
        assert_eq!(scene.after_ms(1000), [""; 0]);
    }

    #[test]
    fn a_replica_that_hangs_and_is_not_heard_is_silent_until_it_is() {
        let mut scene = Scene::new();
        assert_eq!(scene.report(stuck(0)), ["cede_lead"]);
        assert_eq!(scene.after_ms(99), [""; 0]);
        assert_eq!(scene.after_ms(1), ["cede_lead", "silent"]);
        assert_eq!(scene.after_ms(100), ["cede_lead"], "silent already");
        assert_eq!(scene.step(Some(LeadReportInput::Settled(1))), ["speak"]);
        assert_eq!(scene.reporter.wake_at(), Time::NEVER);
    }

    #[test]
    fn a_group_without_a_leader_makes_a_hung_replica_silent_at_once() {
        let mut scene = Scene::new();
        scene.report(stuck(0));
        assert_eq!(scene.step(Some(LeadReportInput::Open(1))), ["silent"]);
        assert_eq!(scene.after_ms(100), ["cede_lead"]);
    }

    #[test]
    fn silence_lasts_until_the_last_hung_lead_is_settled() {
        let mut scene = Scene::new();
        scene.report(stuck(0));
        scene.report(stuck(0));
        assert_eq!(scene.after_ms(100), ["cede_lead", "cede_lead", "silent"]);
        assert_eq!(scene.step(Some(LeadReportInput::Settled(1))), [""; 0]);
        assert_eq!(scene.step(Some(LeadReportInput::Settled(2))), ["speak"]);
        assert_eq!(scene.step(Some(LeadReportInput::Settled(9))), [""; 0], "an answer that nobody waits for");
    }
}
