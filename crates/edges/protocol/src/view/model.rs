//! A model: where it is served, and which backends hold it.

use std::collections::BTreeMap;

use symphony_types::{BackendId, BootId, SubclusterId};

use super::{ModelSpec, View};
use crate::plan::ModelMoveView;

/// A model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelView {
    /// What was asked for.
    pub spec: ModelSpec,
    /// Where new requests for it go.
    pub subcluster: SubclusterId,
    /// Its way to another sub-cluster.
    pub moving: Option<ModelMoveView>,
    /// Which backends hold it, or why not.
    pub replicas: BTreeMap<BackendId, ReplicaView>,
}

/// One backend's word on one model.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaView {
    /// The backend's life.
    pub boot: BootId,
    /// Loaded, or why not.
    pub state: Result<(), String>,
}

impl ModelView {
    /// Whether at least one living backend has loaded it where it is served.
    #[must_use]
    pub fn is_ready(&self, view: &View) -> bool {
        self.replicas.iter().any(|(backend, replica)| {
            let host = view.backends.get(backend);
            replica.state.is_ok()
                && host.is_some_and(|b| b.up && b.boot == replica.boot && b.subcluster == self.subcluster)
        })
    }

    /// Whether the sub-cluster serves requests for it: all new ones, or those that came before it moved away.
    #[must_use]
    pub fn is_served_by(&self, subcluster: SubclusterId) -> bool {
        self.subcluster == subcluster
            || self.moving.is_some_and(|moving| moving.switched.is_some() && moving.from == subcluster)
    }

    /// Whether the backends of the sub-cluster hold it, or are to load it.
    #[must_use]
    pub fn is_held_by(&self, subcluster: SubclusterId) -> bool {
        self.is_served_by(subcluster) || self.moving.is_some_and(|moving| moving.to == subcluster)
    }
}
