//! Hashes of the state at fixed log indexes, so that replicas can compare them (invariant C6).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use symphony_cluster_state::ClusterState;
use symphony_types::{Invariant, NodeId};

/// Log indexes between two checkpoints. Hashing walks the whole state, so it is not done after every command.
const CHECKPOINT_EVERY: u64 = 16;

/// Checkpoints kept: a follower may lag by some of them.
const CHECKPOINTS_MAX: usize = 64;

/// A log index that is a multiple of [`CHECKPOINT_EVERY`], and the hash of the state before its command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// 0: none yet.
    pub(crate) index: u64,
    pub(crate) hash: u64,
}

#[derive(Debug, Default)]
struct Kept {
    own: VecDeque<Checkpoint>,
    /// The last index compared with each replica.
    compared: BTreeMap<NodeId, u64>,
    /// Comparisons made and differences found.
    counts: (u64, u64),
}

/// This replica's checkpoints; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checkpoints(Arc<Mutex<Kept>>);

impl Checkpoints {
    /// To be called before the command at `index` is applied. At a checkpoint it hashes the state.
    pub(crate) fn pass(&self, state: &ClusterState, index: u64) {
        let place = |index: u64| index / CHECKPOINT_EVERY * CHECKPOINT_EVERY;
        if place(index) <= place(state.applied_index()) {
            return;
        }
        let checkpoint = Checkpoint { index: place(index), hash: state.state_hash() };
        let mut kept = self.lock();
        if kept.own.len() == CHECKPOINTS_MAX {
            kept.own.pop_front();
        }
        kept.own.push_back(checkpoint);
    }

    pub(crate) fn newest(&self) -> Checkpoint {
        self.lock().own.back().copied().unwrap_or_default()
    }

    /// Compares another replica's checkpoint with this replica's of the same index, if kept; each once.
    pub(crate) fn compare(&self, node: NodeId, theirs: Checkpoint) {
        let mut kept = self.lock();
        if kept.compared.get(&node).is_some_and(|&last| last >= theirs.index) {
            return;
        }
        let Some(own) = kept.own.iter().find(|own| own.index == theirs.index).copied() else { return };
        kept.compared.insert(node, theirs.index);
        kept.counts.0 += 1;
        if own.hash != theirs.hash {
            kept.counts.1 += 1;
            symphony_telemetry::violated(
                Invariant::C6,
                format_args!(
                    "state before index {} is {:#018x} here and {:#018x} on {node}",
                    own.index, own.hash, theirs.hash
                ),
            );
        }
    }

    /// Comparisons made, and differences found.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.lock().counts
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use symphony_cluster_state::{Command, FrontendRegistration};
    use symphony_types::BootId;

    use super::*;

    fn frontend(number: u64) -> Command {
        let (name, boot) = (format!("f{number}"), BootId::new(1));
        let (data_addr, console_addr) = ("f:1".into(), "f:2".into());
        Command::RegisterFrontend(FrontendRegistration { name, boot, data_addr, console_addr })
    }

    /// Registers frontends one by one, with a checkpoint call before each.
    fn run(numbers: impl Iterator<Item = u64>) -> Checkpoints {
        let (mut state, checkpoints) = (ClusterState::default(), Checkpoints::default());
        for (index, number) in (1..).zip(numbers) {
            checkpoints.pass(&state, index);
            state.apply(index, &frontend(number));
        }
        checkpoints
    }

    #[test]
    fn replicas_that_applied_the_same_agree_and_a_planted_difference_is_counted_once() {
        let (one, other) = (run(1..100), run(1..90));
        let (two, three) = (NodeId::new(2), NodeId::new(3));
        assert_eq!(other.newest().index, 80);
        one.compare(two, other.newest());
        one.compare(two, other.newest());
        assert_eq!(one.counts(), (1, 0), "compared once, and equal");
        other.compare(two, one.newest());
        assert_eq!(other.counts(), (0, 0), "not there yet");

        let before = symphony_telemetry::violations(Invariant::C6);
        // One command was applied differently, long before the checkpoint.
        let astray = run((1..90).map(|number| if number == 20 { 7_777 } else { number }));
        one.compare(three, astray.newest());
        one.compare(three, astray.newest());
        assert_eq!(one.counts(), (2, 1));
        assert_eq!(symphony_telemetry::violations(Invariant::C6), before + 1);
        one.compare(two, Checkpoint { index: 3 * CHECKPOINT_EVERY, hash: 1 });
        assert_eq!(one.counts(), (2, 1), "what is older than the last comparison is not looked at again");
    }
}
