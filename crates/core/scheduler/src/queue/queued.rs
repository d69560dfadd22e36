//! A request as it waits in a model's queue.

use symphony_types::{Nanos, Time};

use crate::Delays;
use crate::actions::Request;

/// A waiting request, and by when it must be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    pub(crate) request: Request,
    /// The deadline less the reply delay.
    pub(crate) must_end_by: Time,
    pub(crate) arrived: Time,
    /// Whether it was taken in before, here or by an earlier leader: `arrived` is then not when it came.
    pub(crate) returned: bool,
}

impl Queued {
    pub(crate) fn new(request: Request, arrived: Time, delays: &Delays) -> Self {
        let mut queued = Self { request, must_end_by: Time::NEVER, arrived, returned: false };
        queued.follow(delays);
        queued
    }

    /// Delays have changed. A deadline at the end of time is taken for the moment before it: [`Time::NEVER`] is also
    /// the end of what is impossible, and nothing impossible may seem to be met.
    pub(crate) fn follow(&mut self, delays: &Delays) {
        self.must_end_by = (self.request.deadline - delays.reply).min(Time::NEVER - Nanos::new(1));
    }
}
