//! What operators ask for, done once.

use std::fmt::Write as _;

use rkyv::{Archive, Deserialize, Serialize, rancor};
use symphony_cluster_state::Fnv1a;
use symphony_types::OperationId;

use crate::command::{Action, Operation};
use crate::limits::{MODEL_BYTES_TOTAL_MAX, MODELS_MAX, OPERATIONS_KEPT};
use crate::refusal::{Outcome, Refusal};
use crate::state::{FederationState, Model};

/// What is remembered of an operation.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct KeptOperation {
    /// Its place in the log.
    pub index: u64,
    /// Names it.
    pub id: OperationId,
    /// Who asked for it.
    pub actor: String,
    /// When, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// What was asked for, in words.
    pub what: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Of actor and action, to tell a repetition from another command under the same id.
    pub(crate) digest: u64,
}

impl FederationState {
    pub(crate) fn operate(&mut self, index: u64, operation: &Operation) -> Outcome {
        let Operation { id, actor, at_unix_ms, action } = operation;
        let bytes = rkyv::to_bytes::<rancor::Error>(action).expect("an action that was validated can be written");
        let digest = Fnv1a::default().over(actor.as_bytes()).over(&bytes).get();
        if let Some(kept) = self.operations.iter().find(|kept| kept.id == *id) {
            if kept.digest == digest {
                return kept.outcome.clone();
            }
            return Err(Refusal::OperationReused { id: *id, index: kept.index });
        }
        let outcome = self.act(index, *id, action);
        let outcome = outcome.map(|()| self.reply());
        let mut what = String::new();
        let _ = write!(what, "{action}");
        let kept = KeptOperation {
            index,
            id: *id,
            actor: actor.clone(),
            at_unix_ms: *at_unix_ms,
            what,
            outcome: outcome.clone(),
            digest,
        };
        self.operations.push_back(kept);
        let surplus = self.operations.len().saturating_sub(OPERATIONS_KEPT);
        self.operations.drain(..surplus);
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
        let homes = [model.home.take().map(|home| home.cluster), model.moving.take().map(|moving| moving.to)];
        model.leftovers.extend(homes.into_iter().flatten().map(|cluster| (cluster, index)));
        let gone = model.leftovers.is_empty();
        if gone {
            self.models.remove(name);
        }
        self.plan += 1;
        self.note(index, format!("model {name} is no longer to be served"));
        Ok(())
    }
}
