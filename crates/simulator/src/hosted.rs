//! What the simulator asks of a policy besides its decisions.

use symphony_scheduler::{ClusterPolicy, Violation};

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

    /// What was found wrong in the last step, once.
    #[inline]
    fn fault(&mut self) -> Option<Fault> {
        None
    }
}
