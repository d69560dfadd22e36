//! Records before they are written to a tape: appended by the decision thread, sealed and written by another.

use symphony_scheduler::{
    ClusterActions, ClusterFacts, ClusterInput, DataDelay, ModelActions, ModelInput, ModelQueueConfig, PoolInput,
    PoolSignal, RankAction, RankInput,
};
use symphony_types::{FamilyProfile, GpuClass, LatencyProfile, ModelId, Time};

use crate::codec::{Coded, put_list, put_text};
use crate::record::{MODEL_NAME_BYTES_MAX, TapeEnd, tag};

/// Length and checksum.
pub(crate) const CHUNK_HEADER_BYTES: usize = 8;

/// Complete records, with space for their header in front.
///
/// It is reused: appending to a chunk that has grown does not allocate.
#[derive(Clone, Debug)]
pub struct Chunk {
    bytes: Vec<u8>,
}

impl Chunk {
    /// An empty chunk with room for `capacity` bytes of records.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(CHUNK_HEADER_BYTES + capacity);
        bytes.extend_from_slice(&[0; CHUNK_HEADER_BYTES]);
        Self { bytes }
    }

    /// Bytes it takes on a tape.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.len() == CHUNK_HEADER_BYTES
    }

    /// Removes the records and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.truncate(CHUNK_HEADER_BYTES);
    }

    /// Truncates to the first `len` bytes: removes a record that exceeds the tape's limit.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len.max(CHUNK_HEADER_BYTES));
    }

    /// The bytes for the tape, with length and checksum.
    pub fn seal(&mut self) -> &[u8] {
        let (header, records) = self.bytes.split_at_mut(CHUNK_HEADER_BYTES);
        header.copy_from_slice(&chunk_header(records));
        &self.bytes
    }

    /// Introduces a [`ModelQueue`](symphony_scheduler::ModelQueue), which replaces the previous object of this number.
    pub fn model(&mut self, object: u32, model: ModelId, name: &str, ordinal: u32, config: &ModelQueueConfig) {
        self.bytes.push(tag::MODEL);
        object.put(&mut self.bytes);
        model.put(&mut self.bytes);
        put_text(name, MODEL_NAME_BYTES_MAX, &mut self.bytes);
        ordinal.put(&mut self.bytes);
        config.put(&mut self.bytes);
    }

    /// Introduces a [`ModelQueue`](symphony_scheduler::ModelQueue) of models that share a trunk, by their ids in
    /// ascending order, with their profiles by class of GPU. It replaces the previous object of this number.
    pub fn family(
        &mut self,
        object: u32,
        models: &[(ModelId, &str)],
        ordinal: u32,
        config: &ModelQueueConfig,
        profiles: &[(GpuClass, FamilyProfile)],
    ) {
        self.bytes.push(tag::FAMILY);
        object.put(&mut self.bytes);
        models.len().put(&mut self.bytes);
        for (model, name) in models {
            model.put(&mut self.bytes);
            put_text(name, MODEL_NAME_BYTES_MAX, &mut self.bytes);
        }
        ordinal.put(&mut self.bytes);
        config.put(&mut self.bytes);
        profiles.len().put(&mut self.bytes);
        for (class, profile) in profiles {
            class.put(&mut self.bytes);
            profile.put(&mut self.bytes);
        }
    }

    /// Introduces a [`GpuRanker`](symphony_scheduler::GpuRanker).
    pub fn ranker(&mut self, object: u32, models: u32, gpus: u32) {
        self.bytes.push(tag::RANKER);
        object.put(&mut self.bytes);
        models.put(&mut self.bytes);
        gpus.put(&mut self.bytes);
    }

    /// Introduces a [`PoolControl`](symphony_scheduler::PoolControl).
    pub fn pool(&mut self, object: u32) {
        self.bytes.push(tag::POOL);
        object.put(&mut self.bytes);
    }

    /// Introduces a policy that decides for the whole sub-cluster, by its canonical text.
    pub fn cluster(&mut self, object: u32, policy: &str, facts: &ClusterFacts) {
        self.bytes.push(tag::CLUSTER);
        object.put(&mut self.bytes);
        policy.len().put(&mut self.bytes);
        self.bytes.extend_from_slice(policy.as_bytes());
        facts.put(&mut self.bytes);
    }

    /// Says which model the policy knows as `slot` from here on.
    pub fn cluster_model(&mut self, object: u32, slot: u32, model: ModelId, name: &str) {
        self.bytes.push(tag::CLUSTER_MODEL);
        object.put(&mut self.bytes);
        slot.put(&mut self.bytes);
        model.put(&mut self.bytes);
        put_text(name, MODEL_NAME_BYTES_MAX, &mut self.bytes);
    }

    /// A decision of a policy for the whole sub-cluster: all orders that the step appended to an empty list.
    pub fn cluster_step(&mut self, object: u32, now: Time, input: &ClusterInput, orders: &ClusterActions) {
        self.bytes.push(tag::CLUSTER_STEP);
        object.put(&mut self.bytes);
        now.put(&mut self.bytes);
        input.put(&mut self.bytes);
        self.with_length(|out| orders.put(out));
    }

    /// Records that an object was removed.
    pub fn gone(&mut self, object: u32) {
        self.bytes.push(tag::GONE);
        object.put(&mut self.bytes);
    }

    /// A profile was set in a model's queue.
    pub fn profile(&mut self, object: u32, class: GpuClass, profile: &LatencyProfile) {
        self.bytes.push(tag::PROFILE);
        object.put(&mut self.bytes);
        class.put(&mut self.bytes);
        profile.put(&mut self.bytes);
    }

    /// The input delay was set in a model's queue.
    pub fn data_delay(&mut self, object: u32, data: &DataDelay) {
        self.bytes.push(tag::DATA_DELAY);
        object.put(&mut self.bytes);
        data.put(&mut self.bytes);
    }

    /// A decision of a model's queue: all actions that the step appended to an empty list.
    pub fn model_step(&mut self, object: u32, now: Time, input: &ModelInput, actions: &ModelActions) {
        self.bytes.push(tag::MODEL_STEP);
        object.put(&mut self.bytes);
        now.put(&mut self.bytes);
        input.put(&mut self.bytes);
        self.with_length(|out| actions.put(out));
    }

    /// A decision of a ranker.
    pub fn rank_step(&mut self, object: u32, now: Time, input: &RankInput, actions: &[RankAction]) {
        self.bytes.push(tag::RANK_STEP);
        object.put(&mut self.bytes);
        now.put(&mut self.bytes);
        input.put(&mut self.bytes);
        self.with_length(|out| put_list(actions, out));
    }

    /// A decision of a pool control.
    pub fn pool_step(&mut self, object: u32, now: Time, input: &PoolInput, signal: Option<PoolSignal>) {
        self.bytes.push(tag::POOL_STEP);
        object.put(&mut self.bytes);
        now.put(&mut self.bytes);
        input.put(&mut self.bytes);
        self.with_length(|out| signal.put(out));
    }

    /// The tape ends here.
    pub fn end(&mut self, end: TapeEnd) {
        self.bytes.push(tag::END);
        end.put(&mut self.bytes);
    }

    /// Actions have a length prefix, so that they can be compared without decoding.
    fn with_length(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        put(&mut self.bytes);
        let length = (self.bytes.len() - at - 4) as u32;
        self.bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// `payload` as a chunk.
pub(crate) fn sealed(payload: &[u8]) -> Vec<u8> {
    let mut out = chunk_header(payload).to_vec();
    out.extend_from_slice(payload);
    out
}

fn chunk_header(payload: &[u8]) -> [u8; CHUNK_HEADER_BYTES] {
    let mut header = [0; CHUNK_HEADER_BYTES];
    header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[4..].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    header
}
