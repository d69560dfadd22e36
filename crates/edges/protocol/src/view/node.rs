//! A scheduler replica.

use symphony_types::{BootId, Duty, NodeId};

use crate::control as pb;

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
    /// `host:port` where it takes heartbeats while it leads the control group.
    pub beat_addr: String,
    /// Its duty: serve, cordoned or draining.
    pub duty: Duty,
}

impl From<pb::Node> for (NodeId, NodeView) {
    fn from(node: pb::Node) -> Self {
        let boot = (node.boot_id != 0).then(|| BootId::new(node.boot_id));
        let duty = node.duty().into();
        let pb::Node { id, up, control_addr, dispatch_addr, beat_addr, .. } = node;
        (NodeId::new(id), NodeView { boot, up, control_addr, dispatch_addr, beat_addr, duty })
    }
}

impl From<(&NodeId, &NodeView)> for pb::Node {
    fn from((id, node): (&NodeId, &NodeView)) -> Self {
        Self {
            id: id.get(),
            boot_id: node.boot.map_or(0, BootId::get),
            up: node.up,
            control_addr: node.control_addr.clone(),
            dispatch_addr: node.dispatch_addr.clone(),
            beat_addr: node.beat_addr.clone(),
            duty: pb::Duty::from(node.duty).into(),
        }
    }
}
