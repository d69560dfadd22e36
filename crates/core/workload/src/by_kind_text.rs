//! The syntax of a number that may differ between kinds of GPUs.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number, or one for each GPU kind: { kind = x, … }")]
pub(crate) enum ByKindText {
    Same(f64),
    Each(BTreeMap<String, f64>),
}
