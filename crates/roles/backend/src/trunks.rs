//! The trunks in the memory of this backend's GPUs, which the models of a family share
//! (docs/adr/0045-prefix-batching.md).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use symphony_executor::{CpuLoader, FamilyError, FamilyMember, PartLoader, SharedTrunk, SharingExecutor as _};
use symphony_executor_gpu::CudaLoader;
use symphony_types::CutDigest;

/// The trunks that are loaded. A backend has them on CPUs or on GPUs, by its engine.
#[derive(Debug, Default)]
pub(crate) struct Trunks {
    pub(crate) on_cpus: TrunksOf<CpuLoader>,
    pub(crate) on_gpus: TrunksOf<CudaLoader>,
}

/// By place of the GPU, and trunk.
type Loaded<L> = HashMap<(usize, CutDigest), SharedTrunk<L>>;

/// Trunks of one loader, each as long as a model runs through it.
#[derive(Debug)]
pub(crate) struct TrunksOf<L: PartLoader>(Mutex<Loaded<L>>);

impl Trunks {
    /// Whether it is loaded on the GPU at this place.
    pub(crate) fn has(&self, gpu: usize, trunk: CutDigest) -> bool {
        self.on_cpus.has(gpu, trunk) || self.on_gpus.has(gpu, trunk)
    }
}

impl<L: PartLoader> Default for TrunksOf<L> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<L: PartLoader> TrunksOf<L> {
    /// Lets a model share the trunk that is loaded on its GPU; if there is none, its own is for those that follow.
    ///
    /// # Errors
    /// If the model cannot share what is loaded.
    pub(crate) fn share(&self, gpu: usize, member: FamilyMember<L>) -> Result<FamilyMember<L>, FamilyError> {
        let place = (gpu, member.trunk());
        let mut loaded = self.loaded();
        loaded.retain(|_, trunk| trunk.is_loaded());
        let Some(trunk) = loaded.get(&place).cloned() else {
            loaded.insert(place, member.shared_trunk());
            return Ok(member);
        };
        // Joining waits for the batch that runs through the trunk; asking what is loaded does not.
        drop(loaded);
        member.join(&trunk)
    }

    fn has(&self, gpu: usize, trunk: CutDigest) -> bool {
        self.loaded().get(&(gpu, trunk)).is_some_and(SharedTrunk::is_loaded)
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded<L>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
