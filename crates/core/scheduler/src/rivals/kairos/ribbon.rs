//! Ribbon's query distribution, as the Kairos paper uses it.

use std::sync::Arc;

use symphony_types::Time;

use super::first_come::FirstCome;
use super::line::{Line, LineOrder};
use crate::cluster::facts::ClusterFacts;
use crate::cluster::model::ClusterModel;
use crate::cluster_policy::{ClusterActions, ClusterInput, ClusterPolicy};

/// The most plans of a GPU, as of `kairos`.
pub(super) const PLANS_MAX: u32 = 2;

/// Optimises nothing, at no cost: first come, first served, on the fastest of the GPUs that are free.
///
/// The Kairos paper, section 7: what chooses the hardware in Ribbon (SC 2021) distributes queries in this way. A query
/// that would be late on the GPU whose turn it is is dropped; Ribbon serves it late.
#[derive(Clone, Debug)]
pub struct Ribbon {
    first_come: FirstCome,
    line: Line,
    wake_at: Time,
}

impl Ribbon {
    /// Without models and GPUs, which come as inputs.
    #[must_use]
    pub fn new(facts: &ClusterFacts) -> Self {
        let first_come = FirstCome::new(facts.plans_max.min(PLANS_MAX));
        Self { first_come, line: Line::new(LineOrder::Arrival), wake_at: Time::NEVER }
    }

    fn set_model(&mut self, model: u32, known: Option<Arc<ClusterModel>>) {
        let cluster = &mut self.first_come.cluster;
        if known.is_none() {
            self.line.forget(model);
        }
        cluster.set(model, known);
        self.line.rekey(cluster, model);
        self.first_come.weigh();
    }
}

impl ClusterPolicy for Ribbon {
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions) {
        let FirstCome { cluster, gpus, .. } = &mut self.first_come;
        match input {
            ClusterInput::Arrive { model, request } => self.line.admit(cluster, (model, request), now, out),
            ClusterInput::Return { model, request } => self.line.admit(cluster, (model, request), Time::ZERO, out),
            ClusterInput::Cancel { model, request } => {
                self.line.cancel(cluster, model, &request);
            }
            ClusterInput::GpuUp { gpu, class, free_at } => {
                gpus.up(gpu, class, free_at);
                self.first_come.weigh();
            }
            ClusterInput::GpuDown(gpu) => {
                gpus.down(gpu);
                self.first_come.weigh();
            }
            ClusterInput::Done { gpu, .. } => gpus.done(now, gpu),
            ClusterInput::Refused { gpu, start, .. } => gpus.refused(now, gpu, start),
            ClusterInput::Model { model, known } => self.set_model(model, Some(known)),
            ClusterInput::ModelGone(model) => self.set_model(model, None),
            ClusterInput::Wake => self.wake_at = Time::NEVER,
        }
        let wake_at = self.first_come.serve(now, &mut self.line, |_, _, _, _| true, out);
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            out.wake_at(wake_at);
        }
    }

    fn waiting(&self) -> usize {
        self.line.len()
    }
}
