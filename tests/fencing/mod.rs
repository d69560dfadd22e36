//! What strangers send to the cluster's ports.

mod fake_leader;
mod garbage;
