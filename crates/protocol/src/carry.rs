//! What the two ends of any link tell each other of what carries its frames. A link begins on its connection; whoever dialled may ask to go
//! on through shared memory. Each direction changes over by itself, at a frame that says so, and keeps its order.

#![allow(missing_docs, reason = "the derive writes archived twins of the enums without documentation")]

use rkyv::{Archive, Deserialize, Serialize};

use crate::Message;
use crate::data::SharingOffer;

/// The link number of a [`Carry`]; no message of a link has it.
pub(crate) const CARRY_LINK: u16 = 15;

/// One word about what carries a link.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Carry {
    /// From whoever dialled, once at most: would the other end share memory?
    Ask,
    /// To whoever asked: where to find it.
    Offer(SharingOffer),
    /// To whoever asked: it would not.
    Refuse,
    /// From whoever asked: nothing came of the offer.
    Decline,
    /// From either end: what comes after this comes through shared memory, and nothing more this way.
    Switch,
    /// From whoever was dialled: the link is refused, since this process requires shared memory and a message came without.
    MustShare,
}

impl Message for Carry {
    const LINK: u16 = CARRY_LINK;
    const NAME: &str = "carry";
}
