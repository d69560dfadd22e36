//! The policy port: one object that decides for all models and GPUs of a sub-cluster.
//!
//! # For authors of policies
//!
//! Implement [`ClusterPolicy::step`], add the policy to a [`PolicyRegistry`](crate::PolicyRegistry) under a name, and
//! it runs in the simulator, in replays and in clusters. `crates/programs/symphony/examples/policy.rs` is one in less
//! than a hundred lines.
//!
//! A step takes one event and answers with orders. It must not read clocks, files or random numbers, so that equal
//! inputs always give equal orders: a tape is replayed by that. A policy need not defend itself: hosts check every
//! order ([`ClusterReferee`](crate::ClusterReferee)), and one that breaks a rule, panics, or does not stop ordering is
//! replaced; no request is lost by it.
//!
//! # What stays and what may change
//!
//! Between releases with the same first two numbers, a policy that compiles continues to compile and gets the same
//! inputs. A later release may add inputs (so ignore unknown ones with `_ => {}`), fields to inputs (so match with
//! `..`), fields to [`ClusterFacts`](crate::ClusterFacts) and [`ClusterModel`], and methods with a default; policies
//! need no change for these. It may rename or remove only with a note under "Policies" in CHANGELOG.md. The limits
//! ([`CLUSTER_ORDERS_MAX`](crate::CLUSTER_ORDERS_MAX), [`QUEUE_REQUESTS_MAX`](crate::QUEUE_REQUESTS_MAX)) never shrink.

use std::sync::Arc;

use symphony_types::{DropReason, GpuClass, GpuId, Nanos, Time};

use crate::actions::{Orders, Plan, Request};
use crate::cluster::model::ClusterModel;
use crate::why::DropCause;

/// Input of a [`ClusterPolicy`]. Models and GPUs are dense slots, from zero.
///
/// Hosts keep this order: a model or GPU is announced before any other input about it, and after it has gone the only
/// inputs about it are the ends of plans that were sent before. A policy that ignores what it does not know is right.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterInput {
    /// The model is served from now on, or what is known of it has changed: its profiles, SLO, rate or delays. Its
    /// waiting requests wait on.
    Model {
        /// The model's slot.
        model: u32,
        /// Its profiles, SLO, rate and delays.
        known: Arc<ClusterModel>,
    },
    /// The model is served no longer. Its waiting requests leave the policy; the host ends them. Plans that were sent
    /// run on and are reported. The slot may come back as another model.
    ModelGone(u32),
    /// A request arrived. The policy owns it until it plans or drops it, or until it is cancelled.
    Arrive {
        /// The model's slot.
        model: u32,
        /// Its id, items and deadline.
        request: Request,
    },
    /// A request came back from a failed GPU, from a refused plan, or from the policy before this one. The policy owns
    /// it again; it does not count as an arrival for measured rates.
    Return {
        /// The model's slot.
        model: u32,
        /// The request, as it arrived first.
        request: Request,
    },
    /// The client withdrew a request that the policy owns. It needs no outcome.
    Cancel {
        /// The model's slot.
        model: u32,
        /// The request, as it arrived.
        request: Request,
    },
    /// The GPU is usable from `free_at` on and has no plans of this policy.
    GpuUp {
        /// The GPU that may get plans from now on.
        gpu: GpuId,
        /// Its class: a model without a profile for it never runs there.
        class: GpuClass,
        /// When it is free.
        free_at: Time,
    },
    /// The GPU takes no more plans: it has failed, or drains. If it failed, the requests of its plans follow, each as a
    /// [`Return`](Self::Return).
    GpuDown(GpuId),
    /// The GPU has just ended a plan. A GPU ends its plans in the order in which they were sent, and may end one before
    /// the planned start of it: a live batch begins when its inputs are there and the plan before it has ended.
    Done {
        /// The GPU that ran the plan.
        gpu: GpuId,
        /// The model of the plan.
        model: u32,
        /// The start that was planned: with the GPU it names the plan.
        start: Time,
        /// How much later than planned it started; zero also if it started earlier.
        start_late: Nanos,
        /// The measured execution time.
        latency: Nanos,
    },
    /// The GPU did not accept a plan, which will not run. Its requests follow, each as a [`Return`](Self::Return).
    Refused {
        /// The GPU that refused the plan.
        gpu: GpuId,
        /// The model of the plan.
        model: u32,
        /// The start that was planned: with the GPU it names the plan.
        start: Time,
    },
    /// The time of the last [`ClusterAction::WakeAt`] has come. Early or repeated wake-ups are harmless.
    Wake,
}

