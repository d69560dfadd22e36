//! What the simulator asks of a policy besides its decisions.

use symphony_scheduler::{ClusterPolicy, Violation};
use symphony_types::{GpuClass, LatencyProfile, Nanos};

use crate::result::LearningResult;

/// What a policy may find wrong with itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An invariant does not hold.
    Violation(Violation),
    /// It goes round in circles.
    Spins(String),
}

/// A policy that the world can host. For a policy without looks inside, an empty implementation does.
pub(crate) trait Hosted: ClusterPolicy {
    /// Whether it wants to be told of the end of each plan.
    fn wants_reports(&self) -> bool {
        true
    }

    /// A profile by which it plans from now on, if one was corrected since it was asked last.
    #[inline]
    fn corrected(&mut self) -> Option<(u32, GpuClass, LatencyProfile)> {
        None
    }

    /// GPU time that deferred batches of all that was asked would have taken; none if it does not know.
    fn demand_time(&self) -> Option<Nanos> {
        None
    }

    /// What it has learnt; none if it learns nothing.
    fn learnt(&self) -> Option<LearningResult> {
        None
    }

    /// What was found wrong in the last step, once.
    #[inline]
    fn fault(&mut self) -> Option<Fault> {
        None
    }
}
