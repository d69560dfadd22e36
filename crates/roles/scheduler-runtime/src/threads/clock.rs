//! The only place in this crate that reads the clock.

use std::time::{Duration, Instant};

use symphony_types::{Nanos, Time};

/// The monotonic clock as a [`Time`]; all copies share one origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self::start()
    }
}

/// Distance from the origin back from the clock's creation, so that "a little earlier" is never before the origin.
const HEAD_START: Duration = Duration::from_secs(3600);

impl Clock {
    /// A clock with an origin of its own.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// When it was made.
    pub(crate) const fn origin(&self) -> Instant {
        self.origin
    }

    /// Time since its origin, which is an hour before it was made.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::ZERO + Nanos::from(self.origin.elapsed() + HEAD_START)
    }
}
