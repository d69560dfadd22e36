//! Why this replica should be taken for dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// As long as there is a reason this replica looks dead to the others: for one that cannot even say that it is unwell.
#[derive(Clone, Debug, Default)]
pub struct Mute(Arc<AtomicUsize>);

impl Mute {
    /// One more reason, until the returned value is dropped.
    #[must_use]
    pub fn hold(&self) -> Muted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Muted(self.clone())
    }

    /// Whether there is a reason.
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// A reason.
#[derive(Debug)]
pub struct Muted(Mute);

impl Drop for Muted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_until_the_last_reason_is_gone() {
        let mute = Mute::default();
        let same = mute.clone();
        let (one, other) = (mute.hold(), same.hold());
        drop(one);
        assert!(mute.is_on());
        drop(other);
        assert!(!mute.is_on());
    }
}
