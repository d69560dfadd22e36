//! A policy that breaks a rule, which its host has to find.

use std::sync::Arc;

use symphony_scheduler::{ClusterActions, ClusterInput, ClusterModel, ClusterPolicy, Request};
use symphony_types::{GpuClass, GpuId, Time};

/// Where the operator sets the policy of this name, [`Overlapping`] decides: it stands for every policy that breaks a
/// rule.
pub(crate) const FAULTY: &str = "ribbon";

/// As soon as two requests wait, it plans a batch for each of them, on one GPU at one time: they overlap (S1).
#[derive(Default)]
pub(super) struct Overlapping {
    model: Option<(u32, Arc<ClusterModel>)>,
    gpu: Option<(GpuId, GpuClass)>,
    waiting: Vec<Request>,
}

impl ClusterPolicy for Overlapping {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        match input {
            ClusterInput::Model { model, known } => self.model = Some((model, known)),
            ClusterInput::GpuUp { gpu, class, .. } => self.gpu = Some((gpu, class)),
            ClusterInput::GpuDown(_) => self.gpu = None,
            ClusterInput::Arrive { request, .. } | ClusterInput::Return { request, .. } => self.waiting.push(request),
            ClusterInput::Cancel { request, .. } => self.waiting.retain(|waiting| waiting.id != request.id),
            _ => {}
        }
        if let (Some((model, known)), Some(gpu)) = (&self.model, self.gpu)
            && self.waiting.len() > 1
        {
            let start = known.start(now, now, 1);
            for request in self.waiting.drain(..) {
                out.plan(*model, known, gpu, start, [request]);
            }
        }
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
