//! How long the gaps between arrivals are: whether another arrival is likely before a given moment.

use symphony_types::{Nanos, Time};

/// Buckets per doubling of the gap.
const STEPS: u32 = 4;
/// Gaps below 2^10 ns, a microsecond, share the first bucket: to a batch they are the same instant.
const SHIFT: u32 = 10;
/// Buckets: 24 doublings from a microsecond to 17 seconds; longer gaps share the last one.
const BUCKETS: usize = 24 * STEPS as usize;
/// Gaps before the meter says anything: fewer make no distribution.
const GAPS_MIN: u32 = 64;
/// Gaps after which all counts are halved: the meter forgets a changed workload within as many.
const GAPS_MAX: u32 = 4096;

/// The distribution of the gaps between arrivals, in fixed memory.
#[derive(Clone, Debug)]
pub(crate) struct GapMeter {
    counts: [u32; BUCKETS],
    total: u32,
    last: Option<Time>,
    /// `longer[i]`: the share of gaps that reach the lower end of bucket `i`.
    longer: [f32; BUCKETS + 1],
    /// `waited_ns[i]`: nanoseconds that one waits for the next arrival in the mean, if no longer than to the lower end of bucket `i`.
    /// As of the last [`GapMeter::learn_hope`].
    waited_ns: [f32; BUCKETS + 1],
    /// How many more arrivals follow upon an arrival than upon any moment, in the mean and in the long run; zero if gaps are no more
    /// irregular than those of Poisson arrivals.
    excess: f32,
    likely: f32,
    /// `hope_ends_ns[i]`: nanoseconds after the last arrival at which hope ends for the lower end of bucket `i`. As of the last
    /// [`GapMeter::learn_hope`].
    hope_ends_ns: [u64; BUCKETS + 1],
    known: bool,
}

