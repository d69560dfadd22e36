//! What a lead reports to the control group.

use std::time::Duration;

use symphony_types::{BackendId, BootId, SubclusterId, Token};

/// What the runtime wants the control group to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A backend of a led sub-cluster cannot be reached.
    BackendDown(BackendId, BootId),
    /// This node is ready to take a sub-cluster over.
    Ready {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// Where the hand-over began.
        since: u64,
    },
    /// Most links of a lead hardly move, and somebody else could lead. This node goes on until that one does.
    CutOff {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The assignment.
        token: Token,
    },
    /// A decision thread hangs: this node leads the sub-cluster no longer, and perhaps can lead no other.
    Stuck {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The assignment.
        token: Token,
        /// How long nobody is to be asked to lead it: above 0 if the thread hung in a turn of this lead, and others have done so, or
        /// panicked, lately.
        pause: Duration,
    },
    /// A turn of this lead panicked: this node leads the sub-cluster no longer, and all others as before.
    Panicked {
        /// The sub-cluster.
        subcluster: SubclusterId,
        /// The assignment.
        token: Token,
        /// How long nobody is to be asked to lead it: above 0 if leads of it have panicked or hung here before, lately.
        pause: Duration,
    },
}
