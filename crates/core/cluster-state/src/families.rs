//! Families: models of a sub-cluster that begin with the same trunk (docs/adr/0045-prefix-batching.md). Backends report
//! where the models that they loaded can be cut; that determines which models share a trunk.

use std::collections::BTreeMap;

use symphony_replicated::ModelSource;
use symphony_types::{BackendId, BootId, CutDigest, Level, ModelId, SubclusterId};

use crate::effect::Effect;
use crate::refusal::Refusal;
use crate::reply::{Outcome, Reply};
use crate::state::ClusterState;
use crate::trunk::Trunk;

impl ClusterState {
    /// The trunks of models on which a backend has reported.
    #[must_use]
    pub const fn trunks(&self) -> &BTreeMap<ModelId, Trunk> {
        &self.trunks
    }

    /// The model and those that share its trunk; empty if none does.
    #[must_use]
    pub fn family_of(&self, model: ModelId) -> Vec<ModelId> {
        let of = |id: ModelId| Some((self.models.get(&id)?.subcluster, self.trunks.get(&id)?.shared?));
        let Some(family) = of(model) else { return Vec::new() };
        self.trunks.keys().copied().filter(|&id| of(id) == Some(family)).collect()
    }

    /// Below level 3 neither a log nor a snapshot has room for trunks.
    pub(crate) fn has_families(&self, field: &str) -> Result<(), Refusal> {
        if self.level >= Level::WITH_FAMILIES {
            return Ok(());
        }
        // By number: refusals of operations are part of the state.
        let (needed, level) = (Level::WITH_FAMILIES.get(), self.level.get());
        let reason = format!("the cluster is at level {level}; expected level {needed} (symphony upgrade finish)");
        Err(Refusal::Invalid { field: field.into(), reason })
    }

    /// A backend reports where a model can be cut. A cut that another backend has not found is dropped, so reports in
    /// any order lead to the same result: a backend whose model answers differently in parts takes the cut back for
    /// all.
    pub(crate) fn report_cuts(
        &mut self,
        id: ModelId,
        backend: BackendId,
        boot: BootId,
        cuts: &[CutDigest],
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        self.has_families("cuts")?;
        let entry = self.backends.get(&backend).ok_or(Refusal::UnknownBackend { backend })?;
        if entry.boot != boot {
            let (what, name) = ("backend".into(), entry.name.clone());
            return Err(Refusal::StaleBoot { what, name, named: boot, current: entry.boot });
        }
        let model = self.models.get(&id).ok_or(Refusal::UnknownModel { model: id })?;
        if !entry.homes().iter().flatten().any(|&home| model.is_held_by(home)) {
            return Err(Refusal::NotInSubcluster { backend, model: id });
        }
        if !matches!(model.spec.source, ModelSource::Onnx(_)) {
            let reason = format!("model {} shares its trunk with no other; expected none", model.spec.name);
            return Err(Refusal::Invalid { field: "cuts".into(), reason });
        }
        let name = model.spec.name.clone();
        let before = self.trunks.get(&id);
        let kept = before.map_or_else(
            || cuts.to_vec(),
            |before| before.cuts.iter().filter(|cut| cuts.contains(cut)).copied().collect(),
        );
        if before.is_some_and(|before| before.cuts == kept) {
            return Ok(Reply::Done);
        }
        let shared_before = before.and_then(|before| before.shared);
        let shared = shared_before.filter(|cut| kept.contains(cut));
        effects.push(Effect::CutsReported { model: id, name: name.clone(), backend, cuts: kept.len() as u64 });
        if let Some(trunk) = shared_before.filter(|_| shared.is_none()) {
            effects.push(Effect::FamilyLeft { model: id, name, trunk });
        }
        self.trunks.insert(id, Trunk { cuts: kept, shared });
        Ok(Reply::Done)
    }

    /// Lets models leave families in which they are alone, and join or form others, after a command that bears on them.
    /// A model in a family stays: a deeper trunk with a newcomer alone would cost the others theirs.
    pub(crate) fn refresh_families(&mut self, effects: &mut Vec<Effect>) {
        let mut open: Vec<ModelId> = effects.iter().filter_map(Effect::may_change_family_of).collect();
        if open.is_empty() || self.trunks.is_empty() {
            return;
        }
        self.trunks.retain(|id, _| self.models.contains_key(id));
        let shrinks = |effect: &Effect| {
            matches!(effect, Effect::ModelUnloaded { .. } | Effect::ModelSwitched { .. } | Effect::FamilyLeft { .. })
        };
        if effects.iter().any(shrinks) {
            open.extend(self.leave_alone(effects));
        }
        open.sort_unstable();
        open.dedup();
        for model in open {
            self.join(model, effects);
        }
    }

    /// Ends families of one; returns those who were in them.
    fn leave_alone(&mut self, effects: &mut Vec<Effect>) -> Vec<ModelId> {
        let mut families: BTreeMap<(SubclusterId, CutDigest), Vec<ModelId>> = BTreeMap::new();
        for (&id, trunk) in &self.trunks {
            if let (Some(model), Some(shared)) = (self.models.get(&id), trunk.shared) {
                families.entry((model.subcluster, shared)).or_default().push(id);
            }
        }
        let alone = families.into_iter().filter_map(|((_, trunk), members)| match members[..] {
            [id] => Some((id, trunk)),
            _ => None,
        });
        let alone: Vec<_> = alone.collect();
        for &(id, trunk) in &alone {
            self.share(id, None);
            let name = self.models.get(&id).map(|model| model.spec.name.clone()).unwrap_or_default();
            effects.push(Effect::FamilyLeft { model: id, name, trunk });
        }
        alone.into_iter().map(|(id, _)| id).collect()
    }

    /// Lets a model that shares nothing share the deepest trunk that a family of its sub-cluster has, or that it has in
    /// common with others that share nothing.
    fn join(&mut self, id: ModelId, effects: &mut Vec<Effect>) {
        let Some(own) = self.trunks.get(&id).filter(|own| own.shared.is_none() && !own.cuts.is_empty()) else { return };
        let Some(home) = self.models.get(&id).map(|model| model.subcluster) else { return };
        let depths: BTreeMap<CutDigest, usize> = own.cuts.iter().copied().zip(0..).collect();
        let others = self.trunks.iter().filter(|(other, _)| **other != id);
        let others = others.filter(|(other, _)| self.models.get(other).is_some_and(|model| model.subcluster == home));
        // At each depth, the models that have the trunk already, or could have it.
        let mut partners: BTreeMap<usize, Vec<ModelId>> = BTreeMap::new();
        for (&other, trunk) in others {
            let offers: &[CutDigest] = if trunk.shared.is_some() { &[] } else { trunk.cuts.as_slice() };
            for cut in trunk.shared.iter().chain(offers) {
                if let Some(&depth) = depths.get(cut) {
                    partners.entry(depth).or_default().push(other);
                }
            }
        }
        let Some((depth, partners)) = partners.pop_last() else { return };
        let Some(&cut) = own.cuts.get(depth) else { return };
        for member in partners.into_iter().chain([id]) {
            if self.trunks.get(&member).is_some_and(|trunk| trunk.shared.is_none()) {
                self.share(member, Some(cut));
                let name = self.models.get(&member).map(|model| model.spec.name.clone()).unwrap_or_default();
                effects.push(Effect::FamilyJoined { model: member, name, trunk: cut });
            }
        }
    }

    fn share(&mut self, id: ModelId, shared: Option<CutDigest>) {
        if let Some(trunk) = self.trunks.get_mut(&id) {
            trunk.shared = shared;
        }
    }
}
