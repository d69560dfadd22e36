//! A rate that changes during a run.

use symphony_types::Time;

use crate::check::Check;
use crate::error::ScenarioError;
use crate::limits::DURATION_S_MAX;

/// Steps of one profile.
pub const RATE_STEPS_MAX: usize = 100_000;
/// The largest factor.
const FACTOR_MAX: f64 = 1e6;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    from_ns: f64,
    factor: f64,
    /// ∫ factor dt up to `from_ns`: the elapsed time of an equivalent process at the scenario's own rate.
    worked_ns: f64,
}

/// Factors of the scenario's rate, each valid until the next one.
#[derive(Clone, Debug, PartialEq)]
pub struct RateProfile {
    steps: Vec<Step>,
}

impl RateProfile {
    pub(crate) fn check(check: &Check<'_>, key: &str, rows: &[[f64; 2]]) -> Result<Self, ScenarioError> {
        if rows.is_empty() || rows.len() > RATE_STEPS_MAX {
            return check.refuse(key, &format!("1 to {RATE_STEPS_MAX} steps [time_s, factor]"), rows.len());
        }
        let mut before: Option<f64> = None;
        for (position, &[time_s, factor]) in rows.iter().enumerate() {
            let key = format!("{key}.{position}");
            check.number(&key, time_s, 0.0, 2.0 * DURATION_S_MAX)?;
            check.number(&key, factor, 0.0, FACTOR_MAX)?;
            match before {
                None if time_s > 0.0 => return check.refuse(key, "a first step at time 0", time_s),
                Some(before) if time_s <= before => {
                    return check.refuse(key, "a time after that of the step before", time_s);
                }
                _ => before = Some(time_s),
            }
        }
        if rows.iter().all(|row| row[1] == 0.0) {
            return check.refuse(key, "at least one factor above 0", "none");
        }
        Ok(Self::of(rows.iter().map(|&[time_s, factor]| (time_s * 1e9, factor))))
    }

    /// Steps in the order of time, the first at zero.
    fn of(rows: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut steps: Vec<Step> = Vec::new();
        for (from_ns, factor) in rows {
            let worked_ns = steps.last().map_or(0.0, |last| last.worked_ns + (from_ns - last.from_ns) * last.factor);
            steps.push(Step { from_ns, factor, worked_ns });
        }
        Self { steps }
    }

    /// Both at once: the product of their factors at any time.
    pub(crate) fn times(&self, other: &Self) -> Self {
        let mut times: Vec<f64> = self.steps.iter().chain(&other.steps).map(|step| step.from_ns).collect();
        times.sort_unstable_by(f64::total_cmp);
        times.dedup();
        Self::of(times.into_iter().map(|from_ns| (from_ns, self.factor_ns(from_ns) * other.factor_ns(from_ns))))
    }

    fn factor_ns(&self, at_ns: f64) -> f64 {
        let begun = self.steps.partition_point(|step| step.from_ns <= at_ns);
        begun.checked_sub(1).map_or(0.0, |last| self.steps[last].factor)
    }

    /// By what the mean rate is multiplied at a time; 0 before the first step.
    #[must_use]
    pub fn factor_at(&self, at: Time) -> f64 {
        self.factor_ns(at.as_nanos() as f64)
    }

    /// The largest factor of the steps that begin before `until`.
    #[must_use]
    pub fn peak(&self, until: Time) -> f64 {
        let begun = self.steps.iter().filter(|step| step.from_ns < until.as_nanos() as f64);
        begun.map(|step| step.factor).fold(0.0, f64::max)
    }

    /// When a process of rate × factor reaches the position of a process of constant rate at `worked_ns`; `None` if
    /// never. `cursor`, owned by the caller, is the step of the last answer: queried times only grow.
    #[inline]
    pub(crate) fn time_ns(&self, worked_ns: f64, cursor: &mut usize) -> Option<f64> {
        while self.steps.get(*cursor + 1).is_some_and(|next| next.worked_ns <= worked_ns) {
            *cursor += 1;
        }
        let step = self.steps.get(*cursor)?;
        (step.factor > 0.0).then(|| step.from_ns + (worked_ns - step.worked_ns).max(0.0) / step.factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_faster_where_the_factor_is_larger_and_stands_where_it_is_zero() {
        let check = Check {
            file: "f",
            read_csv: &|_| Err(String::new()),
            policies: &symphony_scheduler::PolicyRegistry::new(),
        };
        let profile =
            RateProfile::check(&check, "k", &[[0.0, 1.0], [1.0, 2.0], [2.0, 0.0], [5.0, 1.0], [6.0, 0.0]]).unwrap();
        let mut cursor = 0;
        let mut at = |worked_s: f64| profile.time_ns(worked_s * 1e9, &mut cursor).map(|ns| ns / 1e9);
        assert_eq!(at(0.5), Some(0.5));
        assert_eq!(at(2.0), Some(1.5));
        assert_eq!(at(3.5), Some(5.5));
        assert_eq!(at(4.5), None);
        assert_eq!(profile.peak(Time::from_nanos(500_000_000)), 1.0);
        assert_eq!(profile.peak(Time::NEVER), 2.0);
        let factors = [0, 1_000_000_000, 4_999_999_999].map(|ns| profile.factor_at(Time::from_nanos(ns)));
        assert_eq!(factors, [1.0, 2.0, 0.0]);
    }

    #[test]
    fn two_profiles_multiply() {
        let check = Check {
            file: "f",
            read_csv: &|_| Err(String::new()),
            policies: &symphony_scheduler::PolicyRegistry::new(),
        };
        let [a, b] = [[[0.0, 2.0], [2.0, 3.0]], [[0.0, 5.0], [1.0, 7.0]]];
        let [a, b] = [a, b].map(|rows| RateProfile::check(&check, "k", &rows).unwrap());
        let both = a.times(&b);
        let rows: Vec<_> = both.steps.iter().map(|step| (step.from_ns / 1e9, step.factor)).collect();
        assert_eq!(rows, [(0.0, 10.0), (1.0, 14.0), (2.0, 21.0)]);
        assert_eq!(both.steps[2].worked_ns, 24e9);
    }
}