impl GapMeter {
    /// For waiting as long as another arrival is at least as likely as `likely`, from 0 to below 1.
    pub(crate) const fn new(likely: f32) -> Self {
        Self {
            counts: [0; BUCKETS],
            total: 0,
            last: None,
            longer: [0.0; BUCKETS + 1],
            waited_ns: [0.0; BUCKETS + 1],
            excess: 0.0,
            likely,
            hope_ends_ns: [0; BUCKETS + 1],
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

    /// Brings the distribution up to date with the counts; call it every few hundred arrivals at the least. Whoever asks
    /// [`GapMeter::hope_ends`] or [`GapMeter::pays_until`] lets [`GapMeter::learn_hope`] follow.
    pub(crate) fn learn(&mut self) {
        if self.total < GAPS_MIN {
            return;
        }
        // First the sums, then the shares: divisions that need not wait for each other.
        let (mut above, mut from) = (0, [0; BUCKETS]);
        for (from, count) in from.iter_mut().zip(&self.counts).rev() {
            above += count;
            *from = above;
        }
        let total = self.total as f32;
        for (longer, &from) in self.longer.iter_mut().zip(&from) {
            // Far less than 2³¹, where numbers with and without a sign are the same.
            *longer = from as i32 as f32 / total;
        }
        self.learn_excess();
        self.known = true;
    }

    /// Brings up to date what tells how long to wait, after [`GapMeter::learn`].
    pub(crate) fn learn_hope(&mut self) {
        if self.known {
            self.learn_waits();
            self.learn_ends();
        }
    }

    fn learn_waits(&mut self) {
        let mut waited = 0.0;
        for (bucket, width) in WIDTHS.iter().enumerate() {
            self.waited_ns[bucket] = waited;
            // Within a bucket the share that is longer falls evenly.
            waited += width * 0.5 * (self.longer[bucket] + self.longer[bucket + 1]);
        }
        self.waited_ns[BUCKETS] = waited;
    }

    /// The renewal function m(t) → t/μ + (σ²/μ² − 1)/2 as t grows, counted from an arrival (W. Feller, An Introduction to Probability
    /// Theory and Its Applications, volume 2, XI.3).
    fn learn_excess(&mut self) {
        let (mut mean, mut square) = (0.0, 0.0);
        // Most buckets are longer or shorter than any gap.
        for (bucket, middle) in MIDDLES.iter().enumerate().filter(|&(bucket, _)| self.counts[bucket] > 0) {
            let share = self.longer[bucket] - self.longer[bucket + 1];
            mean += share * middle;
            square += share * middle * middle;
        }
        // Both are above zero: the first bucket has a width.
        self.excess = ((square / (mean * mean) - 2.0) / 2.0).max(0.0);
    }

    /// Where hope ends for the time at the lower end of each bucket, all in one pass: the later that time, the later
    /// hope ends.
    fn learn_ends(&mut self) {
        let mut from = 0;
        for until in 0..=BUCKETS {
            // P(gap ≤ u | gap > e) < likely  ⇔  longer(u) > (1 − likely)·longer(e): as e grows, longer(e) falls.
            let bound = self.longer[until] / (1.0 - self.likely);
            // The first bucket at whose upper end the share has fallen under the bound.
            while from < BUCKETS - 1 && self.longer[from + 1] >= bound {
                from += 1;
            }
            let (most, least) = (self.longer[from], self.longer[from + 1]);
            let within = if most > least { ((most - bound) / (most - least)).clamp(0.0, 1.0) } else { 0.0 };
            let (low, high) = (lower_end(from), lower_end(from + 1));
            self.hope_ends_ns[until] = low + (within * (high - low) as f32) as u64;
        }
    }

    /// From when on it is no longer worth waiting until `until`: the moment at which, if nothing arrived before, another
    /// arrival by `until` has become less likely than asked for. `None` while too little is known.
    #[inline]
    #[must_use]
    pub(crate) fn hope_ends(&self, until: Time) -> Option<Time> {
        let last = self.last.filter(|_| self.known)?;
        let gap = until.since(last);
        let (bucket, within) = place_of(gap);
        let (from, to) = (self.hope_ends_ns[bucket], self.hope_ends_ns[bucket + 1]);
        Some(last + Nanos::new(from + (within * (to - from) as f32) as u64))
    }

    /// The share of gaps that are longer than this.
    #[inline]
    fn longer_than(&self, gap: Nanos) -> f32 {
        let (bucket, within) = place_of(gap);
        self.longer[bucket] + within * (self.longer[bucket + 1] - self.longer[bucket])
    }

    /// How many items a wait from now on is expected to bring, at `rate` items per second: none without another arrival, which has
    /// become the less likely the longer none came; and then those that follow upon it in the half of the wait that is left in the
    /// mean. By the rate alone while too little is known.
    #[inline]
    #[must_use]
    pub(crate) fn company(&self, now: Time, wait: Nanos, rate: f64) -> f64 {
        let by_rate = rate * wait.as_secs_f64();
        let Some(last) = self.last.filter(|_| self.known) else { return by_rate };
        let mut longer = self.longer_than((now + wait).since(last));
        // Mostly it is asked upon an arrival, when all gaps are longer than what has passed.
        if now > last {
            let passed = self.longer_than(now.since(last));
            if passed <= 0.0 {
                // It has never been as long: nothing says that another arrival is near.
                return 0.0;
            }
            longer /= passed;
        }
        let first = (1.0 - longer).max(0.0);
        let mut then = 1.0 + by_rate / 2.0;
        if self.excess > 0.0 {
            let again = 1.0 - self.longer_than(Nanos::new(wait.get() / 2));
            then += f64::from(again * self.excess);
        }
        f64::from(first) * then
    }

    /// How many more arrivals follow upon an arrival than upon any moment, (σ²/μ² − 1)/2 by gaps of mean μ and variance σ². `None` while
    /// too little is known.
    pub(crate) fn excess(&self) -> Option<f32> {
        self.known.then_some(self.excess)
    }

    /// Until when it pays to wait for an arrival that saves `gain`, `until` at the latest: until then the time waited is less, in
    /// the mean, than the gain times how likely the arrival is. `None` while too little is known.
    #[must_use]
    pub(crate) fn pays_until(&self, now: Time, until: Time, gain: Nanos) -> Option<Time> {
        let last = self.last.filter(|_| self.known)?;
        let from = bucket_of(now.since(last));
        let to = bucket_of(until.since(last)).max(from);
        let gain_ns = gain.get() as f32;
        // Who waits until u at the most waits min(gap, u), and goes without the gain if the gap is longer. The best u is where
        // the sum of both is least; of what has passed already both have the same part.
        let best = from + first_least(&self.waited_ns[from..=to], &self.longer[from..=to], gain_ns);
        Some(if best == to { until } else { (last + Nanos::new(lower_end(best))).max(now) })
    }
}

/// Sums that are looked at side by side.
const LANES: usize = 8;

/// Where `waited + gain · longer` is least, and first so. There are some fifty sums for each arrival: their minimum is found in lanes,
/// then its place.
fn first_least(waited_ns: &[f32], longer: &[f32], gain_ns: f32) -> usize {
    let cost = |(&waited, &longer): (&f32, &f32)| waited + gain_ns * longer;
    let lesser = |a: f32, b: f32| if a < b { a } else { b };
    let mut least = [f32::INFINITY; LANES];
    let (waited_lanes, longer_lanes) = (waited_ns.chunks_exact(LANES), longer.chunks_exact(LANES));
    let rest = waited_lanes.remainder().iter().zip(longer_lanes.remainder()).map(cost).fold(f32::INFINITY, lesser);
    for lanes in waited_lanes.zip(longer_lanes) {
        for (lane, least) in least.iter_mut().enumerate() {
            *least = lesser(cost((&lanes.0[lane], &lanes.1[lane])), *least);
        }
    }
    let least = least.into_iter().fold(rest, lesser);
    waited_ns.iter().zip(longer).map(cost).position(|cost| cost <= least).unwrap_or(0)
}

/// The bucket of a gap, and how far into it the gap reaches, up to one.
#[inline]
fn place_of(gap: Nanos) -> (usize, f32) {
    let bucket = bucket_of(gap);
    // Less than 2⁶³, as is every gap but those that are cut to one.
    let into = (gap.get() - lower_end(bucket)).min(WIDTH_MAX) as i64 as f32;
    // All widths but the first are powers of two: to multiply by their inverse is to divide by them, to the last bit.
    let within = if bucket == 0 { into / LOWER_ENDS[1] as f32 } else { into * INVERSE_WIDTHS[bucket] };
    (bucket, within.min(1.0))
}

#[inline]
fn bucket_of(gap: Nanos) -> usize {
    // In quarters of the first bucket, so that the two bits below the highest one are there for the shortest gaps too.
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
    // The first bucket begins with no gap at all.
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

/// The middle of each bucket.
const MIDDLES: [f32; BUCKETS] = {
    let mut middles = [0.0; BUCKETS];
    let mut bucket = 0;
    while bucket < BUCKETS {
        middles[bucket] = (LOWER_ENDS[bucket] + LOWER_ENDS[bucket + 1]) as f32 / 2.0;
        bucket += 1;
    }
    middles
};

/// No bucket is wider.
const WIDTH_MAX: u64 = LOWER_ENDS[BUCKETS];

/// One through the width of each bucket.
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
        let mut meter = GapMeter::new(0.5);
        assert_eq!(meter.hope_ends(Time::from_nanos(1_000_000)), None);
        let mut last = Time::ZERO;
        for burst in 0..100_u64 {
            for at in 0..10 {
                last = Time::from_nanos((burst * 100 + at) * 1_000_000);
                meter.count(last);
            }
        }
        meter.learn();
        meter.learn_hope();
        // Within ten milliseconds another one is likely until a millisecond has passed without one.
        let ends = meter.hope_ends(last + Nanos::from_millis(10)).unwrap();
        let waited = ends.since(last);
        assert!((Nanos::from_micros(700)..Nanos::from_micros(1_400)).contains(&waited), "{waited}");
        // Nothing is known to come sooner than a microsecond.
        assert!(meter.hope_ends(last + Nanos::from_micros(100)).unwrap() <= last + Nanos::from_micros(1));
    }

    #[test]
    fn waiting_pays_as_long_as_it_is_shorter_than_what_it_gains() {
        let mut meter = GapMeter::new(0.5);
        let ms = Nanos::from_millis;
        assert_eq!(meter.pays_until(Time::ZERO, Time::ZERO + ms(5), ms(100)), None);
        // Pairs a millisecond apart, then 9 ms of nothing.
        let mut last = Time::ZERO;
        for pair in 0..200_u64 {
            for at in 0..2 {
                last = Time::from_nanos((pair * 10 + at) * 1_000_000);
                meter.count(last);
            }
        }
        meter.learn();
        meter.learn_hope();
        let waits = |since: u64, gain_ms: u64| {
            let now = last + ms(since);
            meter.pays_until(now, last + ms(20), ms(gain_ms)).unwrap().since(now)
        };
        // Half a millisecond for one chance in two: it pays for a gain of three milliseconds, up to the end of that bucket.
        assert!((ms(1)..ms(2)).contains(&waits(0, 3)), "{}", waits(0, 3));
        assert_eq!(waits(0, 1), Nanos::ZERO);
        // Once the second has not come, the next pair is up to seven milliseconds away, and sure to come.
        assert_eq!(waits(2, 3), Nanos::ZERO);
        assert!((ms(6)..ms(10)).contains(&waits(2, 12)), "{}", waits(2, 12));
    }

    #[test]
    fn company_is_what_follows_upon_an_arrival_and_nothing_once_the_burst_is_over() {
        let ms = Nanos::from_millis;
        let mut meter = GapMeter::new(0.5);
        assert_eq!(meter.company(Time::ZERO, ms(20), 100.0), 2.0);
        // Bursts of ten, a millisecond apart, then 91 ms of nothing: a hundred a second.
        let mut last = Time::ZERO;
        for burst in 0..100_u64 {
            for at in 0..10 {
                last = Time::from_nanos((burst * 100 + at) * 1_000_000);
                meter.count(last);
            }
        }
        meter.learn();
        // The rate says one more within ten milliseconds; somewhere in a burst, it is several.
        let within = meter.company(last, ms(10), 100.0);
        assert!((3.0..8.0).contains(&within), "{within}");
        // Ten milliseconds later the burst is over, and the next one is far.
        assert!(meter.company(last + ms(10), ms(10), 100.0) < 0.05);
        // When it is near, it is certain.
        assert!(meter.company(last + ms(85), ms(20), 100.0) > 3.0);
        // What has never been waited for that long is not waited for.
        assert_eq!(meter.company(last + ms(200), ms(10), 100.0), 0.0);
    }

    #[test]
    fn arrivals_without_memory_bring_what_their_rate_says() {
        // Gaps at the middles of a hundred equal shares of an exponential distribution with mean 10 ms.
        let mut meter = GapMeter::new(0.5);
        let mut now = Time::ZERO;
        meter.count(now);
        for _ in 0..10 {
            for share in 0..100_u32 {
                let gap_s = -0.01 * (1.0 - (f64::from(share) + 0.5) / 100.0).ln();
                now += Nanos::from_secs_f64(gap_s);
                meter.count(now);
            }
        }
        meter.learn();
        for since_ms in [0, 3, 10] {
            let company = meter.company(now + Nanos::from_millis(since_ms), Nanos::from_millis(10), 100.0);
            assert!((0.8..1.2).contains(&company), "{since_ms}: {company}");
        }
    }
}
