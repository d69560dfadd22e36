//! The shape of a policy that decides for a whole cluster at once: models and GPUs together, in one object.

use symphony_types::{DropReason, GpuId, Nanos, Time};

use crate::actions::{Orders, Plan, Request};
use crate::why::DropCause;

/// What a [`ClusterPolicy`] is told. Models and GPUs are dense slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterInput {
    /// A request arrived.
    Arrive {
        /// The model's slot.
        model: u32,
        /// The request.
        request: Request,
    },
    /// A request came back from a GPU that failed: it was let in before, and is no arrival by which rates are measured.
    Return {
        /// The model's slot.
        model: u32,
        /// The request.
        request: Request,
    },
    /// The GPU is usable, from `free_at` on.
    GpuUp {
        /// The GPU.
        gpu: GpuId,
        /// When it is free.
        free_at: Time,
    },
    /// The GPU has failed. The host hands what it had back, request by request.
    GpuDown(GpuId),
    /// The GPU has ended a plan, just now.
    Done {
        /// The GPU.
        gpu: GpuId,
        /// The model whose plan it was.
        model: u32,
        /// By how much it started later than planned.
        start_late: Nanos,
        /// How long it really took.
        latency: Nanos,
    },
    /// The time of the last [`ClusterAction::WakeAt`] has come. Early or repeated wake-ups are harmless.
    Wake,
}

/// What a [`ClusterPolicy`] orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterAction {
    /// Run the plan; its requests are in [`Orders::planned`].
    Execute {
        /// The model's slot.
        model: u32,
        /// The plan. It may start after plans sent before it to the same GPU, never in their midst.
        plan: Plan,
    },
    /// Stop what the GPU runs, and forget what waits there. Their requests are the policy's again: it must have kept
    /// them.
    Preempt(GpuId),
    /// The request has its outcome: dropped.
    Drop {
        /// The model's slot.
        model: u32,
        /// The request.
        request: Request,
        /// Why.
        reason: DropReason,
        /// What made it so; none from policies that do not say.
        cause: Option<DropCause>,
    },
    /// Call [`ClusterInput::Wake`] at this time; replaces the time asked for before. [`Time::NEVER`] cancels it.
    WakeAt(Time),
}

/// What one step of a [`ClusterPolicy`] ordered.
pub type ClusterActions = Orders<ClusterAction>;

/// A policy that sees every model and every GPU. Rivals that do not divide into queues and a ranker have this shape; so
/// has a host's composition of [`ModelQueue`](crate::ModelQueue)s and a [`GpuRanker`](crate::GpuRanker).
pub trait ClusterPolicy {
    /// One decision: time and input come in, orders go out (appended to `out`).
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions);

    /// Requests that wait, over all models (invariant S5).
    fn waiting(&self) -> usize;
}
