//! Makes this replica look dead on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// While there is a reason, this replica looks dead to the others: for faults that it cannot even report.
#[derive(Clone, Debug, Default)]
pub(crate) struct SilenceSwitch(Arc<AtomicUsize>);

impl SilenceSwitch {
    /// Adds a reason, until the returned value is dropped.
    #[must_use]
    pub(crate) fn hold(&self) -> SilenceHold {
        self.0.fetch_add(1, Ordering::Relaxed);
        SilenceHold(self.clone())
    }

    /// Whether there is a reason.
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// A reason.
#[derive(Debug)]
pub(crate) struct SilenceHold(SilenceSwitch);

impl Drop for SilenceHold {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_until_the_last_reason_is_gone() {
        let silence_switch = SilenceSwitch::default();
        let same = silence_switch.clone();
        let (one, other) = (silence_switch.hold(), same.hold());
        drop(one);
        assert!(silence_switch.is_on());
        drop(other);
        assert!(!silence_switch.is_on());
    }
}
