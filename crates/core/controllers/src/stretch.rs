//! A learnt profile in a few numbers that can be sent: factors by which batches take longer than given.

use symphony_types::{LatencyProfile, Nanos, PROFILE_BATCH_MAX};

/// The most points of a stretch: sixteen approximate any corrected profile to within a few percent.
pub const STRETCH_POINTS_MAX: usize = 16;

/// Points are added until the error is below this share: a fifth of the least published change.
const CLOSE_ENOUGH: f64 = 0.01;

/// Factors outside this range are invalid: samples are clamped to 1/16 and 16, and isotonic regression stays between
/// neighbours.
const FACTOR_RANGE: (f64, f64) = (1e-3, 1e3);

/// The slowdown of a model's batches relative to its given profile, by batch size: piecewise linear between the points,
/// constant beyond them.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// In rising order of batch sizes; never empty.
    points: Vec<(u32, f64)>,
}

/// Why points do not make a stretch.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StretchError {
    /// There are none, or too many.
    #[error("{points} batch sizes; expected 1 to {STRETCH_POINTS_MAX}")]
    Count {
        /// Their number.
        points: usize,
    },
    /// A batch size is not above its predecessor, or beyond the largest possible one.
    #[error("batch size {batch} after {before}; expected rising ones up to {PROFILE_BATCH_MAX}")]
    Batch {
        /// The batch size at fault.
        batch: u32,
        /// Its predecessor.
        before: u32,
    },
    /// A factor is invalid.
    #[error("factor {factor} of batch size {batch}; expected {} to {}", FACTOR_RANGE.0, FACTOR_RANGE.1)]
    Factor {
        /// Its batch size.
        batch: u32,
        /// The factor that was given.
        factor: f64,
    },
}

impl Stretch {
    /// The stretch of these batch sizes and factors.
    ///
    /// # Errors
    /// If they are too few or too many, do not rise, or a factor is out of range or no number.
    pub fn from_points(points: Vec<(u32, f64)>) -> Result<Self, StretchError> {
        if points.is_empty() || points.len() > STRETCH_POINTS_MAX {
            return Err(StretchError::Count { points: points.len() });
        }
        let mut before = 0;
        for &(batch, factor) in &points {
            if batch <= before || batch > PROFILE_BATCH_MAX {
                return Err(StretchError::Batch { batch, before });
            }
            if !(FACTOR_RANGE.0..=FACTOR_RANGE.1).contains(&factor) {
                return Err(StretchError::Factor { batch, factor });
            }
            before = batch;
        }
        Ok(Self { points })
    }

    /// The stretch from `given` to `real`, as accurate as the number of points allows: points are added where the error
    /// is largest.
    #[must_use]
    pub fn between(given: &LatencyProfile, real: &LatencyProfile) -> Self {
        let batch_max = given.batch_max().min(real.batch_max());
        let factor = |batch: u32| {
            let factor = real.latency(batch).get() as f64 / given.latency(batch).get() as f64;
            factor.clamp(FACTOR_RANGE.0, FACTOR_RANGE.1)
        };
        let mut stretch = Self { points: vec![(1, factor(1))] };
        while stretch.points.len() < STRETCH_POINTS_MAX {
            let off = |batch: u32| (stretch.factor(batch) / factor(batch) - 1.0).abs();
            let furthest = (1..=batch_max).map(|batch| (off(batch), batch)).max_by(|a, b| a.0.total_cmp(&b.0));
            let Some((_, batch)) = furthest.filter(|&(off, _)| off > CLOSE_ENOUGH) else { break };
            let place = stretch.points.partition_point(|&(known, _)| known < batch);
            stretch.points.insert(place, (batch, factor(batch)));
        }
        stretch
    }

    /// Batch sizes and factors, at most [`STRETCH_POINTS_MAX`], in rising order of batch sizes.
    #[must_use]
    pub fn points(&self) -> &[(u32, f64)] {
        &self.points
    }

    /// The factor by which a batch takes longer than given.
    #[must_use]
    pub fn factor(&self, batch: u32) -> f64 {
        let points = self.points.iter().map(|&(batch, factor)| (f64::from(batch), factor));
        in_proportion(points, f64::from(batch)).unwrap_or(1.0)
    }

    /// The largest factor within a range of batch sizes.
    pub(crate) fn largest_within(&self, from: u32, to: u32) -> f64 {
        let inside = self.points.iter().filter(|(batch, _)| (from..=to).contains(batch)).map(|&(_, factor)| factor);
        // Linear between points, so the maximum is at a point or at an end of the range.
        inside.chain([self.factor(from), self.factor(to)]).fold(0.0, f64::max)
    }

    /// Whether the stretch is neutral: batches take the given time.
    #[must_use]
    pub fn changes_nothing(&self) -> bool {
        self.points.iter().all(|&(_, factor)| factor == 1.0)
    }

