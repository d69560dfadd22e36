//! The states of a backend's models, for metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use symphony_executor::MemoryUse;
use symphony_types::{CutDigest, ModelId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelState {
    Loading,
    Ready,
    Failed,
}

impl ModelState {
    pub(crate) const ALL: [Self; 3] = [Self::Loading, Self::Ready, Self::Failed];

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }
}

/// A model of the backend.
#[derive(Clone, Debug)]
pub(crate) struct ModelEntry {
    pub(crate) name: String,
    pub(crate) state: ModelState,
    /// By GPU.
    memory: BTreeMap<usize, MemoryUse>,
}

impl ModelEntry {
    /// Measured memory on all GPUs together; none if nothing was measured.
    pub(crate) fn memory(&self) -> Option<MemoryUse> {
        self.memory.values().copied().reduce(sum)
    }
}

pub(crate) const fn sum(a: MemoryUse, b: MemoryUse) -> MemoryUse {
    MemoryUse {
        static_bytes: a.static_bytes.saturating_add(b.static_bytes),
        dynamic_bytes: a.dynamic_bytes.saturating_add(b.dynamic_bytes),
    }
}

/// The models of a backend, and the trunks that they share; written by loads and runs, read at each scrape.
#[derive(Debug, Default)]
pub(crate) struct ModelStates {
    models: Mutex<BTreeMap<ModelId, ModelEntry>>,
    trunks: Mutex<BTreeMap<CutDigest, MemoryUse>>,
}

impl ModelStates {
    /// Sets the state of a model; its measurements are forgotten when it begins to load.
    pub(crate) fn set_state(&self, model: ModelId, name: &str, state: ModelState) {
        let mut entries = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.entry(model).or_insert_with(|| ModelEntry {
            name: name.to_owned(),
            state,
            memory: BTreeMap::new(),
        });
        entry.state = state;
    }

    /// Sets the measured memory of a model on the GPU at this place.
    pub(crate) fn measured(&self, model: ModelId, gpu: usize, memory: MemoryUse) {
        let mut entries = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        // A batch may end after its model has left.
        if let Some(entry) = entries.get_mut(&model) {
            entry.memory.insert(gpu, memory);
        }
    }

    /// Sets the memory of the trunks that models share, on all GPUs together.
    pub(crate) fn set_trunks(&self, trunks: BTreeMap<CutDigest, MemoryUse>) {
        *self.trunks.lock().unwrap_or_else(PoisonError::into_inner) = trunks;
    }

    /// The trunks that models share, with their memory.
    pub(crate) fn trunks(&self) -> BTreeMap<CutDigest, MemoryUse> {
        self.trunks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn remove(&self, model: ModelId) {
        self.models.lock().unwrap_or_else(PoisonError::into_inner).remove(&model);
    }

    pub(crate) fn entries(&self) -> Vec<ModelEntry> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_summed_over_gpus_and_forgotten_with_its_model() {
        let model_states = ModelStates::default();
        let (model, some) = (ModelId::new(1), MemoryUse { static_bytes: 5, dynamic_bytes: 1 });
        model_states.measured(model, 0, some);
        assert!(model_states.entries().is_empty(), "of a model that is not there");
        model_states.set_state(model, "m", ModelState::Loading);
        assert_eq!(model_states.entries()[0].memory(), None);
        model_states.measured(model, 0, some);
        model_states.measured(model, 1, some);
        model_states.set_state(model, "m", ModelState::Ready);
        let entry = &model_states.entries()[0];
        assert_eq!((entry.name.as_str(), entry.state), ("m", ModelState::Ready));
        assert_eq!(entry.memory(), Some(MemoryUse { static_bytes: 10, dynamic_bytes: 2 }));
        model_states.remove(model);
        assert!(model_states.entries().is_empty());
    }
}
