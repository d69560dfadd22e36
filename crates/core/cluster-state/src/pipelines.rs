//! Pipelines: models that feed each other, and how the budget of each is split.
//!
//! A pipeline keeps its models: the last one that can answer a stage is not unloaded while the pipeline exists, and a
//! version that does not fit is not loaded. Names are shared with models: clients call both alike. Versions stand
//! beside each other as those of models do, each with its own split.

use std::collections::{BTreeMap, BTreeSet};

use symphony_pipeline::{CommittedSplit, DeclaredStage, EDGES_MAX, PipelineDeclaration, StageModel};
use symphony_replicated::{InvalidField, ModelSpec};
use symphony_types::{Epoch, Level, VersionedName};

use crate::effect::Effect;
use crate::limits::{PIPELINE_BYTES_TOTAL_MAX, PIPELINES_MAX};
use crate::loaded_pipeline::LoadedPipeline;
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::ClusterState;

/// Validates a split without the state.
pub(crate) fn check_split(split: &CommittedSplit) -> Result<(), InvalidField> {
    use symphony_replicated::fields::{count, invalid};
    count("split.budgets_ns", split.budgets_ns.len(), 1..=symphony_pipeline::STAGES_MAX)?;
    count("split.gammas", split.gammas.len(), 0..=EDGES_MAX)?;
    match split.budgets_ns.iter().position(|&budget| budget == 0) {
        Some(at) => Err(invalid("split.budgets_ns", &format!("0 for stage {at}; expected a positive time"))),
        None => Ok(()),
    }
}

fn model(spec: &ModelSpec) -> StageModel<'_> {
    StageModel { loaded_as: &spec.name, signature: &spec.signature, transforms: &spec.transforms }
}

impl ClusterState {
    /// Below level 3 a snapshot has no room for pipelines: replicas of the release before would lose them.
    fn has_pipelines(&self) -> Result<(), Refusal> {
        if self.level >= Level::WITH_PIPELINES {
            return Ok(());
        }
        // By number: refusals of operations are part of the state.
        let (needed, level) = (Level::WITH_PIPELINES.get(), self.level.get());
        let reason = format!("the cluster is at level {level}; expected level {needed} (symphony upgrade finish)");
        Err(Refusal::Invalid { field: "pipeline".into(), reason })
    }

    /// The pipelines, by the names of their versions, `NAME@VERSION`.
    #[must_use]
    pub const fn pipelines(&self) -> &BTreeMap<String, LoadedPipeline> {
        &self.pipelines
    }

    /// Whether a pipeline has this name, which has no version.
    pub(crate) fn is_pipeline(&self, name: &str) -> bool {
        self.pipelines.values().any(|known| known.declaration.name == name)
    }

    pub(crate) fn load_pipeline(
        &mut self,
        declaration: &PipelineDeclaration,
        epoch: Epoch,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        self.has_pipelines()?;
        let PipelineDeclaration { name, version, .. } = declaration;
        let loaded_as = declaration.versioned().loaded_as();
        if self.has_model_called(name) {
            return Err(unfit(name, format!("the name is a model's; expected another, or none of {name}'s versions")));
        }
        if let Some(known) = self.pipelines.get(&loaded_as) {
            let same = known.declaration == *declaration;
            let reason = format!("version {version} is loaded with another declaration; expected another version");
            return if same { Ok(Reply::Pipeline { epoch: known.epoch }) } else { Err(unfit(name, reason)) };
        }
        let weight: usize = self.pipelines.values().map(|known| known.declaration.weight_bytes()).sum();
        if self.pipelines.len() >= PIPELINES_MAX {
            return Err(Refusal::Limit { what: "pipelines".into(), max: PIPELINES_MAX as u64 });
        }
        if weight + declaration.weight_bytes() > PIPELINE_BYTES_TOTAL_MAX {
            let max = PIPELINE_BYTES_TOTAL_MAX as u64;
            return Err(Refusal::Limit { what: "bytes of pipelines".into(), max });
        }
        let models: Vec<_> = self.models.values().map(|loaded| model(&loaded.spec)).collect();
        declaration.check(&models).map_err(|refused| unfit(name, refused.to_string()))?;
        let loaded = LoadedPipeline { declaration: declaration.clone(), epoch, split: None };
        self.pipelines.insert(loaded_as, loaded);
        effects.push(Effect::PipelineLoaded { name: name.clone(), version: *version });
        Ok(Reply::Pipeline { epoch })
    }

