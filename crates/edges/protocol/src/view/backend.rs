//! A backend and its GPUs.

use symphony_types::{BootId, Duty, GpuId, SubclusterId, Token};

use super::ModelView;
use crate::plan_view::BackendMoveView;

/// A backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendView {
    /// Its name.
    pub name: String,
    /// Its boot id.
    pub boot: BootId,
    /// Not declared down.
    pub up: bool,
    /// `host:port` of its execute link.
    pub exec_addr: String,
    /// Its sub-cluster.
    pub subcluster: SubclusterId,
    /// Kind of executor.
    pub executor: String,
    /// Its GPUs.
    pub gpus: Vec<GpuView>,
    /// Its duty: serve, cordoned or draining.
    pub duty: Duty,
    /// It takes nothing new and has nothing left to finish.
    pub drained: bool,
    /// Its way to another sub-cluster.
    pub moving: Option<BackendMoveView>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuView {
    /// Its id.
    pub id: GpuId,
    /// Its kind; profiles are per kind.
    pub kind: String,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Log index of its binding to the sub-cluster.
    pub binding: Token,
}

impl BackendView {
    /// Whether it shall hold the model.
    #[must_use]
    pub fn is_to_hold(&self, model: &ModelView) -> bool {
        let there = self.moving.filter(|moving| moving.preloads).map(|moving| moving.to);
        [Some(self.subcluster), there].into_iter().flatten().any(|home| model.is_held_by(home))
    }
}
