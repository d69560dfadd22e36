//! The calls of operators and processes to the control group while faults strike, and whether the answers are
//! linearizable.

mod admin_clients;
mod commits;
mod story;

pub(crate) use admin_clients::AdminClients;
pub(crate) use commits::{Acked, Commits, Written, lost};
pub(crate) use story::{AdminRecorder, Story, recorder};
