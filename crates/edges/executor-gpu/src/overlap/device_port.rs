//! The port between the overlap and a device.

use std::fmt;

use symphony_types::Nanos;

use super::{Event, Lane};

/// A device with [`super::SLOTS`] sets of buffers and three lanes, for one model.
///
/// Work enqueued in a lane runs later, in the lane's order. The caller keeps the order that [`super::Overlap`]
/// decides.
pub trait Device: Send + fmt::Debug {
    /// Writes the inputs of a batch to the host's memory of the slot, one buffer per input of the model; the last item
    /// again until there are as many as `extent` says.
    ///
    /// # Errors
    /// If the host's memory cannot be written.
    fn fill(&mut self, slot: usize, extent: Extent, inputs: &[&[u8]]) -> Result<(), DeviceError>;

    /// Enqueues the copy of inputs to the device.
    ///
    /// # Errors
    /// If the device refuses.
    fn copy_in(&mut self, slot: usize, extent: Extent) -> Result<(), DeviceError>;

    /// Enqueues the batch.
    ///
    /// # Errors
    /// If it, or the running program, refuses.
    fn compute(&mut self, slot: usize, extent: Extent) -> Result<(), DeviceError>;

    /// Enqueues the copy of outputs to the host.
    ///
    /// # Errors
    /// If the device refuses.
    fn copy_out(&mut self, slot: usize, extent: Extent) -> Result<(), DeviceError>;

    /// Returns the outputs of a batch that has ended, one buffer per output, without padding.
    ///
    /// # Errors
    /// If the host's memory cannot be read.
    fn drain(&mut self, slot: usize, extent: Extent, outputs: &mut Vec<Vec<u8>>) -> Result<(), DeviceError>;

    /// Enqueues an event.
    ///
    /// # Errors
    /// If the device refuses.
    fn record(&mut self, lane: Lane, event: Event) -> Result<(), DeviceError>;

    /// Lets a lane wait for an event.
    ///
    /// # Errors
    /// If the device refuses.
    fn wait(&mut self, lane: Lane, event: Event) -> Result<(), DeviceError>;

    /// Blocks until the event is reached.
    ///
    /// # Errors
    /// If something that was enqueued before has failed.
    fn host_wait(&mut self, event: Event) -> Result<(), DeviceError>;

    /// Whether the event is reached.
    ///
    /// # Errors
    /// If something that was enqueued before has failed.
    fn is_reached(&mut self, event: Event) -> Result<bool, DeviceError>;

    /// The spans of a slot's last batch, which has ended. Its input copy is the next batch's if that one has been
    /// staged in the slot already.
    ///
    /// # Errors
    /// If the device cannot tell.
    fn spans(&mut self, slot: usize) -> Result<Spans, DeviceError>;

    /// Spans are counted from now on.
    ///
    /// # Errors
    /// If the device refuses.
    fn count_from_now(&mut self) -> Result<(), DeviceError>;

    /// Waits for all work in progress, as far as possible after a failure: the buffers are reused then.
    fn settle(&mut self);

    /// Bytes of the device's memory in use now, by this and all other processes; none if unknown.
    fn used_bytes(&self) -> Option<u64>;
}

/// The size of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Items requested.
    pub items: u32,
    /// Items run, with padding.
    pub filled: u32,
}

/// A time span on a device, relative to the device's own origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// When it began.
    pub from: Nanos,
    /// When it ended.
    pub until: Nanos,
}

/// The three parts of a batch on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// Inputs to the device.
    pub copy_in: Span,
    /// The batch itself.
    pub compute: Span,
    /// Outputs to the host.
    pub copy_out: Span,
}

impl Span {
    /// For how long two stretches overlap.
    #[must_use]
    pub fn shared_with(self, other: Self) -> Nanos {
        self.until.min(other.until).saturating_sub(self.from.max(other.from))
    }
}

/// A device error. It ends the batch, never the process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There was no memory for what the driver names.
    #[error("out of memory on the device: {0}")]
    OutOfMemory(String),
    /// The device does not answer, or is permanently failed: the process has to be restarted.
    #[error("the device is lost: {0}; restart the backend, and look at the driver's messages if it is lost again")]
    Lost(String),
    /// The computation failed.
    #[error("{0}")]
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_share_what_both_have() {
        let span = |from, until| Span { from: Nanos::new(from), until: Nanos::new(until) };
        assert_eq!(span(0, 10).shared_with(span(4, 20)), Nanos::new(6));
        assert_eq!(span(4, 20).shared_with(span(0, 10)), Nanos::new(6));
        assert_eq!(span(0, 4).shared_with(span(4, 9)), Nanos::ZERO);
        assert_eq!(span(0, 3).shared_with(span(4, 9)), Nanos::ZERO);
    }
}
