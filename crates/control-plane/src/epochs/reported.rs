//! Everything that the Raft leader makes of the leads' reports.

use std::collections::BTreeMap;
use std::time::Instant;

use symphony_cluster_state::ClusterState;
use symphony_protocol::control as pb;
use symphony_types::ModelId;

use super::learnt_profiles::LearntProfiles;
use super::load_book::LoadBook;
use super::scaling::Scaling;
use super::settings::EpochSettings;

/// What the leads have had to do, what they have learnt, and how many GPUs they should have.
#[derive(Debug)]
pub(crate) struct Reported {
    book: LoadBook,
    learnt: LearntProfiles,
    pub(crate) scaling: Scaling,
}

/// What an epoch is planned by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Items per second of every model.
    pub(crate) rates: BTreeMap<ModelId, f64>,
    /// How long batches take, as far as that is not what the given profiles say.
    pub(crate) profiles: LearntProfiles,
}

impl Measured {
    /// What the models have to do, in items per second times by how much longer than given they take: a model that becomes slow
    /// needs as much more of GPUs as one that is asked for more.
    pub(crate) fn work(&self) -> BTreeMap<ModelId, f64> {
        self.rates.iter().map(|(&model, rate)| (model, rate * self.profiles.largest(model))).collect()
    }
}

impl Reported {
    pub(crate) fn new(settings: &EpochSettings) -> Self {
        Self {
            book: LoadBook::new(settings.rate_over),
            learnt: LearntProfiles::default(),
            scaling: Scaling::new(settings.scaling.clone()),
        }
    }

    /// Takes what one replica says of its leads.
    pub(crate) fn take(&mut self, now: Instant, state: &ClusterState, subclusters: &[pb::SubclusterLoad]) {
        self.learnt.forget_gone(state);
        for load in subclusters {
            if self.book.take(now, load) {
                self.learnt.take(state, load);
            }
        }
        self.scaling.take(now, state, subclusters);
    }

    /// What an epoch would be planned by; none before the rates are known.
    pub(crate) fn measured(&self, now: Instant, state: &ClusterState) -> Option<Measured> {
        let rates = self.book.rates(now, state)?;
        Some(Measured { rates, profiles: self.learnt.clone() })
    }

    /// Forgets all: somebody else leads the group.
    pub(crate) fn clear(&mut self) {
        self.book.clear();
        self.learnt.clear();
        self.scaling.clear();
    }
}
