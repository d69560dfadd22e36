//! The time that a request spends on the way to the GPU and back.

use symphony_types::Nanos;

/// Delays of one model's path, as quantiles measured by the host (seed 000, Appendix C; DESIGN section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// From the decision to the backend: `c`.
    pub control: Nanos,
    /// Fetching the inputs of a batch: `d·b`, and what comes with every batch.
    pub data: DataDelay,
    /// From the end of execution to the client: taken off every deadline.
    pub reply: Nanos,
    /// How late the host's timers ring: taken off the trigger, so that a late timer still lands inside the window.
    pub guard: Nanos,
}

/// How long the inputs of a batch take to come to its backend: a line over its items, with a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataDelay {
    /// Whatever the batch.
    pub fixed: Nanos,
    /// For each item: `d`.
    pub per_item: Nanos,
    /// No batch is given more.
    pub max: Nanos,
    /// Who says so; decides nothing.
    pub source: DelaySource,
}

/// Where a delay comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DelaySource {
    /// It was set.
    #[default]
    Configured,
    /// Nothing was measured yet.
    Assumed,
    /// It was measured.
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
    /// So much for each item, as configured.
    #[must_use]
    pub const fn each_item(per_item: Nanos) -> Self {
        Self { fixed: Nanos::ZERO, per_item, max: Nanos::MAX, source: DelaySource::Configured }
    }

    /// What a batch of `batch` items is given.
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
