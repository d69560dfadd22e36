//! Raft's data in types of our own, independent of any Raft library: disk and wire formats are built from them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

/// Position of an entry, with the leader that wrote it. Ordered by (term, node, index).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) term: u64,
    pub(crate) node: u64,
    pub(crate) index: u64,
}

/// A vote for a leader; committed once a quorum granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ballot {
    pub(crate) term: u64,
    pub(crate) node: u64,
    pub(crate) committed: bool,
}

/// The voters (two sets during a change), and the addresses of all members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    pub(crate) configs: Vec<BTreeSet<u64>>,
    pub(crate) addresses: BTreeMap<u64, String>,
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Blank,
    Command(Bytes),
    Members(Members),
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) at: Position,
    pub(crate) body: Body,
}

impl Record {
    /// Bytes this record takes in memory and on the wire, within a few dozen.
    pub(crate) fn weight(&self) -> usize {
        const FIXED: usize = 64;
        const PER_MEMBER: usize = 32;
        FIXED
            + match &self.body {
                Body::Blank => 0,
                Body::Command(bytes) => bytes.len(),
                Body::Members(members) => {
                    members.addresses.values().map(|address| address.len() + PER_MEMBER).sum::<usize>()
                }
            }
    }
}
