//! Bugs that a simulation plants in this crate, to see that it finds them. For the whole process, several if it takes
//! several.

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
    VotesNotSynced,
    /// A leader without a quorum goes on sending entries and snapshots. Where its words arrive at once, whoever takes
    /// none of them for a sign of life that are old elects another one all the same: so this alone changes little.
    NoQuorumGate,
    /// What a leader sends is believed however old it is. Where its words arrive at once, the gate of a leader without
    /// a quorum is enough to have another one elected; over a link that hardly moves it is not.
    OldAppendsBelieved,
    /// Neighbouring commands that are applied together change places.
    DisorderedApply,
    /// Reads do not ask a quorum.
    ReadsWithoutQuorum,
    /// A follower that has heard a leader once never looks at its own clock again.
    TicksStayOff,
    /// A replica that has less than it acknowledged to its leader takes part all the same.
    ForgottenUnnoticed,
    /// Nobody asks whether others know a later life of a replica.
    LivesUnasked,
}

/// A bit for each.
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug, beside those that were planted before.
pub fn plant(bug: Bug) {
    PLANTED.fetch_or(1 << bug as u8, Ordering::Relaxed);
}

/// Whether it was planted.
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
