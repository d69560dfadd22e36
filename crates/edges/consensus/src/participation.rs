//! Whether this node takes part in Raft: answers the others, and campaigns.

use std::path::PathBuf;

use openraft::Raft;
use tokio::sync::watch;

use crate::disk::forgotten;
use crate::environment::Blocking;
use crate::log::store::LogStore;
use crate::raft_state_machine::Machine;
use crate::raft_types::TypeConfig;
use crate::record::{Ballot, Position};
use crate::wire::has_forgotten;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Allowed {
    open: bool,
    /// Permanently, for this boot.
    forgotten: bool,
}

/// Shared by the group's handle and the service for the other replicas.
#[derive(Debug)]
pub(crate) struct Participation {
    allowed: watch::Sender<Allowed>,
    raft: Raft<TypeConfig, Machine>,
    log: LogStore,
    /// The directory to mark as never to be used again.
    dir: PathBuf,
    blocking: Blocking,
}

impl Participation {
    /// A node that takes part.
    pub(crate) fn new(raft: Raft<TypeConfig, Machine>, log: LogStore, dir: PathBuf, blocking: Blocking) -> Self {
        Self { allowed: watch::Sender::new(Allowed { open: true, forgotten: false }), raft, log, dir, blocking }
    }

    /// Whether it takes part.
    pub(crate) fn is_open(&self) -> bool {
        let allowed = self.allowed.borrow();
        allowed.open && !allowed.forgotten
    }

    pub(crate) fn set_open(&self, open: bool) {
        self.allowed.send_modify(|allowed| allowed.open = open);
        self.apply();
    }

    /// Whether this node still holds what it reported as durable to the leader with this vote. If not, it stops voting
    /// and acknowledging.
    pub(crate) fn holds(&self, vote: Ballot, acknowledged: Option<Position>) -> bool {
        let known = self.log.known();
        if !has_forgotten((known.vote, known.last), vote, acknowledged) {
            return true;
        }
        #[cfg(feature = "planted-faults")]
        if crate::planted::is(crate::planted::Bug::ForgottenUnnoticed) {
            return true;
        }
        tracing::error!(leader = vote.node, ?acknowledged, held = ?known.last, "this node has forgotten what it acknowledged");
        self.forget();
        false
    }

    /// It has lost what it acknowledged: it stops for this boot, and for ever over this directory. Does not wait for
    /// the disk, which may hang.
    pub(crate) fn forget(&self) {
        self.allowed.send_modify(|allowed| allowed.forgotten = true);
        self.apply();
        let (dir, blocking) = (self.dir.clone(), self.blocking);
        tokio::spawn(async move {
            if let Err(error) = blocking.run(move || forgotten::mark(&dir)).await.flatten() {
                tracing::error!(%error, "that this directory is not to be used again cannot be written down");
            }
        });
    }

    /// Resolves once it has forgotten.
    pub(crate) async fn forgotten(&self) {
        // The sender is held by this very value.
        let _ = self.allowed.subscribe().wait_for(|allowed| allowed.forgotten).await;
    }

    fn apply(&self) {
        self.raft.runtime_config().elect(self.is_open());
    }
}
