//! Executes operators' commands, each once.

use symphony_replicated::operation_book::{KeptOperation, Known, digest};
use symphony_types::OperationId;

use crate::command::{Action, Operation};
use crate::limits::{MODEL_BYTES_TOTAL_MAX, MODELS_MAX};
use crate::refusal::{Outcome, Refusal};
use crate::state::{FederationState, Model, Progress};

impl FederationState {
    pub(crate) fn operate(&mut self, index: u64, operation: &Operation) -> Outcome {
        let Operation { id, actor, at_unix_ms, action } = operation;
        let (id, digest) = (*id, digest(actor, action));
        match KeptOperation::known(&self.operations, id, digest) {
            Some(Known::Same(outcome)) => return outcome.clone(),
            Some(Known::Other { index }) => return Err(Refusal::OperationReused { id, index }),
            None => {}
        }
        let outcome = self.act(index, id, action).map(|()| self.reply());
        let (actor, at_unix_ms, what) = (actor.clone(), *at_unix_ms, action.to_string());
        let kept = KeptOperation { index, id, actor, at_unix_ms, what, outcome: outcome.clone(), digest };
        kept.keep(&mut self.operations);
        outcome
    }

    fn act(&mut self, index: u64, id: OperationId, action: &Action) -> Result<(), Refusal> {
        match action {
            Action::LoadModel { spec, wanted_mrps, cluster } => {
                if !cluster.is_empty() {
                    self.known(cluster)?;
                }
                if self.models.contains_key(&spec.name) {
                    return Err(Refusal::NameTaken { model: spec.name.clone() });
                }
                if self.models.len() >= MODELS_MAX {
                    return Err(Refusal::Limit { what: "models".into(), max: MODELS_MAX as u64 });
                }
                let model = Model {
                    spec: spec.clone(),
                    wanted_mrps: *wanted_mrps,
                    first_home: cluster.clone(),
                    operation: id,
                    loaded_at: index,
                    home: None,
                    moving: None,
                    leftovers: Default::default(),
                    unloading: false,
                    unplaced: String::new(),
                };
                let bytes = self.models.values().map(Model::weight_bytes).sum::<usize>() + model.weight_bytes();
                if bytes > MODEL_BYTES_TOTAL_MAX {
                    let what = "bytes of models".into();
                    return Err(Refusal::Limit { what, max: MODEL_BYTES_TOTAL_MAX as u64 });
                }
                self.models.insert(spec.name.clone(), model);
                self.plan += 1;
                self.note(index, format!("model {} is to be served", spec.name));
                Ok(())
            }
            Action::UnloadModel { name } => self.unload(index, name),
            Action::Move { moves, cause } => self.begin_moves(index, moves, *cause),
        }
    }

    pub(crate) fn unload(&mut self, index: u64, name: &str) -> Result<(), Refusal> {
        let unknown = || Refusal::UnknownModel { model: name.to_owned() };
        let model = self.models.get_mut(name).filter(|model| !model.unloading).ok_or_else(unknown)?;
        model.unloading = true;
        model.unplaced.clear();
        let moving = model.moving.take();
        let since = moving.as_ref().map(|moving| moving.since);
        let homes = [model.home.take().map(|home| home.cluster), moving.map(|moving| moving.to)];
        model.leftovers.extend(homes.into_iter().flatten().map(|cluster| (cluster, index)));
        let gone = model.leftovers.is_empty();
        if gone {
            self.models.remove(name);
        }
        if let Some(since) = since {
            self.remember_end(name, since, Progress::GivenUp("the model is no longer to be served".into()));
        }
        self.plan += 1;
        self.note(index, format!("model {name} is no longer to be served"));
        Ok(())
    }
}
