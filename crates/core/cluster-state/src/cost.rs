//! The cost of moves: bytes to load, and memory for two copies meanwhile.

use std::collections::BTreeMap;

use symphony_types::{BackendId, SubclusterId};

use crate::epoch_plan::{MoveCost, Moved, WantedMove};
use crate::limits::LOAD_MEASURED_BYTES_MIN;
use crate::models::{MemoryNeed, memory_need};
use crate::state::{Backend, ClusterState};
use symphony_replicated::ModelSpec;

impl ClusterState {
    /// The cost of each of these moves, and of all together. Backends without measurements load `load_bytes_per_s`.
    pub(crate) fn costs_of(&self, moves: &[WantedMove], load_bytes_per_s: u64) -> (Vec<MoveCost>, MoveCost) {
        let mut by_backend: BTreeMap<BackendId, MoveCost> = BTreeMap::new();
        let mut costs = Vec::with_capacity(moves.len());
        for wanted in moves {
            let mut cost = MoveCost::default();
            for (id, of) in self.loads_of(wanted) {
                let of = self.timed(id, of, load_bytes_per_s);
                cost.add(of);
                let sum = by_backend.entry(id).or_default();
                sum.bytes = sum.bytes.saturating_add(of.bytes);
                sum.backend_bytes = sum.backend_bytes.saturating_add(of.backend_bytes);
                sum.backend_ms = sum.backend_ms.saturating_add(of.backend_ms);
                sum.gpu_bytes = sum.gpu_bytes.saturating_add(of.gpu_bytes);
            }
            costs.push(cost);
        }
        let mut all = MoveCost::default();
        by_backend.into_values().for_each(|of| all.add(of));
        (costs, all)
    }

    /// This cost with the backend's loading time.
    fn timed(&self, id: BackendId, cost: MoveCost, load_bytes_per_s: u64) -> MoveCost {
        let measured = self.backends.get(&id).map_or(0, |backend| backend.load_bytes_per_s);
        let per_second = if measured > 0 { measured } else { load_bytes_per_s };
        let backend_ms = match u128::from(per_second) {
            0 => 0,
            per_second => (u128::from(cost.backend_bytes) * 1000).div_ceil(per_second),
        };
        MoveCost { backend_ms: u64::try_from(backend_ms).unwrap_or(u64::MAX), ..cost }
    }

    /// The bytes that a move makes each backend load.
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

/// The cost of loading some models beside others, by GPU kind.
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

    /// Bytes loaded on a GPU of this kind, and the growth of its used memory.
    fn on(&self, kind: &str) -> (u64, u64) {
        let both: Vec<&ModelSpec> = self.own.iter().chain(&self.more).copied().collect();
        let bytes = |specs: &[&ModelSpec]| memory_need(specs, kind, "").map_or(0, MemoryNeed::bytes);
        let profiles = self.more.iter().filter_map(|spec| spec.profiles.get(kind));
        let loaded = profiles.fold(0, |sum: u64, profile| sum.saturating_add(profile.static_memory_bytes));
        (loaded, bytes(&both).saturating_sub(bytes(&self.own)))
    }
}

/// The weight of earlier measurements against the newest one: three to one.
const LOAD_MEMORY: u128 = 3;

impl Backend {
    /// Records that the backend loaded this many bytes in this time. Small amounts and zero times are ignored.
    pub(crate) fn measure_load(&mut self, bytes: u64, took_ns: u64) {
        let per_second = (u128::from(bytes) * 1_000_000_000).checked_div(took_ns.into());
        let Some(newest) = per_second.filter(|_| bytes >= LOAD_MEASURED_BYTES_MIN) else { return };
        let smoothed = match u128::from(self.load_bytes_per_s) {
            0 => newest,
            before => (LOAD_MEMORY * before + newest) / (LOAD_MEMORY + 1),
        };
        // At least 1: zero means that nothing was measured.
        self.load_bytes_per_s = u64::try_from(smoothed).unwrap_or(u64::MAX).max(1);
    }
}

impl Backend {
    /// Bytes that the backend loads to hold a model on all its GPUs.
    pub(crate) fn bytes_to_load(&self, model: &ModelSpec) -> u64 {
        let profiles = self.gpus.iter().filter_map(|gpu| model.profiles.get(&gpu.kind));
        profiles.fold(0, |sum: u64, profile| sum.saturating_add(profile.static_memory_bytes))
    }
}

impl MoveCost {
    /// Combines it with the cost on another backend.
    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.backend_bytes = self.backend_bytes.max(other.backend_bytes);
        self.backend_ms = self.backend_ms.max(other.backend_ms);
        self.gpu_bytes = self.gpu_bytes.max(other.gpu_bytes);
    }
}
