//! Events in a view.

use crate::control as pb;

/// A change that people should know about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventView {
    /// Log index of the command that made it.
    pub index: u64,
    /// When the command was proposed, by the wall clock of the group's leader, in milliseconds since 1970; 0 if
    /// unknown.
    pub at_unix_ms: u64,
    /// A sentence.
    pub what: String,
}

impl From<pb::Event> for EventView {
    fn from(event: pb::Event) -> Self {
        let pb::Event { index, what, at_unix_ms } = event;
        Self { index, at_unix_ms, what }
    }
}

impl From<&EventView> for pb::Event {
    fn from(event: &EventView) -> Self {
        let EventView { index, at_unix_ms, what } = event.clone();
        Self { index, what, at_unix_ms }
    }
}
