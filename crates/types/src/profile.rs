//! ℓ(b): how long a batch of b items takes on one kind of GPU.

use crate::Nanos;

/// The largest batch of a profile: it bounds the table and thus the work of one scheduling decision.
pub const PROFILE_BATCH_MAX: u32 = 4096;

/// A linear fit of a profile, α·b + β.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineFit {
    /// α, milliseconds per item.
    pub alpha_ms: f64,
    /// β, milliseconds per batch.
    pub beta_ms: f64,
    /// R²: the share of the table's variance that the line explains; 1 if the profile is exactly linear.
    pub r_squared: f64,
}

/// ℓ(b) as a table over b = 1..=max, monotone in b (the Symphony paper, section 3.1).
///
/// A linear profile ℓ(b) = α·b + β is stored as a table, too: a lookup is then one load, whatever the profile's origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyProfile {
    /// `latency[b]` is ℓ(b); `latency[0]` is zero and the last entry, one past the largest batch, is [`Nanos::MAX`].
    latency: Box<[Nanos]>,
}

/// Why a table is not a valid latency profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// The table is empty.
    #[error("the profile has no batch size; expected latencies for b = 1, 2, …")]
    Empty,
    /// The table is longer than [`PROFILE_BATCH_MAX`].
    #[error("the profile has {batch_max} batch sizes; at most {PROFILE_BATCH_MAX} are allowed")]
    TooLong {
        /// Batch sizes given.
        batch_max: usize,
    },
    /// A latency is zero.
    #[error("the latency of batch size {batch} is zero; expected a positive time")]
    Zero {
        /// The batch size at fault.
        batch: u32,
    },
    /// A larger batch is faster than a smaller one.
    #[error(
        "the profile is not monotone: batch {batch} takes {} ms, less than the {} ms of batch {}; measure again, or keep the larger value",
        .latency.as_millis_f64(), .before.as_millis_f64(), .batch - 1
    )]
    NotMonotone {
        /// The batch size at fault.
        batch: u32,
        /// Latency of that batch.
        latency: Nanos,
        /// The latency of the batch size before it.
        before: Nanos,
    },
    /// α or β does not yield valid latencies.
    #[error("alpha {alpha_ms} ms and beta {beta_ms} ms make no latency; expected finite, not negative, and α + β > 0")]
    BadLine {
        /// α in milliseconds per item.
        alpha_ms: f64,
        /// β in milliseconds.
        beta_ms: f64,
    },
}

impl LatencyProfile {
    /// The profile whose b-th entry (counted from one) is ℓ(b).
    ///
    /// # Errors
    /// If the table is empty, too long, has a zero, or is not monotone.
    pub fn from_table(table: &[Nanos]) -> Result<Self, ProfileError> {
        if table.is_empty() {
            return Err(ProfileError::Empty);
        }
        if table.len() > PROFILE_BATCH_MAX as usize {
            return Err(ProfileError::TooLong { batch_max: table.len() });
        }
        let mut before = Nanos::ZERO;
        for (batch, &latency) in (1_u32..).zip(table) {
            if latency == Nanos::ZERO {
                return Err(ProfileError::Zero { batch });
            }
            if latency < before {
                return Err(ProfileError::NotMonotone { batch, latency, before });
            }
            before = latency;
        }
        Ok(Self::of_monotone(table))
    }

    /// As [`from_table`](Self::from_table), of a table that is made of valid ones.
    pub(crate) fn of_monotone(table: &[Nanos]) -> Self {
        let mut latency = Vec::with_capacity(table.len() + 2);
        latency.push(Nanos::ZERO);
        latency.extend_from_slice(table);
        latency.push(Nanos::MAX);
        Self { latency: latency.into() }
    }

    /// ℓ(b) = α·b + β for b = 1..=`batch_max`; α in milliseconds per item, β in milliseconds.
    ///
    /// # Errors
    /// If α or β is negative or not finite, both are zero, or `batch_max` is out of range.
    pub fn from_line(alpha_ms: f64, beta_ms: f64, batch_max: u32) -> Result<Self, ProfileError> {
        let sane = |x: f64| x.is_finite() && x >= 0.0;
        if !sane(alpha_ms) || !sane(beta_ms) || Nanos::from_millis_f64(alpha_ms + beta_ms) == Nanos::ZERO {
            return Err(ProfileError::BadLine { alpha_ms, beta_ms });
        }
        if batch_max > PROFILE_BATCH_MAX {
            return Err(ProfileError::TooLong { batch_max: batch_max as usize });
        }
        let table: Vec<_> =
            (1..=batch_max).map(|b| Nanos::from_millis_f64(alpha_ms.mul_add(f64::from(b), beta_ms))).collect();
        Self::from_table(&table)
    }

    /// ℓ(`batch`): zero for an empty batch, [`Nanos::MAX`] beyond the largest batch of the profile.
    #[inline]
    #[must_use]
    pub fn latency(&self, batch: u32) -> Nanos {
        let last = self.latency.len() - 1;
        self.latency[(batch as usize).min(last)]
    }

