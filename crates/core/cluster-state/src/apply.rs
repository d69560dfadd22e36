//! Applies commands: the only way in which the state changes.

use symphony_types::Epoch;

use crate::command::{Command, LogEntry};
use crate::effect::Effect;
use crate::leader_choice::Preference;
use crate::limits::EVENTS_MAX;
use crate::refusal::Refusal;
use crate::reply::Outcome;
use crate::state::{ClusterState, Event};

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The answer to the proposer.
    pub outcome: Outcome,
    /// The changes; empty if the command was refused or already applied.
    pub effects: Vec<Effect>,
}

impl ClusterState {
    /// Applies log entry `index`.
    ///
    /// The result depends only on the state, the index and the entry. Debug builds assert the named invariants
    /// afterwards.
    pub fn apply_entry(&mut self, index: u64, entry: &LogEntry) -> Applied {
        let LogEntry { at_unix_ms, command } = entry;
        self.apply_at(index, *at_unix_ms, command)
    }

    /// Applies a command that is in no log (tests, what-ifs): its events have no time.
    pub fn apply(&mut self, index: u64, command: &Command) -> Applied {
        self.apply_at(index, 0, command)
    }

    fn apply_at(&mut self, index: u64, at_unix_ms: u64, command: &Command) -> Applied {
        #[cfg(debug_assertions)]
        let before = self.clone();
        let applied = self.step(index, at_unix_ms, command);
        #[cfg(debug_assertions)]
        self.assert_moves_are_as_far_as_they_can_be(index, command);
        #[cfg(debug_assertions)]
        if let Err(violation) = crate::invariants::check(self).and(crate::invariants::check_step(&before, self)) {
            panic!("{violation} after {command:?} at index {index}");
        }
        applied
    }

    /// As [`apply`](Self::apply), without checking the invariants, which walk the whole state.
    pub(crate) fn step(&mut self, index: u64, at_unix_ms: u64, command: &Command) -> Applied {
        let mut effects = Vec::new();
        let outcome = self.decide(index, command, &mut effects);
        debug_assert!(outcome.is_ok() || effects.is_empty(), "refused {command:?} but changed {effects:?}");
        self.applied_index = self.applied_index.max(index);
        self.remember(index, at_unix_ms, &effects);
        Applied { outcome, effects }
    }

    fn decide(&mut self, index: u64, command: &Command, effects: &mut Vec<Effect>) -> Outcome {
        if index <= self.applied_index {
            return Err(Refusal::IndexNotNew { index, applied: self.applied_index });
        }
        crate::validate::command(command)?;
        // The epoch this command starts if it changes the assignment; models remember it.
        let next = Epoch::new(self.epoch.get() + 1);
        let outcome = match command {
            Command::RegisterNode(registration) => self.register_node(index, registration, effects),
            Command::NodeDown { node, boot, avoid } => self.node_down(index, *node, *boot, *avoid, effects),
            Command::RegisterBackend(registration) => self.register_backend(index, registration, effects),
            Command::BackendDown { backend, boot } => self.backend_down(index, *backend, *boot, effects),
            Command::RegisterFrontend(registration) => self.register_frontend(registration, effects),
            Command::ReportModel { model, backend, boot, state, load_ns } => {
                self.report_model(*model, *backend, *boot, (state, *load_ns), effects)
            }
            Command::Leave { member, boot } => self.leave(*member, *boot, effects),
            Command::ReportDrained { member, boot } => self.report_drained(index, *member, *boot, effects),
            Command::BeginHandover { subcluster, token, to, boot } => {
                self.begin_handover(index, *subcluster, *token, (*to, *boot), effects)
            }
            Command::CompleteHandover { subcluster, since, node, boot } => {
                self.complete_handover(index, *subcluster, *since, (*node, *boot), effects)
            }
            Command::CancelHandover { subcluster, since } => self.cancel_handover(*subcluster, *since, effects),
            Command::CedeLead { subcluster, token, node, boot, avoid } => {
                let preference = Preference { avoid: *avoid, last_choice: Some(*node) };
                self.cede_lead(index, *subcluster, *token, (*node, *boot), preference, effects)
            }
            Command::ProposePlan(proposal) => self.propose_plan(index, proposal, effects),
            Command::FinishMove { model, since } => self.finish_move(index, *model, *since, effects),
            Command::CancelMove { what, since, reason } => self.cancel_move(*what, *since, reason, effects),
            Command::Operate(operation) => self.operate(index, operation, next, effects),
            Command::ForgetFrontend { frontend, boot } => self.forget_frontend(*frontend, *boot, effects),
            Command::KnowPolicies { node, boot, names } => self.know_policies(*node, *boot, names, effects),
            Command::PolicyFailed { subcluster, token, node, boot, why, avoid } => {
                self.policy_failed(index, (*subcluster, *token), (*node, *boot), (*why, *avoid), effects)
            }
            Command::ReportCuts { model, backend, boot, cuts } => {
                self.report_cuts(*model, *backend, *boot, cuts, effects)
            }
            Command::SetSplit { pipeline, version, split } => self.set_split(pipeline, *version, split, effects),
        };
        if outcome.is_ok() {
            self.advance_moves(index, effects);
            self.refresh_families(effects);
        }
        if effects.iter().any(Effect::changes_assignment) {
            self.epoch = next;
        }
        outcome
    }

    /// Not every command changes what waiting moves depend on; the check makes sure that none is overlooked.
    #[cfg(debug_assertions)]
    fn assert_moves_are_as_far_as_they_can_be(&self, index: u64, command: &Command) {
        let (mut advanced, mut overlooked) = (self.clone(), Vec::new());
        advanced.advance_all(index, crate::effect::MoveTrigger::Room, &mut overlooked);
        assert!(overlooked.is_empty(), "{overlooked:?} was overlooked after {command:?} at index {index}");
    }

    fn remember(&mut self, index: u64, at_unix_ms: u64, effects: &[Effect]) {
        let notable = effects.iter().filter(|effect| effect.is_notable());
        self.events.extend(notable.map(|effect| Event { index, at_unix_ms, what: effect.to_string() }));
        let surplus = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.drain(..surplus);
    }
}
