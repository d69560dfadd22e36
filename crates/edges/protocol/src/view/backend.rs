//! A backend and its GPUs.

use symphony_types::{BackendId, BootId, Duty, GpuId, Level, SubclusterId, Token};

use super::ModelView;
use super::message::{level_from_message, level_to_message};
use crate::control as pb;
use crate::epoch_plan_view::BackendMoveView;

/// A registered backend: its boot, its duty, its GPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendView {
    /// Its name, from its configuration; stable over restarts.
    pub name: String,
    /// The boot that registered last.
    pub boot: BootId,
    /// Not declared down.
    pub up: bool,
    /// `host:port` of its execute link.
    pub exec_addr: String,
    /// Its sub-cluster.
    pub subcluster: SubclusterId,
    /// Kind of executor.
    pub executor: String,
    /// Its GPUs, in the order of its offer.
    pub gpus: Vec<GpuView>,
    /// Its duty: serve, cordoned or draining.
    pub duty: Duty,
    /// It takes nothing new and has nothing left to finish.
    pub drained: bool,
    /// Its way to another sub-cluster.
    pub moving: Option<BackendMoveView>,
    /// The newest level that it knows, if it has reported that to the answering replica.
    pub level: Option<Level>,
}

/// A GPU as its backend offered it.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuView {
    /// Its id, kept over restarts for a GPU of the same kind at the same position.
    pub id: GpuId,
    /// Its kind; profiles are per kind.
    pub kind: String,
    /// Memory that its backend offers, in bytes; 0 if there is no limit.
    pub memory_bytes: u64,
    /// Log index of its binding to the sub-cluster.
    pub binding: Token,
}

impl BackendView {
    /// Whether it is to hold the model.
    #[must_use]
    pub fn is_to_hold(&self, model: &ModelView) -> bool {
        let there = self.moving.filter(|moving| moving.preloads).map(|moving| moving.to);
        [Some(self.subcluster), there].into_iter().flatten().any(|home| model.is_held_by(home))
    }
}

impl From<pb::Backend> for (BackendId, BackendView) {
    fn from(backend: pb::Backend) -> Self {
        let duty = backend.duty().into();
        let view = BackendView {
            name: backend.name,
            boot: BootId::new(backend.boot_id),
            up: backend.up,
            exec_addr: backend.exec_addr,
            subcluster: SubclusterId::new(backend.subcluster),
            executor: backend.executor,
            gpus: backend.gpus.into_iter().map(GpuView::from).collect(),
            duty,
            drained: backend.drained,
            moving: backend.moving.map(BackendMoveView::from),
            level: level_from_message(backend.level),
        };
        (BackendId::new(backend.id), view)
    }
}

impl From<(&BackendId, &BackendView)> for pb::Backend {
    fn from((id, backend): (&BackendId, &BackendView)) -> Self {
        Self {
            id: id.get(),
            name: backend.name.clone(),
            boot_id: backend.boot.get(),
            up: backend.up,
            exec_addr: backend.exec_addr.clone(),
            subcluster: backend.subcluster.get(),
            executor: backend.executor.clone(),
            gpus: backend.gpus.iter().map(Into::into).collect(),
            duty: pb::Duty::from(backend.duty).into(),
            drained: backend.drained,
            moving: backend.moving.map(Into::into),
            level: level_to_message(backend.level),
        }
    }
}

impl From<pb::Gpu> for GpuView {
    fn from(gpu: pb::Gpu) -> Self {
        let pb::Gpu { id, kind, memory_bytes, binding } = gpu;
        Self { id: GpuId::new(id), kind, memory_bytes, binding: Token::new(binding) }
    }
}

impl From<&GpuView> for pb::Gpu {
    fn from(gpu: &GpuView) -> Self {
        let GpuView { id, kind, memory_bytes, binding } = gpu;
        Self { id: id.get(), kind: kind.clone(), memory_bytes: *memory_bytes, binding: binding.get() }
    }
}
