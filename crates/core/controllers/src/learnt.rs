//! Merges the stretches that successive leads reported for one profile; each lead knows only its own measurements.

use symphony_types::{LatencyProfile, PROFILE_BATCH_MAX};

use crate::stretch::{Stretch, stretched};

/// The most reports kept per profile: the newest lead's, and earlier ones that measured larger batches.
const REPORTS_MAX: usize = 4;

/// A lead's report on a profile. It holds for batches up to the largest measured one; beyond, it is an extrapolation.
#[derive(Clone, Debug, PartialEq)]
pub struct Learnt {
    /// By how much batches take longer than given.
    pub stretch: Stretch,
    /// The largest measured batch size, from 1 to [`PROFILE_BATCH_MAX`].
    pub measured_max: u32,
}

/// The valid reports on one profile. A newer report replaces older ones up to its largest measured batch; beyond that
/// an older report holds as far as it measured, and beyond all measurements the nearest report is extrapolated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearntReports {
    /// Newest last; each covers less than its predecessor.
    reports: Vec<Learnt>,
}

impl LearntReports {
    /// Adds a newer report.
    pub fn take(&mut self, report: Learnt) {
        self.reports.retain(|older| older.measured_max > report.measured_max);
        self.reports.push(report);
        if self.reports.len() > REPORTS_MAX {
            // Drop the one that adds least to the newest; its range is then extrapolated from its predecessor.
            self.reports.remove(REPORTS_MAX - 1);
        }
    }

    /// Factor by which a batch takes longer than given.
    #[must_use]
    pub fn factor(&self, batch: u32) -> f64 {
        let covers = self.reports.iter().rev().find(|report| report.measured_max >= batch);
        covers.or(self.reports.first()).map_or(1.0, |report| report.stretch.factor(batch))
    }

    /// The given profile, stretched and made monotone.
    #[must_use]
    pub fn over(&self, given: &LatencyProfile) -> LatencyProfile {
        stretched(given, |batch| self.factor(batch))
    }

    /// The largest factor over all batch sizes.
    #[must_use]
    pub fn largest(&self) -> f64 {
        let mut from = 1;
        let largest = self.reports.iter().enumerate().rev().map(|(at, report)| {
            let to = if at == 0 { PROFILE_BATCH_MAX } else { report.measured_max };
            let largest = report.stretch.largest_within(from, to);
            from = to.saturating_add(1);
            largest
        });
        largest.reduce(f64::max).unwrap_or(1.0)
    }

    /// Whether batches take the given time, according to all reports.
    #[must_use]
    pub fn changes_nothing(&self) -> bool {
        self.reports.iter().all(|report| report.stretch.changes_nothing())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(factor: f64, measured_max: u32) -> Learnt {
        Learnt { stretch: Stretch::from_points(vec![(1, factor)]).unwrap(), measured_max }
    }

    fn reports(given: &[(f64, u32)]) -> LearntReports {
        let mut reports = LearntReports::default();
        given.iter().for_each(|&(factor, measured_max)| reports.take(report(factor, measured_max)));
        reports
    }

    #[test]
    fn a_report_replaces_what_was_said_of_batches_that_it_covers_and_nothing_else() {
        let small = reports(&[(2.0, 32), (1.0, 4)]);
        assert_eq!([1, 4, 5, 32, 64].map(|batch| small.factor(batch)), [1.0, 1.0, 2.0, 2.0, 2.0]);
        assert!(small.largest() == 2.0 && !small.changes_nothing());
        // A lead repeats its report every second, with more measurements each time.
        assert_eq!(reports(&[(2.0, 32), (1.0, 4), (1.0, 4)]), small);
        let more = reports(&[(2.0, 32), (1.0, 4), (1.0, 8)]);
        assert_eq!([8, 9].map(|batch| more.factor(batch)), [1.0, 2.0]);
        let all = reports(&[(2.0, 32), (1.0, 4), (1.0, 32)]);
        assert!(all.changes_nothing() && all.largest() == 1.0 && all.factor(64) == 1.0);
        // Corrections too are limited to the measured range.
        let slightly = reports(&[(2.0, 32), (1.1, 4)]);
        assert_eq!([4, 5].map(|batch| slightly.factor(batch)), [1.1, 2.0]);
        assert_eq!(reports(&[]).factor(1), 1.0);
    }

    #[test]
    fn what_nobody_plans_by_any_more_is_not_the_largest() {
        // The larger factors are those of small batches, which the newer report overrides.
        let falling = Stretch::from_points(vec![(1, 3.0), (8, 3.0), (16, 1.5)]).unwrap();
        let mut reports = LearntReports::default();
        reports.take(Learnt { stretch: falling, measured_max: 32 });
        assert_eq!(reports.largest(), 3.0);
        reports.take(report(1.0, 12));
        assert!((reports.largest() - reports.factor(13)).abs() < 1e-9 && reports.largest() < 2.25, "{reports:?}");
    }

    #[test]
    fn ever_smaller_reports_are_bounded() {
        let reports = reports(&[(6.0, 64), (5.0, 32), (4.0, 16), (3.0, 8), (2.0, 4), (1.0, 2)]);
        assert_eq!(reports.reports.len(), REPORTS_MAX);
        assert_eq!([2, 3, 8, 16, 32, 64].map(|batch| reports.factor(batch)), [1.0, 4.0, 4.0, 4.0, 5.0, 6.0]);
    }

    proptest! {
        #[test]
        fn whatever_is_said_the_profile_rises_and_the_newest_report_holds_where_it_covers(
            taken in prop::collection::vec((0.01_f64..100.0, 1_u32..=64), 1..20)
        ) {
            let reports = reports(&taken);
            prop_assert!(reports.reports.len() <= REPORTS_MAX);
            let &(factor, measured_max) = taken.last().unwrap();
            for batch in 1..=measured_max {
                prop_assert_eq!(reports.factor(batch), factor);
            }
            let largest = (1..=PROFILE_BATCH_MAX).map(|batch| reports.factor(batch)).fold(0.0, f64::max);
            prop_assert_eq!(reports.largest(), largest);
            let given = LatencyProfile::from_line(1.0, 5.0, 64).unwrap();
            prop_assert!(reports.over(&given).table().is_sorted());
        }
    }
}
