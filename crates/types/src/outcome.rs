//! How a request can end. The sets are closed; their labels serve as metric labels and as machine-readable reasons.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[rkyv(derive(Clone, Copy, Debug))]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every member, for metrics that must exist before the first event.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable label: metric label and machine-readable reason.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.label())
            }
        }
    };
}

reasons!(
    /// Why the scheduler gave up a request before it ran.
    DropReason {
        /// The deadline could not be met even by a batch of one on an idle GPU.
        SloUnreachable = "slo_unreachable",
        /// The request would have shrunk its batch far below the target size, at the expense of all requests behind it.
        ProtectBatch = "protect_batch",
        /// The deadline passed while the request waited.
        QueueExpired = "queue_expired",
        /// A queue was at its limit.
        QueueFull = "queue_full",
        /// The sub-cluster is overloaded, and every model sheds its share.
        Shed = "shed",
    }
);

reasons!(
    /// Why a request ended without an answer, other than by a scheduler's decision to drop it.
    FailReason {
        /// No GPU can run the model now: its backends are down, drained or do not answer, and the deadline is too close
        /// to wait for one.
        NoGpu = "no_gpu",
        /// The executor reported an error.
        ExecutionFailed = "execution_failed",
        /// No answer arrived by the deadline plus its grace period.
        NoAnswer = "no_answer",
        /// The model is not loaded anywhere, or is being unloaded.
        ModelNotReady = "model_not_ready",
        /// The backend did not receive the complete input.
        PayloadLost = "payload_lost",
        /// The process that owned the request is shutting down or cordoned.
        Draining = "draining",
        /// The model's leader has gone, or has been without the control group for too long, and no replica can replace
        /// it.
        ControlPlaneLost = "control_plane_lost",
        /// Two leads in turn panicked while they had the request. It may be the cause, so it is not sent to a third.
        SchedulerPanicked = "scheduler_panicked",
        /// The batch needed more memory than is reserved for batches.
        OutOfMemory = "out_of_memory",
        /// The GPU failed during its batch and will fail every batch until its backend restarts.
        GpuLost = "gpu_lost",
    }
);

/// How an accepted request ended; it ends exactly once (invariant S3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Answered by its deadline.
    InTime,
    /// Answered after its deadline.
    Late,
    /// Given up by the scheduler.
    Dropped(DropReason),
    /// Ended by an error.
    Failed(FailReason),
    /// Withdrawn by the client.
    Cancelled,
}

impl Outcome {
    /// The stable label of the kind of outcome, without its reason.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::InTime => "in_time",
            Self::Late => "late",
            Self::Dropped(_) => "dropped",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}
