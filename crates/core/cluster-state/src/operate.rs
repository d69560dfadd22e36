//! Executes operators' commands, each once.

use symphony_types::{Epoch, Level};

use crate::effect::Effect;
use crate::operation::{Action, Changes, Operation};
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::ClusterState;
use symphony_replicated::operation_book::{KeptOperation, Known};

impl ClusterState {
    /// The recorded reply to the operation, if any; a refusal if its id was used for another one.
    #[must_use]
    pub fn answer_to(&self, operation: &Operation) -> Option<Outcome> {
        let id = operation.id;
        KeptOperation::known(&self.operations, id, operation.digest()).map(|known| match known {
            Known::Same(outcome) => outcome.clone(),
            Known::Other { index } => Err(Refusal::OperationReused { id, index }),
        })
    }

    pub(crate) fn operate(
        &mut self,
        index: u64,
        operation: &Operation,
        epoch: Epoch,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let (id, digest) = (operation.id, operation.digest());
        let outcome = match KeptOperation::known(&self.operations, id, digest) {
            Some(Known::Same(outcome)) => return outcome.clone(),
            Some(Known::Other { index }) => Err(Refusal::OperationReused { id, index }),
            None => self.act(index, operation, epoch, effects),
        };
        let (actor, at_unix_ms) = (operation.actor.clone(), operation.at_unix_ms);
        let what = match &operation.action {
            // Actions say "model": the words are part of the state, and those of models must not change.
            Action::SetTraffic { model, traffic } if self.is_pipeline(model) => {
                format!("split traffic of pipeline {model}: {traffic}")
            }
            action => action.to_string(),
        };
        let kept = KeptOperation { index, id, actor, at_unix_ms, what, outcome: outcome.clone(), digest };
        kept.keep(&mut self.operations);
        outcome
    }

    fn act(&mut self, index: u64, operation: &Operation, epoch: Epoch, effects: &mut Vec<Effect>) -> Outcome {
        match &operation.action {
            Action::LoadModel(spec) => self.load_model(spec, epoch, effects),
            Action::UnloadModel { name } => self.unload_model(name, epoch, effects),
            Action::ChangeModel { name, slo_ns, policy, value } => {
                self.change_model(name, Changes { slo_ns: *slo_ns, policy: *policy, value: *value }, effects)
            }
            Action::SetTraffic { model, traffic } => self.set_traffic(model, traffic, effects),
            Action::SetDuty { member, duty } => self.set_duty(*member, *duty, effects),
            Action::ChangeReplicas { remove: Some(node), .. } => {
                self.remove_node(index, *node, operation.avoid, effects)
            }
            Action::ChangeReplicas { remove: None, .. } => Ok(Reply::Done),
            Action::ProposePlan(proposal) => self.propose_plan(index, proposal, effects),
            Action::ReviewPlan { plan, approve } => self.review_plan(*plan, *approve, effects),
            Action::RemoveFrontend { frontend } => self.remove_frontend(*frontend, effects),
            Action::RaiseLevel { level } => Ok(self.raise_level(*level, effects)),
            Action::SetPolicy { subcluster, policy } => self.set_policy(index, subcluster, policy, effects),
            Action::LoadPipeline(declaration) => self.load_pipeline(declaration, epoch, effects),
            Action::UnloadPipeline { name } => self.unload_pipeline(name, epoch, effects),
        }
    }

    /// A level that is reached already is no error: the operator wants it to be reached.
    fn raise_level(&mut self, level: Level, effects: &mut Vec<Effect>) -> Reply {
        if level > self.level {
            self.level = level;
            effects.push(Effect::LevelRaised { level });
        }
        Reply::Done
    }
}
