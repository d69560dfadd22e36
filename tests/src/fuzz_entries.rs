//! What parses bytes from outside, each as one function that takes any bytes. The fuzz targets in `tests/fuzz` and the
//! smoke test run the very same functions.
//!
//! Not here: the frames of the log on disk, which no peer writes; property tests in `consensus` damage them.

mod cluster;
mod federation;
mod files;
mod frames;
mod models;
mod problems;
mod replicas;
mod requests;
mod tapes;
mod traces;

pub use cluster::{backup, command, log_entry, snapshot, view};
pub use federation::{federation_answer, federation_command, federation_messages, federation_snapshot};
pub use files::{
    batch_sizes, config, digits_signature, model_config, pipeline, policy, profile, scenario, tenants, transforms,
};
pub use frames::{frames, rdma, ring};
pub use models::onnx_model;
pub use problems::{fleet, sessions, split};
pub use replicas::{heartbeats, raft_message, raft_snapshot};
pub use requests::{grpc_answer, grpc_infer, picture, rest_infer};
pub use tapes::tape;
pub use traces::{azure_functions_2019, azure_functions_2021, azure_llm, blox};

/// Where the headers of the values of replicated states keep their checksum.
const ENVELOPE_CHECKSUM_AT: usize = 8;

/// One parser.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name, and that of its fuzz target.
    pub name: &'static str,
    /// Takes any bytes; panics only for a defect.
    pub run: fn(&[u8]),
    /// Inputs to mutate, which it accepts or which once brought it down.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Every parser that is fuzzed.
pub const ALL: [Entry; 37] = [
    Entry { name: "picture", run: picture, seeds: requests::picture_seeds },
    Entry { name: "frames", run: frames, seeds: frames::frame_seeds },
    Entry { name: "command", run: command, seeds: cluster::command_seeds },
    Entry { name: "log_entry", run: log_entry, seeds: cluster::log_entry_seeds },
    Entry { name: "snapshot", run: snapshot, seeds: cluster::snapshot_seeds },
    Entry { name: "backup", run: backup, seeds: cluster::backup_seeds },
    Entry { name: "scenario", run: scenario, seeds: files::scenario_seeds },
    Entry { name: "policy", run: policy, seeds: files::policy_seeds },
    Entry { name: "config", run: config, seeds: files::config_seeds },
    Entry { name: "profile", run: profile, seeds: files::profile_seeds },
    Entry { name: "batch_sizes", run: batch_sizes, seeds: files::batch_sizes_seeds },
    Entry { name: "model_config", run: model_config, seeds: files::model_config_seeds },
    Entry { name: "pipeline", run: pipeline, seeds: files::pipeline_seeds },
    Entry { name: "transforms", run: transforms, seeds: files::transforms_seeds },
    Entry { name: "grpc_infer", run: grpc_infer, seeds: requests::grpc_infer_seeds },
    Entry { name: "rest_infer", run: rest_infer, seeds: requests::rest_infer_seeds },
    Entry { name: "grpc_answer", run: grpc_answer, seeds: requests::grpc_answer_seeds },
    Entry { name: "view", run: view, seeds: cluster::view_seeds },
    Entry { name: "tape", run: tape, seeds: tapes::tape_seeds },
    Entry { name: "rdma", run: rdma, seeds: frames::rdma_seeds },
    Entry { name: "ring", run: ring, seeds: frames::ring_seeds },
    Entry { name: "federation_command", run: federation_command, seeds: federation::federation_command_seeds },
    Entry { name: "federation_snapshot", run: federation_snapshot, seeds: federation::federation_snapshot_seeds },
    Entry { name: "federation_answer", run: federation_answer, seeds: federation::federation_answer_seeds },
    Entry { name: "federation_messages", run: federation_messages, seeds: federation::federation_messages_seeds },
    Entry { name: "raft_message", run: raft_message, seeds: replicas::raft_message_seeds },
    Entry { name: "raft_snapshot", run: raft_snapshot, seeds: replicas::raft_snapshot_seeds },
    Entry { name: "heartbeats", run: heartbeats, seeds: replicas::heartbeats_seeds },
    Entry { name: "onnx_model", run: onnx_model, seeds: models::onnx_model_seeds },
    Entry { name: "tenants", run: tenants, seeds: files::tenants_seeds },
    Entry { name: "azure_functions_2019", run: azure_functions_2019, seeds: traces::azure_functions_2019_seeds },
    Entry { name: "azure_functions_2021", run: azure_functions_2021, seeds: traces::azure_functions_2021_seeds },
    Entry { name: "azure_llm", run: azure_llm, seeds: traces::azure_llm_seeds },
    Entry { name: "blox", run: blox, seeds: traces::blox_seeds },
    Entry { name: "fleet", run: fleet, seeds: problems::fleet_seeds },
    Entry { name: "sessions", run: sessions, seeds: problems::sessions_seeds },
    Entry { name: "split", run: split, seeds: problems::split_seeds },
];

fn with_envelope_checksum(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some((head, body)) = bytes.split_first_chunk_mut::<16>() {
        head[ENVELOPE_CHECKSUM_AT..][..4].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    }
    bytes
}

/// Bytes of a mutation. No seed is longer, or nothing behind that would ever be tested.
pub const MUTATION_BYTES_MAX: usize = 4096;

/// A mutation of `seed`, as fuzzers make them: flipped bits, bytes changed, removed, inserted, repeated, or all anew.
#[must_use]
pub fn mutate(seed: &[u8], random: &mut impl rand::Rng) -> Vec<u8> {
    const STEPS_MAX: usize = 8;
    if random.random_ratio(1, 16) {
        let length = random.random_range(0..256);
        return (0..length).map(|_| random.random()).collect();
    }
    let mut bytes = seed.to_vec();
    for _ in 0..random.random_range(1..=STEPS_MAX) {
        if bytes.is_empty() {
            bytes.push(random.random());
        }
        let at = random.random_range(0..bytes.len());
        match random.random_range(0..6) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at] = random.random(),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.random_range(0..5)],
            3 => {
                bytes.remove(at);
            }
            4 => bytes.insert(at, random.random()),
            _ => {
                let end = random.random_range(at..bytes.len().min(at + 64));
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
        bytes.truncate(MUTATION_BYTES_MAX);
    }
    bytes
}
