//! A frontend.

use symphony_types::{BootId, Duty, Nanos};

/// A frontend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrontendView {
    /// Its name.
    pub name: String,
    /// Its boot id.
    pub boot: BootId,
    /// `host:port` of its data link.
    pub data_addr: String,
    /// `host:port` of its metrics and console.
    pub console_addr: String,
    /// Its duty: serve, cordoned or draining.
    pub duty: Duty,
    /// It takes nothing new and has nothing left to finish.
    pub drained: bool,
    /// This boot has announced its end.
    pub leaving: bool,
    /// How long the Raft leader has seen no sign of life of this boot, zero while it does; none if the answering
    /// replica does not know.
    pub silent: Option<Nanos>,
}

impl FrontendView {
    /// It has announced its end, and has nothing left to finish.
    #[must_use]
    pub const fn has_left(&self) -> bool {
        self.leaving && self.drained
    }
}
