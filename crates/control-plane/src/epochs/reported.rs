//! Everything that the Raft leader makes of the leads' reports.

use std::time::Instant;

use symphony_cluster_state::ClusterState;
use symphony_protocol::control as pb;

use super::load_book::LoadBook;
use super::scaling::Scaling;
use super::settings::EpochSettings;

/// What the leads have had to do, and how many GPUs they should have.
#[derive(Debug)]
pub(crate) struct Reported {
    pub(crate) book: LoadBook,
    pub(crate) scaling: Scaling,
}

impl Reported {
    pub(crate) fn new(settings: &EpochSettings) -> Self {
        Self { book: LoadBook::new(settings.rate_over), scaling: Scaling::new(settings.scaling.clone()) }
    }

    /// Takes what one replica says of its leads.
    pub(crate) fn take(&mut self, now: Instant, state: &ClusterState, subclusters: &[pb::SubclusterLoad]) {
        for load in subclusters {
            self.book.take(now, load);
        }
        self.scaling.take(now, state, subclusters);
    }

    /// Forgets all: somebody else leads the group.
    pub(crate) fn clear(&mut self) {
        self.book.clear();
        self.scaling.clear();
    }
}
