//! What the two ends of any link tell each other of what carries its frames. A link begins on its connection; whoever
//! dialled may ask to go on another way. Each direction changes over by itself, at a frame that says so, and keeps its
//! order.

#![allow(missing_docs, reason = "the derive writes archived twins of the enums without documentation")]

use rkyv::{Archive, Deserialize, Serialize};

use crate::Message;
use crate::data::{RdmaEndpoint, SharingOffer};

/// The link number of a [`Carry`]; no message of a link has it.
pub(crate) const CARRY_LINK: u16 = 15;

/// One word about what carries a link.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Carry {
    /// From whoever dialled, once at most: what could carry the link instead?
    Ask,
    /// To whoever asked: this.
    Offer(CarryOffer),
    /// To whoever asked, or joined: nothing.
    Refuse,
    /// From whoever asked: its end of an RDMA connection, if such a one is offered.
    Join(RdmaEndpoint),
    /// To whoever joined: the other end, which is connected to that one.
    Joined(RdmaEndpoint),
    /// From whoever asked: nothing came of the offer.
    Decline,
    /// From either end: what comes after this comes the other way, and nothing more this way.
    Switch,
    /// From whoever was dialled: the link is refused. A message came over its connection, and this process requires
    /// another way.
    Required,
}

/// What may carry a link. Whoever asked takes the first that works.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct CarryOffer {
    /// Memory of this host, and where to find it.
    pub sharing: Option<SharingOffer>,
    /// An RDMA connection. Its ends are made once one is wanted.
    pub rdma: bool,
}

impl Message for Carry {
    const LINK: u16 = CARRY_LINK;
    const NAME: &str = "carry";
}
