//! The outcomes of one model's requests; tallies of several models or runs add up.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Good answers whose times are kept to find gaps: 32 MB. A run with more has counts and latencies but no gaps.
pub const GOOD_TIMES_MAX: usize = 1 << 22;
/// Reasons that are counted by name; further ones are counted as `other`.
pub const REASONS_MAX: usize = 32;

/// The longest latency that a histogram distinguishes, in microseconds: an hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;
/// Significant digits of a histogram: 0.1 %.
const DIGITS: u8 = 3;

/// The outcomes of one model's requests. Requests of the warm-up count only in `sent`, `lost`, `answered_twice` and
/// `foreign`: these are wrong at any time.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Requests due in the counted time.
    pub offered: u64,
    /// Requests sent, warm-up included.
    pub sent: u64,
    /// Answered in time by this process's clock and by the server's status, and not foreign.
    pub good: u64,
    /// Answered late, by either's clock.
    pub late: u64,
    /// Refused before they were taken in, by reason.
    pub refused: BTreeMap<Cow<'static, str>, u64>,
    /// Dropped, by reason.
    pub dropped: BTreeMap<Cow<'static, str>, u64>,
    /// Failed, by reason.
    pub failed: BTreeMap<Cow<'static, str>, u64>,
    /// Never answered.
    pub lost: u64,
    /// Answers to requests that had been answered.
    pub answered_twice: u64,
    /// Answers that belong to another request or to none.
    pub foreign: u64,
    /// Answers that were judged, or their parts, and those of them that were right.
    pub judged: u64,
    /// Right answers.
    pub right: u64,
    /// Items per batch, summed over answers with a batch size.
    pub batch_items: u64,
    /// Answers with a batch size.
    pub batches_reported: u64,
    /// Bytes of outputs.
    pub bytes: u64,
    /// Latency of all answers with outputs, good and late, in microseconds.
    pub latency_us: Histogram<u64>,
    /// How late the generator was, in microseconds.
    pub lag_us: Histogram<u64>,
    /// When good answers came, since the start of the run, in microseconds; as they came.
    good_at_us: Vec<u64>,
    good_at_complete: bool,
}

/// A time without a good answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When it began, since the start of the run.
    pub begin: Duration,
    /// How long it was.
    pub length: Duration,
}

impl Tally {
    pub(super) fn new() -> Self {
        let histogram = || Histogram::new_with_max(LATENCY_US_MAX, DIGITS).expect("constant bounds, checked by tests");
        Self {
            offered: 0,
            sent: 0,
            good: 0,
            late: 0,
            refused: BTreeMap::new(),
            dropped: BTreeMap::new(),
            failed: BTreeMap::new(),
            lost: 0,
            answered_twice: 0,
            foreign: 0,
            judged: 0,
            right: 0,
            batch_items: 0,
            batches_reported: 0,
            bytes: 0,
            latency_us: histogram(),
            lag_us: histogram(),
            good_at_us: Vec::new(),
            good_at_complete: true,
        }
    }

    pub(super) fn note_lag(&mut self, lag: Duration) {
        self.lag_us.saturating_record(micros(lag));
    }

    pub(super) fn note_latency(&mut self, latency: Duration) {
        self.latency_us.saturating_record(micros(latency));
    }

    pub(super) fn note_good(&mut self, at: Duration) {
        self.good += 1;
        self.keep_good_times(&[micros(at)]);
    }

    fn keep_good_times(&mut self, times: &[u64]) {
        let room = GOOD_TIMES_MAX - self.good_at_us.len();
        self.good_at_complete &= times.len() <= room;
        self.good_at_us.extend(&times[..times.len().min(room)]);
    }

    /// Counts a reason in one of the tally's maps.
    pub(super) fn count_reason(reasons: &mut BTreeMap<Cow<'static, str>, u64>, reason: Cow<'static, str>, times: u64) {
        const OTHER: &str = "other";
        let named = reasons.len() - usize::from(reasons.contains_key(OTHER));
        let known = reasons.contains_key(&reason) || named < REASONS_MAX;
        *reasons.entry(if known { reason } else { OTHER.into() }).or_default() += times;
    }

