//! The distribution of gaps between arrivals, which tells whether another arrival before a given moment is likely.

use symphony_types::{Nanos, Time};

/// Buckets per doubling of the gap.
const STEPS: u32 = 4;
/// Gaps below 2^10 ns (1 µs) share the first bucket: for a batch they are simultaneous.
const SHIFT: u32 = 10;
/// Buckets: 24 doublings from a microsecond to 17 seconds; longer gaps share the last one.
const BUCKETS: usize = 24 * STEPS as usize;
/// A batch waits for another arrival before frontrun only if its probability is at least this. At 0.9 goodput is the
/// same within two percent; at 0.6 many models on few GPUs lose that much.
const LIKELY: f32 = 0.8;
/// The number of gaps that the meter needs before it answers: fewer make no distribution.
const GAPS_MIN: u32 = 64;
/// After this many gaps all counts are halved, so that the meter forgets an old workload within as many gaps.
const GAPS_MAX: u32 = 4096;

/// The distribution of the gaps between arrivals, in fixed memory.
#[derive(Clone, Debug)]
pub(crate) struct GapMeter {
    counts: [u32; BUCKETS],
    total: u32,
    last: Option<Time>,
    /// `longer[i]`: the share of gaps that are at least as long as the lower end of bucket `i`.
    longer: [f32; BUCKETS + 1],
    /// `stop_waiting_ns[i]`: for a wait until the lower end of bucket `i`, nanoseconds after the last arrival at which
    /// waiting stops.
    stop_waiting_ns: [u64; BUCKETS + 1],
    known: bool,
}

impl GapMeter {
    const fn new() -> Self {
        Self {
            counts: [0; BUCKETS],
            total: 0,
            last: None,
            longer: [0.0; BUCKETS + 1],
            stop_waiting_ns: [0; BUCKETS + 1],
            known: false,
        }
    }

    /// Counts an arrival.
    #[inline]
    pub(crate) fn count(&mut self, now: Time) {
        if let Some(last) = self.last {
            self.counts[bucket_of(now.since(last))] += 1;
            self.total += 1;
            if self.total >= GAPS_MAX {
                self.forget_half();
            }
        }
        self.last = Some(now);
    }

    fn forget_half(&mut self) {
        self.total = 0;
        for count in &mut self.counts {
            *count /= 2;
            self.total += *count;
        }
    }

    /// Updates the distribution from the counts; to be called at least every few hundred arrivals.
    pub(crate) fn update(&mut self) {
        if self.total < GAPS_MIN {
            return;
        }
        // First the sums, then the shares: the divisions do not depend on each other.
        let (mut above, mut from) = (0, [0; BUCKETS]);
        for (from, count) in from.iter_mut().zip(&self.counts).rev() {
            above += count;
            *from = above;
        }
        let total = self.total as f32;
        for (longer, &from) in self.longer.iter_mut().zip(&from) {
            // Far below 2³¹, so signed and unsigned conversion give the same result.
            *longer = from as i32 as f32 / total;
        }
        self.update_ends();
        self.known = true;
    }

    /// Computes where waiting stops for the lower end of each bucket, in one pass: the later that end, the later
    /// waiting stops.
    fn update_ends(&mut self) {
        let mut from = 0;
        for until in 0..=BUCKETS {
            // P(gap ≤ u | gap > e) < likely  ⇔  longer(u) > (1 − likely)·longer(e): as e grows, longer(e) falls.
            let bound = self.longer[until] / (1.0 - LIKELY);
            // The first bucket at whose upper end the share has fallen below the bound.
            while from < BUCKETS - 1 && self.longer[from + 1] >= bound {
                from += 1;
            }
            let (most, least) = (self.longer[from], self.longer[from + 1]);
            let within = if most > least { ((most - bound) / (most - least)).clamp(0.0, 1.0) } else { 0.0 };
            let (low, high) = (lower_end(from), lower_end(from + 1));
            self.stop_waiting_ns[until] = low + (within * (high - low) as f32) as u64;
        }
    }

    /// When to stop waiting for arrivals before `until`: the moment at which, without an arrival in between, the
    /// probability of one before `until` falls below [`LIKELY`]. `None` while there are too few gaps.
    #[inline]
    #[must_use]
    pub(crate) fn stop_waiting_at(&self, until: Time) -> Option<Time> {
        let last = self.last.filter(|_| self.known)?;
        let gap = until.since(last);
        let (bucket, within) = place_of(gap);
        let (from, to) = (self.stop_waiting_ns[bucket], self.stop_waiting_ns[bucket + 1]);
        Some(last + Nanos::new(from + (within * (to - from) as f32) as u64))
    }
}

impl Default for GapMeter {
    fn default() -> Self {
        Self::new()
    }
}

