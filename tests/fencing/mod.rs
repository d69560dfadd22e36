//! Messages of strangers to the cluster's ports.

pub(crate) mod fake_leader;
mod garbage;
