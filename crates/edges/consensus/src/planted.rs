//! Bugs that a simulation plants in this crate to check that it finds them. Global for the process; several at once if
//! a failure needs several.

use std::sync::atomic::{AtomicU16, Ordering};

use futures::{Stream, StreamExt as _, stream};
use openraft::EntryPayload;
use openraft::storage::EntryResponder;

use crate::raft_types::TypeConfig;

/// The planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A vote alone is not made durable before it is sent.
    VotesNotSynced,
    /// A leader without a quorum goes on sending entries and snapshots. Has little effect alone where messages arrive
    /// at once: followers that ignore stale messages as signs of life elect another leader anyway.
    NoQuorumGate,
    /// A leader's messages count as signs of life however old they are. Where messages arrive at once, the gate of a
    /// leader without a quorum is enough for another election; over a very slow link it is not.
    OldAppendsBelieved,
    /// Neighbouring commands that are applied together are swapped.
    DisorderedApply,
    /// Reads do not ask a quorum.
    ReadsWithoutQuorum,
    /// A follower that has heard from a leader once never checks its own clock again.
    TicksStayOff,
    /// A replica that has less than it acknowledged to its leader takes part anyway.
    ForgottenUnnoticed,
    /// At its start a replica does not ask others for a later boot of it.
    BootsUnasked,
    /// A replica that registers does not look which boot of it is registered.
    RegistrationsUnread,
    /// A replica with an empty disk founds its group without regard to the others.
    FoundsUnasked,
    /// A replica with an empty disk joins a group by the word of anyone who has a log.
    JoinsUnasked,
    /// A replica that stopped its heartbeats over a hung lead never sends any again. For the control plane.
    SilentForever,
}

/// A bit for each.
static PLANTED: AtomicU16 = AtomicU16::new(0);

/// Plants a bug, beside those that were planted before.
pub fn plant(bug: Bug) {
    PLANTED.fetch_or(1 << bug as u8, Ordering::Relaxed);
}

/// Whether the bug was planted.
#[must_use]
pub fn is(bug: Bug) -> bool {
    PLANTED.load(Ordering::Relaxed) & (1 << bug as u8) != 0
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
