//! The rules of `auto`.

use serde::Deserialize;

/// A rule of `auto` that an experiment may leave out, to see what it is worth (docs/adr/0008). Servers leave none out.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AutoRule {
    /// Batches start later the higher the load is; without it at once.
    Load,
    /// Waiting ends once another arrival has become unlikely.
    Gaps,
    /// The starts of a model keep a distance.
    Spacing,
    /// Plans leave room for executions that take longer than predicted.
    Overrun,
}