    /// The largest batch of the profile.
    #[must_use]
    pub fn batch_max(&self) -> u32 {
        (self.latency.len() - 2) as u32
    }

    /// ℓ(1), ℓ(2), …, ℓ(max).
    pub fn table(&self) -> &[Nanos] {
        &self.latency[1..self.latency.len() - 1]
    }

    /// The profile of a sub-cluster with GPUs of both kinds: the slower one at every batch size.
    #[must_use]
    pub fn slower_of(&self, other: &Self) -> Self {
        let table: Vec<_> = self.table().iter().zip(other.table()).map(|(a, b)| *a.max(b)).collect();
        Self::of_monotone(&table)
    }

    /// The least-squares fit α·b + β of the table.
    #[must_use]
    pub fn fit_line(&self) -> LineFit {
        let n = self.table().len() as f64;
        if self.table().len() == 1 {
            return LineFit { alpha_ms: 0.0, beta_ms: self.table()[0].as_millis_f64(), r_squared: 1.0 };
        }
        let points = || (1_u32..).zip(self.table()).map(|(b, l)| (f64::from(b), l.as_millis_f64()));
        let (sum_x, sum_y) = points().fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x, sy + y));
        let (mean_x, mean_y) = (sum_x / n, sum_y / n);
        let (cov, var) = points().fold((0.0, 0.0), |(cov, var), (x, y)| {
            (cov + (x - mean_x) * (y - mean_y), var + (x - mean_x) * (x - mean_x))
        });
        let alpha = cov / var;
        let beta = mean_y - alpha * mean_x;
        let (left, all) = points().fold((0.0, 0.0), |(left, all), (x, y)| {
            (left + (y - alpha * x - beta).powi(2), all + (y - mean_y).powi(2))
        });
        // A constant table is fitted exactly by a horizontal line.
        let r_squared = if all > 0.0 { 1.0 - left / all } else { 1.0 };
        LineFit { alpha_ms: alpha, beta_ms: beta, r_squared }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_becomes_a_table_and_ends_in_impossible() {
        let profile = LatencyProfile::from_line(1.053, 5.072, 3).unwrap();
        assert_eq!(profile.latency(0), Nanos::ZERO);
        assert_eq!(profile.latency(1), Nanos::new(6_125_000));
        assert_eq!(profile.latency(3), Nanos::new(8_231_000));
        assert_eq!(profile.latency(4), Nanos::MAX);
        assert_eq!(profile.latency(4_000_000_000), Nanos::MAX);
        assert_eq!(profile.batch_max(), 3);
    }

    #[test]
    fn a_table_that_is_not_monotone_is_refused_with_both_values() {
        let table = [Nanos::from_millis(2), Nanos::from_millis(3), Nanos::from_millis(1)];
        let error = LatencyProfile::from_table(&table).unwrap_err();
        assert!(matches!(error, ProfileError::NotMonotone { batch: 3, .. }));
        assert!(error.to_string().contains("batch 3 takes 1 ms, less than the 3 ms of batch 2"), "{error}");
    }

    #[test]
    fn a_bend_costs_the_fit_what_the_line_does_not_explain() {
        let table = [1, 1, 1, 9].map(Nanos::from_millis);
        let fit = LatencyProfile::from_table(&table).unwrap().fit_line();
        // By hand: mean 3, α = 12/5, β = -3; left over 19.2 of 48.
        assert!((fit.alpha_ms - 2.4).abs() < 1e-9 && (fit.beta_ms + 3.0).abs() < 1e-9, "{fit:?}");
        assert!((fit.r_squared - 0.6).abs() < 1e-9, "{fit:?}");
        let flat = LatencyProfile::from_table(&[Nanos::from_millis(2); 3]).unwrap().fit_line();
        assert_eq!((flat.alpha_ms, flat.beta_ms, flat.r_squared), (0.0, 2.0, 1.0));
    }

    #[test]
    fn empty_zero_and_senseless_profiles_are_refused() {
        assert_eq!(LatencyProfile::from_table(&[]), Err(ProfileError::Empty));
        assert_eq!(LatencyProfile::from_table(&[Nanos::ZERO]), Err(ProfileError::Zero { batch: 1 }));
        for (alpha, beta) in [(-1.0, 5.0), (f64::NAN, 1.0), (0.0, 0.0), (1.0, f64::INFINITY)] {
            assert!(matches!(LatencyProfile::from_line(alpha, beta, 8), Err(ProfileError::BadLine { .. })));
        }
        assert!(matches!(LatencyProfile::from_line(1.0, 1.0, 1 << 20), Err(ProfileError::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn the_fit_of_a_line_is_the_line(alpha in 0.01_f64..50.0, beta in 0.01_f64..50.0, max in 2_u32..64) {
            let fit = LatencyProfile::from_line(alpha, beta, max).unwrap().fit_line();
            prop_assert!((fit.alpha_ms - alpha).abs() < 1e-4 && (fit.beta_ms - beta).abs() < 1e-3, "{fit:?}");
            prop_assert!(fit.r_squared > 0.999, "{fit:?}");
        }
    }
}
