//! Commands about models.

use std::collections::{BTreeMap, BTreeSet};

use symphony_types::{BackendId, BootId, Epoch, ModelId, RequestValue, SubclusterId};

use crate::effect::Effect;
use crate::epoch_plan::Moved;
use crate::limits::{HOLDERS_MAX, MODEL_BYTES_TOTAL_MAX, MODELS_MAX};
use crate::operation::Changes;
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::{Backend, ClusterState, Gpu, Holder, HolderState, Model};
use symphony_replicated::{ModelSource, ModelSpec};

/// Memory that the models of a sub-cluster need on one GPU: all of them loaded, and one of them running.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryNeed {
    static_bytes: u64,
    dynamic_bytes_max: u64,
}

impl MemoryNeed {
    pub(crate) const fn bytes(self) -> u64 {
        self.static_bytes.saturating_add(self.dynamic_bytes_max)
    }
}

/// Memory that the models need on a GPU of this kind (invariant C3).
///
/// # Errors
/// If one of them has no profile for the kind.
pub(crate) fn memory_need(models: &[&ModelSpec], kind: &str, subcluster: &str) -> Result<MemoryNeed, Refusal> {
    models.iter().try_fold(MemoryNeed::default(), |need, model| {
        let profile = model.profiles.get(kind).ok_or_else(|| Refusal::ProfileMissing {
            model: model.name.clone(),
            kind: kind.to_owned(),
            subcluster: subcluster.to_owned(),
        })?;
        Ok(MemoryNeed {
            static_bytes: need.static_bytes.saturating_add(profile.static_memory_bytes),
            dynamic_bytes_max: need.dynamic_bytes_max.max(profile.dynamic_memory_bytes),
        })
    })
}

impl ClusterState {
    pub(crate) fn load_model(&mut self, spec: &ModelSpec, epoch: Epoch, effects: &mut Vec<Effect>) -> Outcome {
        if let Some((id, model)) = self.model_named(&spec.name) {
            let mut requested = spec.clone();
            if requested.subcluster.is_empty() {
                requested.subcluster.clone_from(&model.spec.subcluster);
            }
            let same = requested == model.spec;
            let reply = Reply::Model { model: id, epoch: model.epoch };
            return if same { Ok(reply) } else { Err(Refusal::NameTaken { name: spec.name.clone() }) };
        }
        let (subcluster, name) = self.resolve(&spec.subcluster)?;
        if self.models.len() >= MODELS_MAX {
            return Err(Refusal::Limit { what: "models".into(), max: MODELS_MAX as u64 });
        }
        let spec = ModelSpec { subcluster: name, ..spec.clone() };
        let weight: usize = self.models.values().map(|m| m.spec.weight_bytes()).sum();
        if weight + spec.weight_bytes() > MODEL_BYTES_TOTAL_MAX {
            return Err(Refusal::Limit {
                what: "bytes of model specifications".into(),
                max: MODEL_BYTES_TOTAL_MAX as u64,
            });
        }
        if matches!(spec.source, ModelSource::OnnxUnshared(_)) {
            self.has_families("spec.own_trunk")?;
        }
        self.check_models_fit(subcluster, &spec)?;
        self.check_pipelines_take(&spec)?;

        self.last.model += 1;
        let model = ModelId::new(self.last.model);
        effects.push(Effect::ModelLoaded { model, name: spec.name.clone(), subcluster });
        self.models.insert(model, Model { spec, subcluster, moving: None, epoch, holders: BTreeMap::new() });
        Ok(Reply::Model { model, epoch })
    }

    pub(crate) fn change_model(&mut self, name: &str, changes: Changes, effects: &mut Vec<Effect>) -> Outcome {
        let unknown = || Refusal::UnknownModelName { name: name.to_owned() };
        let (id, model) = self.models.iter_mut().find(|(_, model)| model.spec.name == name).ok_or_else(unknown)?;
        let mut spec = model.spec.clone();
        spec.slo_ns = changes.slo_ns.unwrap_or(spec.slo_ns);
        spec.policy = changes.policy.unwrap_or(spec.policy);
        spec.value = changes.value.unwrap_or(spec.value);
        if spec != model.spec {
            spec.validate_new()?;
            if changes.value.is_some() && spec.value != RequestValue::ONE && !spec.policy.looks_at_values() {
                let reason = format!("{}; policy {} looks at no values", spec.value, spec.policy);
                return Err(Refusal::Invalid { field: "value".into(), reason });
            }
            model.spec = spec;
            effects.push(Effect::ModelChanged { model: *id, name: name.to_owned(), how: changes.to_string() });
        }
        Ok(Reply::Done)
    }

    pub(crate) fn unload_model(&mut self, name: &str, epoch: Epoch, effects: &mut Vec<Effect>) -> Outcome {
        let found = self.model_named(name).map(|(id, _)| id);
        let model = found.ok_or_else(|| Refusal::UnknownModelName { name: name.to_owned() })?;
        self.check_pipelines_spare(name)?;
        let moving = self.models.remove(&model).and_then(|model| model.moving);
        effects.push(Effect::ModelUnloaded { model, name: name.to_owned() });
        self.forget_traffic_of(name, effects);
        if let Some(moving) = moving {
            self.move_of_nothing(Moved::Model(model), moving.since, effects);
        }
        Ok(Reply::Unloaded { epoch })
    }

