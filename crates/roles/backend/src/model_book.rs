//! The states of a backend's models, for metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use symphony_executor::MemoryUse;
use symphony_types::ModelId;

/// The state of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BookState {
    Loading,
    Ready,
    Failed,
}

impl BookState {
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
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) state: BookState,
    /// By GPU.
    memory: BTreeMap<usize, MemoryUse>,
}

impl Line {
    /// Measured memory on all GPUs together; none if nothing was measured.
    pub(crate) fn memory(&self) -> Option<MemoryUse> {
        let sum = |a: MemoryUse, b: MemoryUse| MemoryUse {
            static_bytes: a.static_bytes.saturating_add(b.static_bytes),
            dynamic_bytes: a.dynamic_bytes.saturating_add(b.dynamic_bytes),
        };
        self.memory.values().copied().reduce(sum)
    }
}

/// The models of a backend; written by loads and runs, read at each scrape.
#[derive(Debug, Default)]
pub(crate) struct ModelBook(Mutex<BTreeMap<ModelId, Line>>);

impl ModelBook {
    /// Sets the state of a model; its measurements are forgotten when it begins to load.
    pub(crate) fn stands(&self, model: ModelId, name: &str, state: BookState) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let line = lines.entry(model).or_insert_with(|| Line { name: name.to_owned(), state, memory: BTreeMap::new() });
        line.state = state;
    }

    /// Sets the measured memory of a model on the GPU at this place.
    pub(crate) fn measured(&self, model: ModelId, gpu: usize, memory: MemoryUse) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A batch may end after its model has left.
        if let Some(line) = lines.get_mut(&model) {
            line.memory.insert(gpu, memory);
        }
    }

    pub(crate) fn gone(&self, model: ModelId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&model);
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_summed_over_gpus_and_forgotten_with_its_model() {
        let book = ModelBook::default();
        let (model, some) = (ModelId::new(1), MemoryUse { static_bytes: 5, dynamic_bytes: 1 });
        book.measured(model, 0, some);
        assert!(book.lines().is_empty(), "of a model that is not there");
        book.stands(model, "m", BookState::Loading);
        assert_eq!(book.lines()[0].memory(), None);
        book.measured(model, 0, some);
        book.measured(model, 1, some);
        book.stands(model, "m", BookState::Ready);
        let line = &book.lines()[0];
        assert_eq!((line.name.as_str(), line.state), ("m", BookState::Ready));
        assert_eq!(line.memory(), Some(MemoryUse { static_bytes: 10, dynamic_bytes: 2 }));
        book.gone(model);
        assert!(book.lines().is_empty());
    }
}