impl ClusterInput {
    /// How many kinds of input there are; a format that lists them checks itself against it.
    pub const KINDS: usize = 10;

    /// The kind of input, in one word.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Model { .. } => "model",
            Self::ModelGone(_) => "model_gone",
            Self::Arrive { .. } => "arrive",
            Self::Return { .. } => "return",
            Self::Cancel { .. } => "cancel",
            Self::GpuUp { .. } => "gpu_up",
            Self::GpuDown(_) => "gpu_down",
            Self::Done { .. } => "done",
            Self::Refused { .. } => "refused",
            Self::Wake => "wake",
        }
    }
}

/// Output of a [`ClusterPolicy`]. A plan that was sent cannot be taken back: backends have no order for it. A GPU that
/// can be stopped is the exception, see [`ClusterFacts::can_preempt`](crate::ClusterFacts::can_preempt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterAction {
    /// Run the plan; its requests are in [`Orders::planned`].
    Execute {
        /// The model's slot.
        model: u32,
        /// The plan. It runs after the plans that were sent to the same GPU before it; it does not interrupt them.
        plan: Plan,
    },
    /// Stop the running batch of the GPU and discard the plans that wait there, without a report. The policy owns their
    /// requests again, so it must have kept them. Only where [`ClusterFacts::can_preempt`](crate::ClusterFacts).
    Preempt(GpuId),
    /// The request's outcome: dropped.
    Drop {
        /// The model's slot.
        model: u32,
        /// The dropped request, as it arrived.
        request: Request,
        /// The reason, as clients and metrics see it.
        reason: DropReason,
        /// What caused the drop; `None` from policies that do not explain themselves.
        cause: Option<DropCause>,
    },
    /// Call [`ClusterInput::Wake`] at this time; replaces the previous `WakeAt`. [`Time::NEVER`] cancels it.
    WakeAt(Time),
}

/// The orders of one step of a [`ClusterPolicy`]. Its methods `plan`, `give_up`, `preempt` and `wake_at` are the way to
/// give them.
pub type ClusterActions = Orders<ClusterAction>;

/// A policy that sees every model and every GPU. Rivals that are not divided into queues and a ranker implement it, and
/// so does a host's composition of [`ModelQueue`](crate::ModelQueue)s and a [`GpuRanker`](crate::GpuRanker).
///
/// Hosts hold every policy to these rules, and name the one that is broken:
///
/// - S1: plans of a GPU do not overlap.
/// - S2: a plan starts no earlier than it can reach its GPU, takes what the model's profile says for the GPU's class,
///   and ends in time for each of its requests, less the reply delay.
/// - S3: a request that the policy owns is planned or dropped once, with the values that it arrived with.
/// - S4: a GPU is preempted only where that is possible.
/// - S5: plans name existing GPUs and models, hold what they say, and are at most
///   [`ClusterFacts::plans_max`](crate::ClusterFacts::plans_max) per GPU; a step has at most
///   [`CLUSTER_ORDERS_MAX`](crate::CLUSTER_ORDERS_MAX) orders.
pub trait ClusterPolicy {
    /// One decision: takes time and input, and appends its orders to `out`. Time never goes back.
    fn step(&mut self, now: Time, input: ClusterInput, out: &mut ClusterActions);

    /// The requests that the policy owns now: those that wait, over all models (invariants S3 and S5).
    fn waiting(&self) -> usize;
}
