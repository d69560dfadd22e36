//! A scheduler replica.

use symphony_types::{BootId, Duty};

/// A scheduler replica.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// Its boot id; none before its registration.
    pub boot: Option<BootId>,
    /// Not declared down.
    pub up: bool,
    /// `host:port` of its control surface.
    pub control_addr: String,
    /// `host:port` where it takes requests for the sub-clusters it leads.
    pub dispatch_addr: String,
    /// `host:port` where it takes beats while it leads the control group.
    pub beat_addr: String,
    /// Its duty: serve, cordoned or draining.
    pub duty: Duty,
}
