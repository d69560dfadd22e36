//! Charges concurrent loads as if they had run one after the other: loads that run side by side share the bandwidth,
//! and the duration of one does not give the bandwidth.

use std::time::{Duration, Instant};

/// Divides time among the running loads.
#[derive(Debug, Default)]
pub(crate) struct LoadMeter {
    running: u32,
    /// Time charged to a load that has run since the beginning.
    charged: Duration,
    looked_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningLoad {
    charged_before: Duration,
}

impl LoadMeter {
    pub(crate) fn begin(&mut self, now: Instant) -> RunningLoad {
        self.pass(now);
        self.running += 1;
        RunningLoad { charged_before: self.charged }
    }

    /// The load's charge: the charges of all loads together are the time during which any ran.
    pub(crate) fn end(&mut self, now: Instant, load: RunningLoad) -> Duration {
        self.pass(now);
        self.running = self.running.saturating_sub(1);
        self.charged - load.charged_before
    }

    fn pass(&mut self, now: Instant) {
        let since = self.looked_at.replace(now).map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        // While none runs, nothing is charged.
        self.charged += since.checked_div(self.running).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_side_by_side_share_the_time_and_pauses_are_nobodys() {
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let s = Duration::from_secs;
        let mut meter = LoadMeter::default();
        let alone = meter.begin(at(0));
        assert_eq!(meter.end(at(4), alone), s(4));
        let (first, second) = (meter.begin(at(10)), meter.begin(at(12)));
        assert_eq!(meter.end(at(16), first), s(2 + 2));
        assert_eq!(meter.end(at(19), second), s(2 + 3));
    }
}
