//! A frontend.

use symphony_types::{BootId, Duty, Nanos};

/// A frontend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrontendView {
    /// Its name.
    pub name: String,
    /// Its life.
    pub boot: BootId,
    /// `host:port` of its data link.
    pub data_addr: String,
    /// `host:port` of its metrics and console.
    pub console_addr: String,
    /// What it is there for.
    pub duty: Duty,
    /// It takes nothing new and has nothing left to finish.
    pub drained: bool,
    /// This life has said that it ends.
    pub leaving: bool,
    /// How long the Raft leader has seen no sign of this life, zero while it does; none if who made the view does not
    /// know.
    pub silent: Option<Nanos>,
}

impl FrontendView {
    /// It has said that it ends, and has nothing left to finish.
    #[must_use]
    pub const fn has_left(&self) -> bool {
        self.leaving && self.drained
    }
}
