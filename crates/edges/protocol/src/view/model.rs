//! A model in a view: where it is served, and which backends hold it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use symphony_types::{BackendId, BootId, CutDigest, ModelId, SubclusterId};

use super::{ModelSpec, TrunkView, View, ViewError};
use crate::control as pb;
use crate::epoch_plan_view::ModelMoveView;

/// A loaded model, and how far its backends are.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelView {
    /// The specification.
    pub spec: ModelSpec,
    /// Where new requests for it go.
    pub subcluster: SubclusterId,
    /// Its way to another sub-cluster.
    pub moving: Option<ModelMoveView>,
    /// Which backends hold it, or why not.
    pub holders: BTreeMap<BackendId, HolderView>,
    /// Where it can be cut, and what it shares; none if no backend has reported them.
    pub trunk: Option<TrunkView>,
}

/// One backend's report on one model.
#[derive(Clone, Debug, PartialEq)]
pub struct HolderView {
    /// The backend's boot id.
    pub boot: BootId,
    /// Loaded, or why not.
    pub state: Result<(), String>,
}

/// Whether a model can be asked, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// A backend that takes work has it.
    Ready,
    /// A backend could not load it, for this reason.
    Failed(String),
    /// No GPU can load or run it.
    NoGpu(NoGpu),
    /// A backend that takes work is to load it.
    Loading,
}

/// Why no GPU takes a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoGpu {
    /// Its sub-cluster has no backend.
    NoBackend,
    /// All backends are down.
    AllDown,
    /// The backends that are up are cordoned or draining.
    AllDraining,
}

impl NoGpu {
    /// As text for clients, without names of the cluster's parts.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::NoBackend => "no GPU takes it: its sub-cluster has no backend",
            Self::AllDown => "no GPU takes it: all its backends are down",
            Self::AllDraining => "no GPU takes it: all its backends that are up are cordoned or draining",
        }
    }
}

impl fmt::Display for NoGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl ModelView {
    /// Whether at least one backend that is up and takes work has loaded it where it is served.
    #[must_use]
    pub fn is_ready(&self, view: &View) -> bool {
        self.holders.iter().any(|(backend, holder)| {
            let host = view.backends.get(backend).filter(|b| b.up && b.duty.takes_work());
            holder.state.is_ok() && host.is_some_and(|b| b.boot == holder.boot && b.subcluster == self.subcluster)
        })
    }

    /// Whether it can be asked where it is served, or why not.
    #[must_use]
    pub fn readiness(&self, view: &View) -> Readiness {
        if self.is_ready(view) {
            return Readiness::Ready;
        }
        let backends: Vec<_> = view.backends.iter().filter(|(_, b)| b.subcluster == self.subcluster).collect();
        let at_work = || backends.iter().filter(|(_, b)| b.up && b.duty.takes_work());
        if at_work().next().is_none() {
            return Readiness::NoGpu(match backends.iter().any(|(_, b)| b.up) {
                true => NoGpu::AllDraining,
                false if backends.is_empty() => NoGpu::NoBackend,
                false => NoGpu::AllDown,
            });
        }
        // A report by a backend that is gone does not concern the present ones.
        let failed = at_work().find_map(|(id, b)| {
            let holder = self.holders.get(*id).filter(|holder| holder.boot == b.boot)?;
            holder.state.clone().err()
        });
        failed.map_or(Readiness::Loading, Readiness::Failed)
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

    /// Up to where it shares its trunk, if it does.
    #[must_use]
    pub fn shared_trunk(&self) -> Option<CutDigest> {
        self.trunk.as_ref()?.shared
    }
}

impl View {
    /// The model and those that share its trunk; empty if none does.
    #[must_use]
    pub fn family_of(&self, model: &ModelView) -> BTreeSet<ModelId> {
        let Some(shared) = model.shared_trunk() else { return BTreeSet::new() };
        let is_in = |other: &ModelView| other.subcluster == model.subcluster && other.shared_trunk() == Some(shared);
        self.models.iter().filter(|(_, other)| is_in(other)).map(|(&id, _)| id).collect()
    }
}

impl TryFrom<pb::Model> for (ModelId, ModelView) {
    type Error = ViewError;
    fn try_from(model: pb::Model) -> Result<Self, ViewError> {
        let spec = model.spec.ok_or(ViewError::Missing { what: format!("model {}", model.id), field: "spec" })?;
        let holders = model.replicas.into_iter().map(|holder| {
            let failed = holder.state() != pb::ModelState::Ready;
            let state = if failed { Err(holder.error) } else { Ok(()) };
            (BackendId::new(holder.backend), HolderView { boot: BootId::new(holder.boot_id), state })
        });
        let trunk = model.trunk.map(|trunk| TrunkView::from_pb(&trunk, &spec.name)).transpose()?;
        let view = ModelView {
            spec: spec.try_into()?,
            subcluster: SubclusterId::new(model.subcluster),
            moving: model.moving.map(ModelMoveView::from),
            holders: holders.collect(),
            trunk,
        };
        Ok((ModelId::new(model.id), view))
    }
}

impl From<(&ModelId, &ModelView)> for pb::Model {
    fn from((id, model): (&ModelId, &ModelView)) -> Self {
        let holders = model.holders.iter().map(|(backend, holder)| {
            let (state, error) = match &holder.state {
                Ok(()) => (pb::ModelState::Ready, String::new()),
                Err(error) => (pb::ModelState::Failed, error.clone()),
            };
            pb::ModelReplica { backend: backend.get(), boot_id: holder.boot.get(), state: state.into(), error }
        });
        Self {
            id: id.get(),
            spec: Some((&model.spec).into()),
            subcluster: model.subcluster.get(),
            replicas: holders.collect(),
            moving: model.moving.map(Into::into),
            trunk: model.trunk.as_ref().map(Into::into),
        }
    }
}
