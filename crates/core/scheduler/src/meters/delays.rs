//! Delays of a request on its way to the GPU and back.

use symphony_types::Nanos;

/// The delays on one model's path, as quantiles measured by the host (the Symphony paper, Appendix C;
/// docs/adr/0007-measured-lateness.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// From the decision to the backend: `c`.
    pub control: Nanos,
    /// Fetching the inputs of a batch: `d·b` plus a fixed part.
    pub data: DataDelay,
    /// From the end of execution to the client: subtracted from every deadline.
    pub reply: Nanos,
    /// How late the host's timers fire: subtracted from the trigger, so that a late timer still fires within the
    /// window.
    pub guard: Nanos,
}

/// How long the inputs of a batch take to reach its backend: min(fixed + d·b, max).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataDelay {
    /// The part that does not depend on the batch size.
    pub fixed: Nanos,
    /// Delay per item: `d`.
    pub per_item: Nanos,
    /// Upper limit per batch.
    pub max: Nanos,
    /// The origin of the numbers; informative only.
    pub source: DelaySource,
}

/// Where a delay comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DelaySource {
    /// Given by configuration: its `max` is never lowered.
    #[default]
    Configured,
    /// A default, before the first measurement.
    Assumed,
    /// From delays that backends have measured.
    Measured,
}

impl DelaySource {
    /// The stable label, for explanations and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Assumed => "assumed",
            Self::Measured => "measured",
        }
    }
}

impl Default for DataDelay {
    fn default() -> Self {
        Self::each_item(Nanos::ZERO)
    }
}

impl DataDelay {
    /// A configured delay per item.
    #[must_use]
    pub const fn each_item(per_item: Nanos) -> Self {
        Self { fixed: Nanos::ZERO, per_item, max: Nanos::MAX, source: DelaySource::Configured }
    }

    /// The delay of a batch of `batch` items.
    #[inline]
    #[must_use]
    pub const fn of(&self, batch: u32) -> Nanos {
        let line = self.fixed.get().saturating_add(self.per_item.get().saturating_mul(batch as u64));
        if line < self.max.get() { Nanos::new(line) } else { self.max }
    }
}

impl Delays {
    /// How long before its start a plan of `batch` items must be sent: c + d·b.
    #[inline]
    #[must_use]
    pub const fn lead(&self, batch: u32) -> Nanos {
        Nanos::new(self.control.get().saturating_add(self.data.of(batch).get()))
    }
}
