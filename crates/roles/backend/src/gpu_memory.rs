//! The shares of models in one GPU's memory; a model that does not fit is refused with an explanation.

use std::collections::{BTreeMap, BTreeSet};

use symphony_executor::MemoryUse;
use symphony_types::{CutDigest, ModelId};

const MB: u64 = 1 << 20;

/// The memory of one GPU and its shares. Batches run one after another, so only the largest of their needs counts.
#[derive(Clone, Debug)]
pub(crate) struct GpuMemory {
    /// Bytes; 0 if unlimited or unknown.
    bytes: u64,
    models: BTreeMap<ModelId, MemoryUse>,
    /// Trunks that models share: each counts once, for as long as one of its models has a share.
    trunks: BTreeMap<CutDigest, Trunk>,
}

#[derive(Clone, Debug)]
struct Trunk {
    memory: MemoryUse,
    models: BTreeSet<ModelId>,
}

impl GpuMemory {
    pub(crate) const fn new(bytes: u64) -> Self {
        Self { bytes, models: BTreeMap::new(), trunks: BTreeMap::new() }
    }

    /// Gives a model a share in place of the one it had; `source` says where the numbers come from.
    ///
    /// # Errors
    /// If it does not fit beside the others. It has no share then.
    pub(crate) fn take(&mut self, model: ModelId, needs: MemoryUse, source: &str) -> Result<(), String> {
        self.release(model);
        self.add(model, needs, source)
    }

    /// As [`take`](Self::take), for a model that is loaded in parts: it needs that for its suffix, and shares the
    /// trunk.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn take_in_family(
        &mut self,
        model: ModelId,
        needs: MemoryUse,
        (digest, trunk): (CutDigest, MemoryUse),
        source: &str,
    ) -> Result<(), String> {
        self.release(model);
        let of_trunk = self.trunks.entry(digest).or_insert_with(|| Trunk { memory: trunk, models: BTreeSet::new() });
        of_trunk.memory = trunk;
        of_trunk.models.insert(model);
        let added = self.add(model, needs, source);
        if added.is_err() {
            self.release(model);
        }
        added
    }

    /// The trunks that models share here.
    pub(crate) fn trunks(&self) -> impl Iterator<Item = (CutDigest, MemoryUse)> {
        self.trunks.iter().map(|(&digest, trunk)| (digest, trunk.memory))
    }

    fn add(&mut self, model: ModelId, needs: MemoryUse, source: &str) -> Result<(), String> {
        let others = self.needed();
        if self.bytes > 0 && needed(self.parts().chain([needs])) > self.bytes {
            let [loaded, batch, bytes, others] =
                [needs.static_bytes, needs.dynamic_bytes, self.bytes, others].map(|bytes| bytes.div_ceil(MB));
            let count = self.models.len();
            return Err(format!(
                "by {source} it takes {loaded} MB and its batches {batch} MB more; the GPU has {bytes} MB, of which its {count} \
                 other models take {others} MB"
            ));
        }
        self.models.insert(model, needs);
        Ok(())
    }

    pub(crate) fn release(&mut self, model: ModelId) {
        self.models.remove(&model);
        self.trunks.retain(|_, trunk| {
            trunk.models.remove(&model);
            !trunk.models.is_empty()
        });
    }

    fn needed(&self) -> u64 {
        needed(self.parts())
    }

    fn parts(&self) -> impl Iterator<Item = MemoryUse> {
        // The memory of a trunk's batches comes on top of that of a suffix's.
        let whole = |trunk: &Trunk| MemoryUse {
            static_bytes: trunk.memory.static_bytes.saturating_add(trunk.memory.dynamic_bytes),
            dynamic_bytes: 0,
        };
        self.models.values().copied().chain(self.trunks.values().map(whole))
    }
}

fn needed(parts: impl Iterator<Item = MemoryUse>) -> u64 {
    let (static_bytes, batch) = parts.fold((0_u64, 0), |(static_bytes, batch), part| {
        (static_bytes.saturating_add(part.static_bytes), part.dynamic_bytes.max(batch))
    });
    static_bytes.saturating_add(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mb(loaded: u64, batch: u64) -> MemoryUse {
        MemoryUse { static_bytes: loaded * MB, dynamic_bytes: batch * MB }
    }

    #[test]
    fn static_memory_adds_up_and_of_batches_the_largest_counts() {
        let mut gpu = GpuMemory::new(100 * MB);
        let [a, b, c] = [1, 2, 3].map(ModelId::new);
        assert_eq!(gpu.take(a, mb(30, 20), "profile"), Ok(()));
        assert_eq!(gpu.take(b, mb(40, 30), "profile"), Ok(()), "30 + 40 + 30");
        let refusal = gpu.take(c, mb(1, 0), "measurement").unwrap_err();
        assert_eq!(
            refusal,
            "by measurement it takes 1 MB and its batches 0 MB more; the GPU has 100 MB, of which its 2 other models take 100 MB"
        );
        gpu.release(b);
        assert_eq!(gpu.take(c, mb(50, 20), "profile"), Ok(()));
        assert!(gpu.take(c, mb(51, 20), "measurement").is_err(), "it is counted once");
        assert_eq!(gpu.needed(), 50 * MB, "whoever is refused has no part any more");
    }

    #[test]
    fn a_trunk_counts_once_and_as_long_as_one_of_its_models_stays() {
        let mut gpu = GpuMemory::new(100 * MB);
        let (trunk, [a, b, c]) = ((CutDigest::new(7), mb(50, 10)), [1, 2, 3].map(ModelId::new));
        assert_eq!(gpu.take(a, mb(70, 20), "profile"), Ok(()), "whole");
        assert_eq!(gpu.take_in_family(a, mb(10, 5), trunk, "measurement"), Ok(()), "in parts, in place of the whole");
        assert_eq!(gpu.needed(), 75 * MB);
        assert_eq!(gpu.take_in_family(b, mb(20, 5), trunk, "measurement"), Ok(()));
        assert_eq!(gpu.needed(), 95 * MB);
        let refusal = gpu.take_in_family(c, mb(6, 0), trunk, "measurement").unwrap_err();
        assert!(refusal.ends_with("its 2 other models take 95 MB"), "{refusal}");
        gpu.release(a);
        assert_eq!((gpu.needed(), gpu.trunks().count()), (85 * MB, 1));
        gpu.release(b);
        assert_eq!((gpu.needed(), gpu.trunks().count()), (0, 0));
    }

    #[test]
    fn without_a_limit_everything_fits_and_nothing_overflows() {
        let mut gpu = GpuMemory::new(0);
        assert_eq!(gpu.take(ModelId::new(1), mb(u64::MAX / MB, u64::MAX / MB), "profile"), Ok(()));
        let mut gpu = GpuMemory::new(u64::MAX - 1);
        let all = MemoryUse { static_bytes: u64::MAX, dynamic_bytes: u64::MAX };
        assert!(gpu.take(ModelId::new(1), all, "profile").is_err());
    }
}