/// The bucket of a gap, and the gap's position within it, 0 to 1.
#[inline]
fn place_of(gap: Nanos) -> (usize, f32) {
    let bucket = bucket_of(gap);
    // Below 2⁶³, as the gap is cut to the widest bucket.
    let into = (gap.get() - lower_end(bucket)).min(WIDTH_MAX) as i64 as f32;
    // All widths except the first are powers of two, so multiplication by the inverse is exact division.
    let within = if bucket == 0 { into / LOWER_ENDS[1] as f32 } else { into * INVERSE_WIDTHS[bucket] };
    (bucket, within.min(1.0))
}

#[inline]
fn bucket_of(gap: Nanos) -> usize {
    // In quarters of the first bucket, so that the two bits below the highest one exist for the shortest gaps, too.
    let quarters = gap.get() >> (SHIFT - 2);
    if quarters < u64::from(STEPS) {
        return 0;
    }
    let doubling = quarters.ilog2() - 2;
    let step = (quarters >> doubling) & 3;
    ((doubling * STEPS) as usize + step as usize).min(BUCKETS - 1)
}

/// The shortest gap of a bucket in nanoseconds.
#[inline]
fn lower_end(bucket: usize) -> u64 {
    LOWER_ENDS[bucket]
}

const LOWER_ENDS: [u64; BUCKETS + 1] = {
    // The first bucket starts at gap zero.
    let mut ends = [0; BUCKETS + 1];
    let mut bucket = 1;
    while bucket <= BUCKETS {
        let (doubling, step) = (bucket as u32 / STEPS, bucket as u64 % STEPS as u64);
        ends[bucket] = ((STEPS as u64 + step) << (doubling + SHIFT)) / STEPS as u64;
        bucket += 1;
    }
    ends
};

/// The width of each bucket.
const WIDTHS: [f32; BUCKETS] = {
    let mut widths = [0.0; BUCKETS];
    let mut bucket = 0;
    while bucket < BUCKETS {
        widths[bucket] = (LOWER_ENDS[bucket + 1] - LOWER_ENDS[bucket]) as f32;
        bucket += 1;
    }
    widths
};

/// The upper end of the last bucket; no bucket is wider.
const WIDTH_MAX: u64 = LOWER_ENDS[BUCKETS];

/// The inverse width of each bucket.
const INVERSE_WIDTHS: [f32; BUCKETS] = {
    let mut inverses = [0.0; BUCKETS];
    let mut bucket = 0;
    while bucket < BUCKETS {
        inverses[bucket] = 1.0 / WIDTHS[bucket];
        bucket += 1;
    }
    inverses
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_where_their_ends_say() {
        for gap in (0..64).map(|shift| 1_u64 << shift).chain([
            1_500,
            1_999,
            3_000,
            5_000,
            12_345,
            999_999,
            77_777_777,
            3_000_000_000,
        ]) {
            let bucket = bucket_of(Nanos::new(gap));
            assert!(lower_end(bucket) <= gap, "{gap}");
            assert!(bucket == BUCKETS - 1 || gap < lower_end(bucket + 1), "{gap}");
        }
    }

    #[test]
    fn places_are_those_that_division_gives_to_the_last_bit() {
        let near = |gap: u64| [gap.saturating_sub(1), gap, gap.saturating_add(1)];
        let ends = LOWER_ENDS.iter().flat_map(|&end| [end, end + end / 7, end + end / 9]).flat_map(near);
        for gap in ends.chain((0..64).flat_map(|shift| near(1 << shift))).chain([u64::MAX]) {
            let bucket = bucket_of(Nanos::new(gap));
            let (low, high) = (lower_end(bucket), lower_end(bucket + 1));
            let within = ((gap - low) as f32 / (high - low) as f32).min(1.0);
            assert_eq!(place_of(Nanos::new(gap)), (bucket, within), "{gap}");
        }
    }

    #[test]
    fn bursts_are_told_from_pauses() {
        // Bursts of ten, a millisecond apart, then 90 ms of nothing.
        let mut meter = GapMeter::default();
        assert_eq!(meter.stop_waiting_at(Time::from_nanos(1_000_000)), None);
        let mut last = Time::ZERO;
        for burst in 0..100_u64 {
            for at in 0..10 {
                last = Time::from_nanos((burst * 100 + at) * 1_000_000);
                meter.count(last);
            }
        }
        meter.update();
        // Within ten milliseconds another one is likely until a millisecond has passed without one.
        let ends = meter.stop_waiting_at(last + Nanos::from_millis(10)).unwrap();
        let waited = ends.since(last);
        assert!((Nanos::from_micros(700)..Nanos::from_micros(1_400)).contains(&waited), "{waited}");
        // Nothing is known to come sooner than a microsecond.
        assert!(meter.stop_waiting_at(last + Nanos::from_micros(100)).unwrap() <= last + Nanos::from_micros(1));
    }
}