    pub(crate) fn report_model(
        &mut self,
        id: ModelId,
        backend: BackendId,
        boot: BootId,
        (state, load_ns): (&HolderState, u64),
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        let entry = self.backends.get(&backend).ok_or(Refusal::UnknownBackend { backend })?;
        if entry.boot != boot {
            let (what, name) = ("backend".into(), entry.name.clone());
            return Err(Refusal::StaleBoot { what, name, named: boot, current: entry.boot });
        }
        let holders: usize = self.models.values().map(|m| m.holders.len()).sum();
        let model = self.models.get_mut(&id).ok_or(Refusal::UnknownModel { model: id })?;
        if !entry.homes().iter().flatten().any(|&home| model.is_held_by(home)) {
            return Err(Refusal::NotInSubcluster { backend, model: id });
        }
        let word = Holder { boot, state: state.clone() };
        match model.holders.get(&backend) {
            Some(known) if *known == word => return Ok(Reply::Done),
            None if holders >= HOLDERS_MAX => {
                return Err(Refusal::Limit { what: "model replicas".into(), max: HOLDERS_MAX as u64 });
            }
            _ => {}
        }
        model.holders.insert(backend, word);
        let name = model.spec.name.clone();
        if *state == HolderState::Ready {
            let bytes = entry.bytes_to_load(&model.spec);
            if let Some(entry) = self.backends.get_mut(&backend) {
                entry.measure_load(bytes, load_ns);
            }
        }
        effects.push(Effect::ModelReported { model: id, name, backend, state: state.clone() });
        Ok(Reply::Done)
    }

    /// The sub-cluster of that name, or the only one if the name is empty.
    fn resolve(&self, name: &str) -> Result<(SubclusterId, String), Refusal> {
        if !name.is_empty() {
            let found = self.subcluster_named(name).map(|(id, s)| (id, s.name.clone()));
            return found.ok_or_else(|| Refusal::UnknownSubcluster { name: name.to_owned() });
        }
        match self.subclusters.iter().next() {
            Some((&id, only)) if self.subclusters.len() == 1 => Ok((id, only.name.clone())),
            _ => Err(Refusal::WhichSubcluster { count: self.subclusters.len() as u64 }),
        }
    }

    /// Whether every GPU that is in the sub-cluster or moves there can hold another model.
    pub(crate) fn check_models_fit(&self, subcluster: SubclusterId, more: &ModelSpec) -> Result<(), Refusal> {
        let mut checked = BTreeSet::new();
        for backend in self.backends.values().filter(|backend| backend.is_at_home_in(subcluster)) {
            for homes in backend.homes().iter().filter(|homes| homes.contains(&subcluster)) {
                for gpu in &backend.gpus {
                    if checked.insert((homes.clone(), &gpu.kind, gpu.memory_bytes)) {
                        let held = self.specs_held_by(homes).filter(|spec| spec.name != more.name);
                        let (held, name): (Vec<_>, _) = (held.chain([more]).collect(), self.name_of(subcluster));
                        memory_need(&held, &gpu.kind, name)?.fits(name, &gpu.kind, gpu.memory_bytes)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the backend's GPUs can hold the models of all these sub-clusters at the same time.
    pub(crate) fn check_backend_fits(&self, backend: &Backend, homes: &[SubclusterId]) -> Result<(), Refusal> {
        let held: Vec<_> = self.specs_held_by(homes).collect();
        self.check_specs_fit(backend, homes, &held)
    }

    /// As [`check_backend_fits`](Self::check_backend_fits), with the models of the sub-clusters given.
    pub(crate) fn check_specs_fit(
        &self,
        backend: &Backend,
        homes: &[SubclusterId],
        held: &[&ModelSpec],
    ) -> Result<(), Refusal> {
        let name = homes.last().map_or("", |&home| self.name_of(home));
        let fits = |gpu: &Gpu| memory_need(held, &gpu.kind, name)?.fits(name, &gpu.kind, gpu.memory_bytes);
        backend.gpus.iter().try_for_each(fits)
    }

    /// Models by the sub-clusters that hold them. For callers that need them for each sub-cluster, since
    /// [`ClusterState::check_backend_fits`] walks all models.
    pub(crate) fn models_by_home(&self) -> BTreeMap<SubclusterId, Vec<(ModelId, &ModelSpec)>> {
        let mut by_home: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (&id, model) in &self.models {
            let moving = model.moving.into_iter().flat_map(|moving| [moving.from, moving.to]);
            let homes: BTreeSet<_> = moving.chain([model.subcluster]).filter(|&home| model.is_held_by(home)).collect();
            for home in homes {
                by_home.entry(home).or_default().push((id, &model.spec));
            }
        }
        by_home
    }

    fn specs_held_by(&self, homes: &[SubclusterId]) -> impl Iterator<Item = &ModelSpec> {
        self.models.values().filter(|model| homes.iter().any(|&home| model.is_held_by(home))).map(|model| &model.spec)
    }

    fn name_of(&self, subcluster: SubclusterId) -> &str {
        self.subclusters.get(&subcluster).map_or("", |entry| &entry.name)
    }
}
