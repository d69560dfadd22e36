//! Sender and receiver of a message.

use super::pb;
use crate::limits::WIRE_FORMAT;

/// The identity that a node puts into every request.
#[derive(Debug, Clone)]
pub(crate) struct Addressing {
    pub(crate) cluster: String,
    pub(crate) node: u64,
}

impl Addressing {
    pub(crate) fn envelope(&self, to: u64) -> pb::RaftEnvelope {
        pb::RaftEnvelope { format: WIRE_FORMAT, cluster: self.cluster.clone(), from: self.node, to }
    }
}
