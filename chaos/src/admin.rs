//! What operators and processes ask of the control group while faults strike, and whether the answers tell one story.

mod admin_clients;
mod commits;
mod story;

pub(crate) use admin_clients::AdminClients;
pub(crate) use commits::{Acked, Commits, Written, lost};
pub(crate) use story::{AdminRecorder, Story, recorder};
