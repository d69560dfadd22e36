//! Counts refused callers of this process, for its metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::callers::Refusal;

static REFUSALS: Mutex<BTreeMap<(&'static str, Refusal), u64>> = Mutex::new(BTreeMap::new());

/// Counts a caller that was refused at that port.
pub fn refused(port: &'static str, refusal: Refusal) {
    *REFUSALS.lock().unwrap_or_else(PoisonError::into_inner).entry((port, refusal)).or_default() += 1;
}

/// The refused callers, by port and reason.
#[must_use]
pub fn refusals() -> BTreeMap<(&'static str, Refusal), u64> {
    REFUSALS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
