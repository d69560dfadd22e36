//! Measures how long inputs take to arrive: a line over their bytes that few of them exceed (docs/adr/0030).

use symphony_types::{Nanos, PAYLOAD_DELAY_FORGOTTEN_AFTER, PayloadDelay, Time};

/// Reads remembered for each size.
const WINDOW: usize = 1024;
/// The slowest reads that are left out: a full window gives the 99.8 % quantile. A late batch is late as a whole, so
/// this is stricter than the promise to requests.
const LEFT_OUT: usize = 2;
/// Reads between two evaluations; each goes through all windows.
const EVALUATE_EVERY: u32 = 64;
/// The quantile of a size with fewer reads means nothing.
const READS_MIN: usize = 16;
/// After this time the next read also triggers an evaluation, so that the few reads in between are not forgotten.
const EVALUATE_AFTER: Nanos = Nanos::new(PAYLOAD_DELAY_FORGOTTEN_AFTER.get() / 2);
/// Reads show the cost of bytes only if the largest are this many bytes longer than the smallest. Between closer sizes
/// the noise of two quantiles is the larger part of their difference, and a MiB would be charged many times that noise.
const SLOPE_BYTES_MIN: u64 = 256 << 10;
/// Sizes: below 1 KiB, below 2 KiB, … and all from 1 GiB on.
const SIZES: usize = 22;
/// Bytes of the smallest size, exclusive.
const SMALLEST_BYTES: u64 = 1 << 10;
/// Bytes in a MiB.
const MIB: u64 = 1 << 20;
/// The reported value falls in steps of one in eight, and only if the measurement is lower by that much: planners are
/// told of changes, not of every evaluation.
const FALL_SHARE: u64 = 8;

/// The newest reads of one size.
#[derive(Clone, Debug, Default)]
struct Size {
    reads: Vec<(Time, Nanos)>,
    next: usize,
}

impl Size {
    fn note(&mut self, now: Time, took: Nanos) {
        if self.reads.len() < WINDOW {
            self.reads.push((now, took));
        } else {
            self.reads[self.next] = (now, took);
        }
        self.next = (self.next + 1) % WINDOW;
    }

    fn quantile(&self, now: Time, sorted: &mut Vec<Nanos>) -> Option<Nanos> {
        sorted.clear();
        sorted.extend(
            self.reads.iter().filter(|(at, _)| *at + PAYLOAD_DELAY_FORGOTTEN_AFTER >= now).map(|(_, took)| *took),
        );
        if sorted.len() < READS_MIN {
            return None;
        }
        let rank = sorted.len() - 1 - LEFT_OUT;
        Some(*sorted.select_nth_unstable(rank).1)
    }
}

/// Measures how long reads of inputs take. Memory is bounded: 16 KiB for each size that is read.
#[derive(Clone, Debug, Default)]
pub struct PayloadMeter {
    sizes: [Size; SIZES],
    since_evaluation: u32,
    evaluated_at: Time,
    /// When that was last confirmed.
    last_delay: Option<(Time, PayloadDelay)>,
    sorted: Vec<Nanos>,
}

impl PayloadMeter {
    /// Records a read of this many bytes, all inputs that one batch has from one frontend.
    pub fn note(&mut self, now: Time, bytes: u64, took: Nanos) {
        let size = (bytes / SMALLEST_BYTES).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.sizes[size.min(SIZES - 1)].note(now, took);
        self.since_evaluation += 1;
        if self.since_evaluation >= EVALUATE_EVERY || now.since(self.evaluated_at) >= EVALUATE_AFTER {
            (self.since_evaluation, self.evaluated_at) = (0, now);
            self.update_delay(now);
        }
    }

    /// The delay to plan for; none before enough was read, or if too little was read lately. It rises at once and falls
    /// slowly.
    #[must_use]
    pub fn delay(&self, now: Time) -> Option<PayloadDelay> {
        let last_delay = self.last_delay.filter(|(at, _)| *at + PAYLOAD_DELAY_FORGOTTEN_AFTER >= now);
        last_delay.map(|(_, delay)| delay)
    }

    fn update_delay(&mut self, now: Time) {
        let Some(line) = self.line(now) else { return };
        let follow = |last: Nanos, measured: Nanos| {
            let step = Nanos::new(last.get().div_ceil(FALL_SHARE));
            if measured > last {
                measured
            } else if measured < last - step {
                last - step
            } else {
                last
            }
        };
        let next = self.delay(now).map_or(line, |last| PayloadDelay {
            fixed: follow(last.fixed, line.fixed),
            per_mib: follow(last.per_mib, line.per_mib),
        });
        self.last_delay = Some((now, next));
    }

