//! Doing what operators ask for, once.

use symphony_types::{Epoch, OperationId};

use crate::effect::Effect;
use crate::limits::OPERATIONS_KEPT;
use crate::operation::{Action, KeptOperation, Operation};
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::ClusterState;

/// What is kept under an operation's id.
enum Known<'a> {
    /// The operation itself, and its answer.
    Same(&'a Outcome),
    /// Something else.
    Other(Refusal),
}

impl ClusterState {
    /// What the operation was answered, if it is known; a refusal also if its id stands for something else.
    #[must_use]
    pub fn answer_to(&self, operation: &Operation) -> Option<Outcome> {
        self.known(operation.id, operation.digest()).map(|known| match known {
            Known::Same(outcome) => outcome.clone(),
            Known::Other(refusal) => Err(refusal),
        })
    }

    fn known(&self, id: OperationId, digest: u64) -> Option<Known<'_>> {
        let of_this_id = || self.operations.iter().filter(|kept| kept.id == id);
        match of_this_id().find(|kept| kept.digest == digest) {
            Some(same) => Some(Known::Same(&same.outcome)),
            None => of_this_id().next().map(|other| Known::Other(Refusal::OperationReused { id, index: other.index })),
        }
    }

    pub(crate) fn operate(
        &mut self,
        index: u64,
        operation: &Operation,
        epoch: Epoch,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let digest = operation.digest();
        let outcome = match self.known(operation.id, digest) {
            Some(Known::Same(outcome)) => return outcome.clone(),
            Some(Known::Other(refusal)) => Err(refusal),
            None => self.act(index, operation, epoch, effects),
        };
        self.operations.push(KeptOperation {
            index,
            id: operation.id,
            actor: operation.actor.clone(),
            at_unix_ms: operation.at_unix_ms,
            what: operation.action.to_string(),
            outcome: outcome.clone(),
            digest,
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
