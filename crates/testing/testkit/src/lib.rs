//! What tests need: free ports, a directory that outlives a failure, child processes that do not outlive the test,
//! waiting on conditions instead of sleeping, and what a machine may not have, skipped aloud.

mod browser;
mod child;
mod format_file;
mod json;
mod needed;
mod ports;
mod prometheus;
mod wait;
mod workspace;

pub use browser::{Browser, browser};
pub use child::{Child, ChildSpec};
pub use format_file::{FormatFile, NamedBytes};
pub use json::{read_json, wait_for_json};
pub use needed::needed;
pub use ports::{PORTS_MAX, free_ports};
pub use prometheus::{prometheus, promtool};
pub use wait::{until, wait_until, wait_until_async};
pub use workspace::Workspace;
