//! Bugs that a simulation plants in this crate, to see that it finds them. One at a time, for the whole process.

use std::sync::atomic::{AtomicU8, Ordering};

use futures::{Stream, StreamExt as _, stream};
use openraft::EntryPayload;
use openraft::storage::EntryResponder;

use crate::raft_types::TypeConfig;

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A vote alone is not made durable before it is told.
    VotesNotSynced = 1,
    /// A leader without a quorum goes on sending, and who hears it does not ask whether it hears anybody: either alone is enough
    /// to have another one elected.
    NoQuorumGate,
    /// Neighbouring commands that are applied together change places.
    DisorderedApply,
    /// Reads do not ask a quorum.
    ReadsWithoutQuorum,
}

static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug.
pub fn plant(bug: Bug) {
    PLANTED.store(bug as u8, Ordering::Relaxed);
}

pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.load(Ordering::Relaxed) == bug as u8
}

type Applied = Result<EntryResponder<TypeConfig>, std::io::Error>;

/// What is to be applied, in order unless a bug is planted.
pub(crate) async fn order(entries: impl Stream<Item = Applied> + Unpin) -> impl Stream<Item = Applied> + Unpin {
    let mut entries: Vec<Applied> = entries.collect().await;
    if is(Bug::DisorderedApply) {
        for pair in entries.chunks_exact_mut(2) {
            if let [Ok((one, _)), Ok((other, _))] = pair
                && let (EntryPayload::Normal(one), EntryPayload::Normal(other)) = (&mut one.payload, &mut other.payload)
            {
                std::mem::swap(one, other);
            }
        }
    }
    stream::iter(entries)
}
