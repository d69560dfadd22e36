//! What tests of real processes need: free ports, a directory that outlives a failure, child processes that do not
//! outlive the test, and waiting on conditions instead of sleeping.

mod child;
mod json;
mod ports;
mod wait;
mod workspace;

pub use child::{Child, ChildSpec};
pub use json::{read_json, wait_for_json};
pub use ports::{PORTS_MAX, free_ports};
pub use wait::{wait_until, wait_until_async};
pub use workspace::Workspace;