    /// The given profile, stretched and made monotone.
    #[must_use]
    pub fn over(&self, given: &LatencyProfile) -> LatencyProfile {
        stretched(given, |batch| self.factor(batch))
    }
}

/// Multiplies each entry of the given profile by its factor and makes the result monotone: a batch takes at least as
/// long as every smaller one.
pub(crate) fn stretched(given: &LatencyProfile, factor: impl Fn(u32) -> f64) -> LatencyProfile {
    let mut longest = Nanos::new(1);
    let stretched = (1_u32..).zip(given.table()).map(|(batch, latency)| {
        longest = longest.max(Nanos::new((latency.get() as f64 * factor(batch)) as u64));
        longest
    });
    let table: Vec<_> = stretched.collect();
    // Same length as the given one, without zeros, rising.
    LatencyProfile::from_table(&table).unwrap_or_else(|_| given.clone())
}

/// Linear interpolation between points of rising abscissae, constant beyond them. `None` without points.
pub(crate) fn in_proportion(points: impl Iterator<Item = (f64, f64)>, at: f64) -> Option<f64> {
    let mut before: Option<(f64, f64)> = None;
    for (place, value) in points {
        if place >= at {
            return Some(before.map_or(value, |(from, start)| start + (at - from) / (place - from) * (value - start)));
        }
        before = Some((place, value));
    }
    before.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line() -> LatencyProfile {
        LatencyProfile::from_line(1.0, 5.0, 64).unwrap()
    }

    fn slower(factor: impl Fn(u32) -> f64) -> LatencyProfile {
        let table = (1_u32..).zip(line().table().to_vec());
        let table: Vec<_> = table.map(|(b, ns)| Nanos::new((ns.get() as f64 * factor(b)) as u64)).collect();
        LatencyProfile::from_table(&table).unwrap()
    }

    #[test]
    fn what_is_slower_by_one_factor_is_one_point_and_a_bend_is_found() {
        let twice = Stretch::between(&line(), &slower(|_| 2.0));
        assert_eq!(twice.points(), [(1, 2.0)]);
        assert_eq!((twice.over(&line()), twice.largest_within(1, 64)), (slower(|_| 2.0), 2.0));
        let same = Stretch::between(&line(), &line());
        assert!(same.points() == [(1, 1.0)] && same.changes_nothing() && !twice.changes_nothing());
        let bent = slower(|batch| if batch <= 16 { 1.5 } else { 1.5 + f64::from(batch - 16) / 32.0 });
        let stretch = Stretch::between(&line(), &bent);
        assert!(stretch.points().len() <= 6, "{stretch:?}");
        for batch in 1..=64 {
            let off = stretch.over(&line()).latency(batch).get() as f64 / bent.latency(batch).get() as f64;
            assert!((off - 1.0).abs() <= 2.0 * CLOSE_ENOUGH, "batch {batch}: {off}");
        }
    }

    #[test]
    fn what_is_no_stretch_is_refused() {
        let refused = |points: &[(u32, f64)]| Stretch::from_points(points.to_vec()).unwrap_err().to_string();
        assert!(refused(&[]).contains("0 batch sizes"));
        assert!(refused(&[(1, 1.0); STRETCH_POINTS_MAX + 1]).contains("17 batch sizes"));
        assert!(refused(&[(4, 1.0), (4, 1.0)]).contains("4 after 4"));
        assert!(refused(&[(0, 1.0)]).contains("0 after 0"));
        assert!(refused(&[(PROFILE_BATCH_MAX + 1, 1.0)]).contains("4097"));
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e4] {
            assert!(refused(&[(1, factor)]).contains("factor"), "{factor}");
        }
    }

    proptest! {
        #[test]
        fn whatever_arrives_is_refused_or_makes_a_profile(points in prop::collection::vec((0_u32..5000, any::<f64>()), 0..20)) {
            if let Ok(stretch) = Stretch::from_points(points) {
                let stretched = stretch.over(&line());
                prop_assert_eq!(stretched.batch_max(), line().batch_max());
                prop_assert!(stretched.table().is_sorted());
            }
        }

        #[test]
        fn what_was_made_of_a_profile_arrives_and_makes_it_again(steps in prop::collection::vec(0_u64..40_000_000, 64)) {
            let rising = steps.iter().scan(1_000_000, |sum, step| { *sum += step; Some(Nanos::new(*sum)) });
            let real = LatencyProfile::from_table(&rising.collect::<Vec<_>>()).unwrap();
            let stretch = Stretch::between(&line(), &real);
            prop_assert_eq!(Stretch::from_points(stretch.points().to_vec()), Ok(stretch.clone()));
            // Exact at its points.
            for &(batch, _) in stretch.points() {
                let (is, was) = (stretch.over(&line()).latency(batch).get(), real.latency(batch).get());
                prop_assert!(is.abs_diff(was) <= was / 4, "batch {}: {} and {}", batch, is, was);
            }
        }
    }
}