    /// Adds the outcomes of another model's requests in the same run.
    pub fn merge(&mut self, other: &Self) {
        self.offered += other.offered;
        self.sent += other.sent;
        self.good += other.good;
        self.late += other.late;
        for (reason, times) in &other.refused {
            Self::count_reason(&mut self.refused, reason.clone(), *times);
        }
        for (reason, times) in &other.dropped {
            Self::count_reason(&mut self.dropped, reason.clone(), *times);
        }
        for (reason, times) in &other.failed {
            Self::count_reason(&mut self.failed, reason.clone(), *times);
        }
        self.lost += other.lost;
        self.answered_twice += other.answered_twice;
        self.foreign += other.foreign;
        self.judged += other.judged;
        self.right += other.right;
        self.batch_items += other.batch_items;
        self.batches_reported += other.batches_reported;
        self.bytes += other.bytes;
        self.latency_us.add(&other.latency_us).expect("histograms of equal bounds");
        self.lag_us.add(&other.lag_us).expect("histograms of equal bounds");
        self.good_at_complete &= other.good_at_complete;
        self.keep_good_times(&other.good_at_us);
    }

    /// The longest time in [from, to], both since the start of the run, without a good answer: the blackout of a
    /// take-over, if the window contains one. None if the run had too many good answers to keep.
    #[must_use]
    pub fn longest_gap(&self, from: Duration, to: Duration) -> Option<Gap> {
        if !self.good_at_complete {
            return None;
        }
        let (from, to) = (micros(from), micros(to));
        let mut times: Vec<_> = self.good_at_us.iter().copied().filter(|t| (from..to).contains(t)).collect();
        times.sort_unstable();
        times.push(to);
        let (mut begin, mut longest, mut before) = (from, 0, from);
        for time in times {
            if time.saturating_sub(before) > longest {
                (begin, longest) = (before, time - before);
            }
            before = time;
        }
        Some(Gap { begin: Duration::from_micros(begin), length: Duration::from_micros(longest) })
    }

    /// Good answers in each second of the run, up to `seconds`.
    #[must_use]
    pub fn good_per_second(&self, seconds: usize) -> Vec<u64> {
        let mut counts = vec![0; seconds];
        for time in &self.good_at_us {
            if let Some(count) = usize::try_from(time / 1_000_000).ok().and_then(|second| counts.get_mut(second)) {
                *count += 1;
            }
        }
        counts
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_longest_gap_of_a_window_counts_its_edges_and_forgets_the_order() {
        let mut tally = Tally::new();
        assert_eq!(tally.longest_gap(10 * MS, 30 * MS), Some(Gap { begin: 10 * MS, length: 20 * MS }));
        for at in [500, 100, 120, 900, 880] {
            tally.note_good(at * MS);
        }
        assert_eq!(tally.longest_gap(Duration::ZERO, 1000 * MS), Some(Gap { begin: 120 * MS, length: 380 * MS }));
        assert_eq!(tally.longest_gap(Duration::ZERO, 130 * MS), Some(Gap { begin: Duration::ZERO, length: 100 * MS }));
        assert_eq!(tally.longest_gap(880 * MS, 2000 * MS), Some(Gap { begin: 900 * MS, length: 1100 * MS }));
        assert_eq!(tally.good_per_second(2), [5, 0]);
    }

    #[test]
    fn tallies_add_up_and_reasons_stay_bounded() {
        let (mut one, mut other) = (Tally::new(), Tally::new());
        one.note_good(MS);
        one.note_latency(10 * MS);
        other.note_good(2 * MS);
        other.note_latency(30 * MS);
        for reason in 0..50 {
            Tally::count_reason(&mut other.failed, format!("r{reason}").into(), 1);
        }
        one.merge(&other);
        assert_eq!((one.good, one.latency_us.len(), one.latency_us.max() / 1000), (2, 2, 30));
        assert_eq!(one.failed.values().sum::<u64>(), 50);
        assert_eq!(one.failed["other"], 18);
        assert_eq!(one.longest_gap(Duration::ZERO, 3 * MS).unwrap().length, MS);
    }
}
