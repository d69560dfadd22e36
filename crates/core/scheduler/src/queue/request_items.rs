//! The number of items per request.

use crate::meters::rate_meter::BUCKETS;

/// Older means are forgotten after this many reads: the number of buckets in the five seconds of the rate meter.
const READS: u32 = BUCKETS as u32;

/// The mean number of items per request among recent arrivals, in fixed memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestItems {
    latest: Sums,
    /// The sums of the previous period.
    former: Sums,
    reads: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    requests: u64,
    items: u64,
}

impl RequestItems {
    /// Records the number of items of an arrived request.
    #[inline]
    pub(crate) fn record(&mut self, items: u32) {
        self.latest.requests += 1;
        self.latest.items += u64::from(items.max(1));
    }

    /// The recent mean, rounded, at least one. Read it about every 50 ms.
    pub(crate) fn recent_mean(&mut self) -> u32 {
        self.reads += 1;
        if self.reads > READS {
            (self.former, self.latest, self.reads) = (self.latest, Sums::default(), 1);
        }
        let (requests, items) = (self.latest.requests + self.former.requests, self.latest.items + self.former.items);
        // Each request has at least one item and at most as many as a batch.
        ((items + requests / 2) / requests.max(1)).max(1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_that_of_one_to_two_stretches() {
        let mut items = RequestItems::default();
        assert_eq!(items.recent_mean(), 1, "nothing is known");
        items.record(0);
        assert_eq!(items.recent_mean(), 1, "no request has no items");
        let mut items = RequestItems::default();
        for _ in 0..READS {
            items.record(1);
            items.record(6);
            assert_eq!(items.recent_mean(), 4, "3.5");
        }
        for _ in 0..READS {
            items.record(2);
            assert!(items.recent_mean() > 2);
        }
        items.record(2);
        assert_eq!(items.recent_mean(), 2);
    }
}
