//! What a move costs: bytes to load, and memory that is taken twice meanwhile.

use std::collections::BTreeMap;

use rkyv::{Archive, Deserialize, Serialize};
use symphony_types::{BackendId, SubclusterId};

use crate::models::{MemoryNeed, memory_need};
use crate::plan::{Moved, WantedMove};
use crate::spec::ModelSpec;
use crate::state::{Backend, ClusterState};

/// What a move costs.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveCost {
    /// Bytes of models that are loaded, on all GPUs together.
    pub bytes: u64,
    /// The most that one backend loads: divided by what it loads per second, the time of the move.
    pub backend_bytes: u64,
    /// Memory that is taken on a GPU beside what it holds now, the most of all GPUs.
    pub gpu_bytes: u64,
}

impl ClusterState {
    /// What each of these moves costs, and all of them together.
    pub(crate) fn costs_of(&self, moves: &[WantedMove]) -> (Vec<MoveCost>, MoveCost) {
        let mut by_backend: BTreeMap<BackendId, MoveCost> = BTreeMap::new();
        let mut costs = Vec::with_capacity(moves.len());
        for wanted in moves {
            let mut cost = MoveCost::default();
            for (id, of) in self.loads_of(wanted) {
                cost.add(of);
                let sum = by_backend.entry(id).or_default();
                sum.bytes = sum.bytes.saturating_add(of.bytes);
                sum.backend_bytes = sum.backend_bytes.saturating_add(of.backend_bytes);
                sum.gpu_bytes = sum.gpu_bytes.saturating_add(of.gpu_bytes);
            }
            costs.push(cost);
        }
        let mut all = MoveCost::default();
        by_backend.into_values().for_each(|of| all.add(of));
        (costs, all)
    }

    /// What a move makes each backend load.
    fn loads_of(&self, wanted: &WantedMove) -> Vec<(BackendId, MoveCost)> {
        match wanted.what {
            Moved::Model(id) => {
                let Some(model) = self.models.get(&id) else { return Vec::new() };
                let mut loads =
                    Loads { own: self.served_by(wanted.to), more: vec![&model.spec], by_kind: BTreeMap::new() };
                let there = self.backends.iter().filter(|(_, b)| b.subcluster == wanted.to);
                there.map(|(&id, backend)| (id, loads.of(backend))).collect()
            }
            Moved::Backend(id) => {
                let Some(backend) = self.backends.get(&id) else { return Vec::new() };
                let (own, more) = (self.served_by(backend.subcluster), self.served_by(wanted.to));
                vec![(id, Loads { own, more, by_kind: BTreeMap::new() }.of(backend))]
            }
        }
    }

    fn served_by(&self, subcluster: SubclusterId) -> Vec<&ModelSpec> {
        self.models_of(subcluster).map(|model| &model.spec).collect()
    }
}

/// What loading some models beside others takes, by kind of GPU.
struct Loads<'a> {
    own: Vec<&'a ModelSpec>,
    more: Vec<&'a ModelSpec>,
    by_kind: BTreeMap<&'a str, (u64, u64)>,
}

impl<'a> Loads<'a> {
    fn of(&mut self, backend: &'a Backend) -> MoveCost {
        let mut cost = MoveCost::default();
        for gpu in &backend.gpus {
            let (loaded, beside) = match self.by_kind.get(gpu.kind.as_str()) {
                Some(&known) => known,
                None => {
                    let known = self.on(&gpu.kind);
                    self.by_kind.insert(&gpu.kind, known);
                    known
                }
            };
            cost.bytes = cost.bytes.saturating_add(loaded);
            cost.gpu_bytes = cost.gpu_bytes.max(beside);
        }
        cost.backend_bytes = cost.bytes;
        cost
    }

    /// Bytes that are loaded on a GPU of the kind, and by how much what is taken there grows.
    fn on(&self, kind: &str) -> (u64, u64) {
        let both: Vec<&ModelSpec> = self.own.iter().chain(&self.more).copied().collect();
        let bytes = |specs: &[&ModelSpec]| memory_need(specs, kind, "").map_or(0, MemoryNeed::bytes);
        let profiles = self.more.iter().filter_map(|spec| spec.profiles.get(kind));
        let loaded = profiles.fold(0, |sum: u64, profile| sum.saturating_add(profile.static_memory_bytes));
        (loaded, bytes(&both).saturating_sub(bytes(&self.own)))
    }
}

impl MoveCost {
    /// With what happens on another backend.
    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.backend_bytes = self.backend_bytes.max(other.backend_bytes);
        self.gpu_bytes = self.gpu_bytes.max(other.gpu_bytes);
    }
}
