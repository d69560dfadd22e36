//! The rules of `auto`.

use serde::Deserialize;

/// A rule of `auto` that an experiment may switch off to measure its effect (docs/adr/0008). Servers use all rules.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum AutoRule {
    /// Batches start later the higher the load is; without this rule, at once.
    Load,
    /// A model that keeps less than one GPU busy waits three executions at most.
    ShortWaits,
    /// Waiting ends once another arrival has become unlikely.
    Gaps,
    /// Starts of a model are spaced.
    Spacing,
    /// Plans leave a margin for executions that take longer than predicted.
    Overrun,
    /// Batches are planned for the budget that all arriving requests have; without this rule, for the SLO.
    Budget,
}
