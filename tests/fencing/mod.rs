//! Messages of strangers to the cluster's ports.

mod fake_leader;
mod garbage;
