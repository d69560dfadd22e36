//! The time that a request spends on the way to the GPU and back.

use symphony_types::Nanos;

/// Delays of one model's path, as quantiles measured by the host (seed 000, Appendix C; DESIGN section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// From the decision to the backend: `c`.
    pub control: Nanos,
    /// Fetching the input of one item: `d`.
    pub data_per_item: Nanos,
    /// From the end of execution to the client: taken off every deadline.
    pub reply: Nanos,
    /// How late the host's timers ring: taken off the trigger, so that a late timer still lands inside the window.
    pub guard: Nanos,
}

impl Delays {
    /// How long before its start a plan of `batch` items must be sent: c + d·b.
    #[inline]
    #[must_use]
    pub const fn lead(&self, batch: u32) -> Nanos {
        Nanos::new(self.control.get().saturating_add(self.data_per_item.get().saturating_mul(batch as u64)))
    }
}
