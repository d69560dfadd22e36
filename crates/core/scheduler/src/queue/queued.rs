//! A request in a model's queue.

use symphony_types::{Nanos, Time};

use crate::Delays;
use crate::actions::Request;

/// A waiting request, with the time by which it must end on a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    pub(crate) request: Request,
    /// Deadline − reply delay.
    pub(crate) must_end_by: Time,
    pub(crate) arrived: Time,
    /// Whether the request was admitted before, here or by an earlier leader: then `arrived` is not the time of its
    /// arrival.
    pub(crate) returned: bool,
}

impl Queued {
    pub(crate) fn new(request: Request, arrived: Time, delays: &Delays) -> Self {
        let mut queued = Self { request, must_end_by: Time::NEVER, arrived, returned: false };
        queued.apply_delays(delays);
        queued
    }

    /// Applies changed delays. A deadline of [`Time::NEVER`] becomes the moment before: it is also the end of an
    /// impossible batch, which must not appear to meet it.
    pub(crate) fn apply_delays(&mut self, delays: &Delays) {
        self.must_end_by = (self.request.deadline - delays.reply).min(Time::NEVER - Nanos::new(1));
    }
}
