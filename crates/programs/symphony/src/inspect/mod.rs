//! The state of a running cluster, as tables and as JSON: for `get`, `describe`, `top`, the console and the pages of
//! processes, which all use the same words.

pub(crate) mod events;
pub(crate) mod explanations;
pub(crate) mod frontend_page;
pub(crate) mod gpus;
pub(crate) mod ledger;
pub(crate) mod members;
pub(crate) mod models;
mod public_access;
pub(crate) mod sample;
#[cfg(test)]
pub(crate) mod scene;
pub(crate) mod subclusters;
pub(crate) mod table;

use serde_json::Value;
use symphony_protocol::view::View;
use symphony_types::SubclusterId;

/// A header, its rows, and the same as JSON.
pub(crate) type Shown = (&'static [&'static str], Vec<Vec<String>>, Value);

pub(crate) fn subcluster_name(view: &View, id: SubclusterId) -> String {
    view.subclusters.get(&id).map_or_else(|| id.to_string(), |s| s.name.clone())
}