    /// One version by its name, `NAME@VERSION`, or all.
    pub(crate) fn unload_pipeline(&mut self, name: &str, epoch: Epoch, effects: &mut Vec<Effect>) -> Outcome {
        self.has_pipelines()?;
        let all = self.pipelines.iter();
        let gone = all.filter(|(loaded_as, known)| loaded_as.as_str() == name || known.declaration.name == name);
        let gone: BTreeMap<_, _> =
            gone.map(|(loaded_as, known)| (known.declaration.version, loaded_as.clone())).collect();
        if gone.is_empty() {
            return Err(Refusal::UnknownPipeline { name: name.to_owned() });
        }
        for loaded_as in gone.values() {
            self.pipelines.remove(loaded_as);
            effects.push(Effect::PipelineUnloaded { name: loaded_as.clone() });
        }
        // Once for all: on the way none of them gets a larger part.
        let (pipeline, gone): (_, Vec<_>) = (VersionedName::parse(name).name, gone.into_keys().collect());
        if let Some(traffic) = self.traffic_without(pipeline, &gone) {
            effects.push(Effect::PipelineTrafficSet { pipeline: pipeline.to_owned(), traffic });
        }
        Ok(Reply::Unloaded { epoch })
    }

    pub(crate) fn set_split(
        &mut self,
        name: &str,
        version: u64,
        split: &CommittedSplit,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        self.has_pipelines()?;
        let name = VersionedName { name, version }.loaded_as();
        let Some(known) = self.pipelines.get_mut(&name) else { return Err(Refusal::UnknownPipeline { name }) };
        let (stages, budgets) = (known.declaration.stages.len(), split.budgets_ns.len());
        if stages != budgets {
            let reason = format!("{budgets} budgets; expected one for each of {stages} stages");
            return Err(Refusal::Invalid { field: "split.budgets_ns".into(), reason });
        }
        if known.split.as_ref() != Some(split) {
            known.split = Some(split.clone());
            effects.push(Effect::SplitSet { name, budgets_ns: split.budgets_ns.clone() });
        }
        Ok(Reply::Done)
    }

    /// Whether a model can be loaded beside the pipelines: its name is none of theirs, and those that would ask it can.
    pub(crate) fn check_pipelines_take(&self, spec: &ModelSpec) -> Result<(), Refusal> {
        let name = VersionedName::parse(&spec.name).name;
        if self.is_pipeline(name) {
            return Err(unfit(
                name,
                format!("it has the name of model `{}`; expected another for the model", spec.name),
            ));
        }
        let asks = |stage: &DeclaredStage| stage.asks(&spec.name);
        for known in self.pipelines.values().filter(|known| known.declaration.stages.iter().any(asks)) {
            let others = self.models.values().map(|loaded| model(&loaded.spec));
            let models: Vec<_> = others.chain([model(spec)]).collect();
            let declaration = &known.declaration;
            declaration.check(&models).map_err(|refused| unfit(&declaration.name, refused.to_string()))?;
        }
        Ok(())
    }

    /// Whether a model can be unloaded: each stage that asks it has another one.
    pub(crate) fn check_pipelines_spare(&self, loaded_as: &str) -> Result<(), Refusal> {
        let loaded = self.models.values().map(|loaded| loaded.spec.name.as_str());
        match self.pipelines.iter().find(|(_, known)| known.declaration.needs(loaded_as, loaded.clone())) {
            Some((pipeline, _)) => {
                Err(Refusal::UsedByPipeline { model: loaded_as.to_owned(), pipeline: pipeline.clone() })
            }
            None => Ok(()),
        }
    }

    fn has_model_called(&self, name: &str) -> bool {
        let called = |loaded_as: &str| loaded_as == name || VersionedName::parse(loaded_as).name == name;
        self.models.values().any(|loaded| called(&loaded.spec.name))
    }

    /// The first pipeline with a stage that no model answers, or with a model's name; for the invariants.
    pub(crate) fn broken_pipeline(&self) -> Option<String> {
        let names: BTreeSet<_> = self.models.values().map(|loaded| loaded.spec.name.as_str()).collect();
        let bases: BTreeSet<_> = names.iter().map(|name| VersionedName::parse(name).name).collect();
        self.pipelines.iter().find_map(|(name, known)| {
            let declaration = &known.declaration;
            let own = declaration.name.as_str();
            if *name != declaration.versioned().loaded_as() || names.contains(own) || bases.contains(own) {
                return Some(format!("pipeline {name} is known by a name that is not its own, or a model's"));
            }
            let is_there = |stage: &&DeclaredStage| {
                names.contains(stage.model.as_str())
                    || (!stage.names_a_version() && bases.contains(stage.model.as_str()))
            };
            if let Some(stage) = declaration.stages.iter().find(|stage| !is_there(stage)) {
                return Some(format!("pipeline {name} asks model {}, which is not loaded", stage.model));
            }
            let budgets = known.split.as_ref().map(|split| split.budgets_ns.len());
            let stages = declaration.stages.len();
            let others = budgets.filter(|&budgets| budgets != stages);
            others.map(|budgets| format!("pipeline {name} has {budgets} budgets for {stages} stages"))
        })
    }
}

fn unfit(pipeline: &str, reason: String) -> Refusal {
    Refusal::PipelineUnfit { pipeline: pipeline.to_owned(), reason }
}
