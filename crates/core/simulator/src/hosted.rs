//! The simulator's interface to a policy besides its decisions.

use symphony_scheduler::{ClusterPolicy, PolicyFault, Violation};
use symphony_types::{GpuClass, LatencyProfile, Nanos};

use crate::result::LearningResult;

/// A defect that a policy detects in itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An invariant is violated.
    Violation(Violation),
    /// It makes no progress.
    Spins(String),
    /// A policy that the program added is at fault.
    Policy(PolicyFault),
}

/// A policy that the world can host. The default methods suffice for a policy without introspection.
pub(crate) trait Hosted: ClusterPolicy {
    /// Whether it needs an input for the end of each plan.
    fn wants_reports(&self) -> bool {
        true
    }

    /// A corrected profile that it uses from now on, if there is one since the last call.
    #[inline]
    fn corrected(&mut self) -> Option<(u32, GpuClass, LatencyProfile)> {
        None
    }

    /// GPU time that deferred batches of the load so far would have taken; `None` if unknown.
    fn demand_time(&self) -> Option<Nanos> {
        None
    }

    /// What it learnt; `None` if it does not learn.
    fn learnt(&self) -> Option<LearningResult> {
        None
    }

    /// A defect detected in the last step, reported once.
    #[inline]
    fn fault(&mut self) -> Option<Fault> {
        None
    }
}
