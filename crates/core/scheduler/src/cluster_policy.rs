//! The trait of policies that decide for a whole cluster: models and GPUs together, in one object.

use symphony_types::{DropReason, GpuId, Nanos, Time};

use crate::actions::{Orders, Plan, Request};
use crate::why::DropCause;

/// Input of a [`ClusterPolicy`]. Models and GPUs are dense slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterInput {
    /// A request arrived.
    Arrive {
        /// The model's slot.
        model: u32,
        /// The request.
        request: Request,
    },
    /// A request came back from a failed GPU: it was admitted before and does not count as an arrival for the measured
    /// rates.
    Return {
        /// The model's slot.
        model: u32,
        /// The request.
        request: Request,
    },
    /// The GPU is usable from `free_at` on.
    GpuUp {
        /// The GPU.
        gpu: GpuId,
        /// When it is free.
        free_at: Time,
    },
    /// The GPU has failed. The host returns its requests one by one.
    GpuDown(GpuId),
    /// The GPU has just ended a plan.
    Done {
        /// The GPU.
        gpu: GpuId,
        /// The model of the plan.
        model: u32,
        /// How much later than planned it started.
        start_late: Nanos,
        /// The measured execution time.
        latency: Nanos,
    },
    /// The time of the last [`ClusterAction::WakeAt`] has come. Early or repeated wake-ups are harmless.
    Wake,
}

/// Output of a [`ClusterPolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterAction {
    /// Run the plan; its requests are in [`Orders::planned`].
    Execute {
        /// The model's slot.
        model: u32,
        /// The plan. It runs after the plans that were sent to the same GPU before it; it does not interrupt them.
        plan: Plan,
    },
    /// Stop the running batch of the GPU and discard the plans that wait there. The policy owns their requests again,
    /// so it must have kept them.
    Preempt(GpuId),
    /// The request's outcome: dropped.
    Drop {
        /// The model's slot.
        model: u32,
        /// The request.
        request: Request,
        /// Why.
        reason: DropReason,
        /// What caused the drop; `None` from policies that do not explain themselves.
        cause: Option<DropCause>,
    },
    /// Call [`ClusterInput::Wake`] at this time; replaces the previous `WakeAt`. [`Time::NEVER`] cancels it.
    WakeAt(Time),
}

/// The orders of one step of a [`ClusterPolicy`].
pub type ClusterActions = Orders<ClusterAction>;

/// A policy that sees every model and every GPU. Rivals that are not divided into queues and a ranker implement it, and
/// so does a host's composition of [`ModelQueue`](crate::ModelQueue)s and a [`GpuRanker`](crate::GpuRanker).
pub trait ClusterPolicy {
    /// One decision: takes time and input, and appends its orders to `out`.
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions);

    /// Waiting requests over all models (invariant S5).
    fn waiting(&self) -> usize;
}