    /// The line with the slope from the smallest size to the largest (zero if these are close to each other) that no
    /// size's quantile exceeds. A size class counts as its smallest size in bytes, so that none of its reads gets less
    /// than the quantile.
    fn line(&mut self, now: Time) -> Option<PayloadDelay> {
        let mut points = [(0_u64, Nanos::ZERO); SIZES];
        let mut found = 0;
        for (index, size) in self.sizes.iter().enumerate() {
            if let Some(quantile) = size.quantile(now, &mut self.sorted) {
                let bytes = if index == 0 { 0 } else { SMALLEST_BYTES << (index - 1) };
                points[found] = (bytes, quantile);
                found += 1;
            }
        }
        let points = &points[..found];
        let (&(fewest, least), &(most, longest)) = (points.first()?, points.last()?);
        let (bytes, longer) = (u128::from(most - fewest), u128::from((longest - least).get()));
        let slope = if bytes < SLOPE_BYTES_MIN.into() { 0 } else { (longer * u128::from(MIB)).div_ceil(bytes) };
        let per_mib = Nanos::new(u64::try_from(slope).unwrap_or(u64::MAX));
        let sloped = PayloadDelay { fixed: Nanos::ZERO, per_mib };
        let fixed = points.iter().map(|&(bytes, quantile)| quantile - sloped.of(bytes)).max()?;
        Some(PayloadDelay { fixed, per_mib })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(micros: u64) -> Nanos {
        Nanos::from_micros(micros)
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Nanos::from_millis(seconds * 1000)
    }

    fn notes(meter: &mut PayloadMeter, now: Time, bytes: u64, took: Nanos, times: usize) {
        (0..times).for_each(|_| meter.note(now, bytes, took));
    }

    #[test]
    fn a_line_over_bytes_is_found_and_no_size_is_above_it() {
        let mut meter = PayloadMeter::default();
        notes(&mut meter, at(1), 1 << 10, micros(200), 63);
        assert_eq!(meter.delay(at(1)), None, "too few to say anything");
        notes(&mut meter, at(1), 1 << 10, micros(200), 1);
        assert_eq!(meter.delay(at(1)), Some(PayloadDelay { fixed: micros(200), per_mib: Nanos::ZERO }));
        notes(&mut meter, at(1), 4 << 20, micros(4200), 64);
        // A size in the middle that is slower lifts the line.
        notes(&mut meter, at(1), 1 << 20, micros(2200), 64);
        let delay = meter.delay(at(1)).unwrap();
        for (bytes, took) in [(1 << 10, 200), (1 << 20, 2200), (4 << 20, 4200)] {
            assert!(delay.of(bytes) >= micros(took), "{bytes}: {delay:?}");
        }
        assert!(delay.of(4 << 20) < micros(6000), "{delay:?}");
    }

    #[test]
    fn two_reads_in_a_thousand_are_left_out_and_three_are_not() {
        let mut meter = PayloadMeter::default();
        notes(&mut meter, at(1), 100, micros(100), WINDOW - 2);
        notes(&mut meter, at(1), 100, micros(9000), 2);
        assert_eq!(meter.delay(at(1)).unwrap().of(100), micros(100));
        notes(&mut meter, at(1), 100, micros(9000), 1);
        notes(&mut meter, at(1), 100, micros(100), 63);
        assert_eq!(meter.delay(at(1)).unwrap().of(100), micros(9000));
    }

    #[test]
    fn it_falls_slowly_and_what_is_not_read_any_more_is_forgotten() {
        let mut meter = PayloadMeter::default();
        notes(&mut meter, at(1), 100, micros(8000), 64);
        notes(&mut meter, at(2), 100, micros(1000), WINDOW);
        let once = meter.delay(at(2)).unwrap().fixed;
        assert!(once < micros(8000) && once > micros(1000), "{once:?}");
        notes(&mut meter, at(2), 100, micros(1000), 64 * 64);
        let settled = meter.delay(at(2)).unwrap().fixed;
        assert!(settled >= micros(1000) && settled < micros(1200), "{settled:?}");
        // Large reads were slow long ago.
        notes(&mut meter, at(3), 1 << 20, micros(50_000), 64);
        assert!(meter.delay(at(3)).unwrap().of(1 << 20) >= micros(50_000));
        notes(&mut meter, at(3 + 601), 100, micros(1000), 64 * 64);
        let settled = meter.delay(at(3 + 601));
        assert!(settled.unwrap().of(1 << 20) < micros(1200), "{settled:?}");
    }

    /// Tails of small reads of different sizes differ by chance, and a MiB is a hundred of them.
    #[test]
    fn small_reads_say_nothing_about_large_ones() {
        let mut meter = PayloadMeter::default();
        notes(&mut meter, at(1), 1 << 10, micros(150), 64);
        notes(&mut meter, at(1), 16 << 10, micros(700), 64);
        notes(&mut meter, at(1), 255 << 10, micros(400), 64);
        let flat = PayloadDelay { fixed: micros(700), per_mib: Nanos::ZERO };
        assert_eq!(meter.delay(at(1)), Some(flat), "each of them is given what any took");
        notes(&mut meter, at(1), 512 << 10, micros(900), 64);
        let sloped = meter.delay(at(1)).unwrap();
        assert!(sloped.per_mib > micros(1_400) && sloped.per_mib < micros(1_600), "{sloped:?}");
        assert!(sloped.of(16 << 10) >= micros(700), "{sloped:?}");
    }

    #[test]
    fn what_nothing_confirms_is_forgotten_and_few_reads_confirm_it() {
        let mut meter = PayloadMeter::default();
        notes(&mut meter, at(1), 100, micros(8000), 64);
        // One read each twenty seconds: thirty in ten minutes.
        (1..=60).for_each(|read| meter.note(at(20 * read), 100, micros(8000)));
        assert_eq!(meter.delay(at(1200)).unwrap().fixed, micros(8000));
        let last = (1200..3000).find(|&second| meter.delay(at(second)).is_none()).unwrap();
        assert!((1500..=1801).contains(&last), "{last}");
        // A new meter does not come down from there.
        notes(&mut meter, at(2000), 100, micros(100), 65);
        assert_eq!(meter.delay(at(2000)).unwrap().fixed, micros(100));
    }

    #[test]
    fn nothing_overflows() {
        let mut meter = PayloadMeter::default();
        notes(&mut meter, at(1), 0, Nanos::ZERO, 64);
        notes(&mut meter, at(1), u64::MAX, Nanos::MAX, 64);
        let delay = meter.delay(at(1)).unwrap();
        assert_eq!(delay.of(u64::MAX), Nanos::MAX);
        assert_eq!(PayloadDelay { fixed: Nanos::MAX, per_mib: Nanos::MAX }.of(u64::MAX), Nanos::MAX);
    }
}
