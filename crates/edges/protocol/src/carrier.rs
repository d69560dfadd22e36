//! Negotiation of a link's carrier between its two ends. A link begins on its connection; the dialling process may ask
//! for another carrier. Each direction switches separately, at a frame that says so, and keeps its order.

#![allow(missing_docs, reason = "the derive writes archived twins of the enums without documentation")]

use rkyv::{Archive, Deserialize, Serialize};

use crate::Message;
use crate::data::{RdmaEndpoint, SharingOffer};
use crate::frame::CARRIER_LINK;

/// A message of the negotiation.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum CarrierMessage {
    /// From the dialling process, at most once: which other carrier is available?
    Ask,
    /// To the asking process: this one.
    Offer(CarrierOffer),
    /// To the asking or joining process: none.
    Refuse,
    /// From the asking process: its end of an RDMA connection, if one was offered.
    Join(RdmaEndpoint),
    /// To the joining process: the other end, which is connected to that one.
    Joined(RdmaEndpoint),
    /// From the asking process: the offer was not used.
    Decline,
    /// From either end: what comes after this comes the other way, and nothing more this way.
    Switch,
    /// From the dialled process: the link is refused. A message came over its connection, and this process requires
    /// another carrier.
    Required,
}

/// The carriers on offer. The asking process takes the first one that works.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct CarrierOffer {
    /// Memory of this host, and where to find it.
    pub sharing: Option<SharingOffer>,
    /// An RDMA connection. Its ends are made once one is wanted.
    pub rdma: bool,
}

impl Message for CarrierMessage {
    const LINK: u16 = CARRIER_LINK;
    const NAME: &str = "carry";
}
