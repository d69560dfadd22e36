//! Doing what operators ask for, once.

use symphony_types::Epoch;

use crate::effect::Effect;
use crate::limits::OPERATIONS_KEPT;
use crate::operation::{Action, KeptOperation, Operation};
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::ClusterState;

impl ClusterState {
    /// What the operation was answered, if it is known.
    #[must_use]
    pub fn answer_to(&self, operation: &Operation) -> Option<&Outcome> {
        let digest = operation.digest();
        let known = self.operations.iter().find(|kept| kept.id == operation.id && kept.digest == digest);
        known.map(|kept| &kept.outcome)
    }

    pub(crate) fn operate(
        &mut self,
        index: u64,
        operation: &Operation,
        epoch: Epoch,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if let Some(outcome) = self.answer_to(operation) {
            return outcome.clone();
        }
        let outcome = match self.operations.iter().find(|kept| kept.id == operation.id) {
            Some(other) => Err(Refusal::OperationReused { id: operation.id, index: other.index }),
            None => self.act(index, operation, epoch, effects),
        };
        self.operations.push(KeptOperation {
            index,
            id: operation.id,
            actor: operation.actor.clone(),
            at_unix_ms: operation.at_unix_ms,
            what: operation.action.to_string(),
            outcome: outcome.clone(),
            digest: operation.digest(),
        });
        let surplus = self.operations.len().saturating_sub(OPERATIONS_KEPT);
        self.operations.drain(..surplus);
        outcome
    }

    fn act(&mut self, index: u64, operation: &Operation, epoch: Epoch, effects: &mut Vec<Effect>) -> Outcome {
        match &operation.action {
            Action::LoadModel(spec) => self.load_model(spec, epoch, effects),
            Action::UnloadModel { name } => self.unload_model(name, epoch, effects),
            Action::SetDuty { member, duty } => self.set_duty(*member, *duty, effects),
            Action::ChangeReplicas { remove: Some(node), .. } => {
                self.remove_node(index, *node, operation.avoid, effects)
            }
            Action::ChangeReplicas { remove: None, .. } => Ok(Reply::Done),
            Action::ProposePlan(proposal) => self.propose_plan(index, proposal, effects),
            Action::JudgePlan { plan, approve } => self.judge_plan(*plan, *approve, effects),
        }
    }
}
