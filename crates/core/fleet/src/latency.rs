//! How long requests of each size take on one kind of GPU.

use symphony_types::{LatencyProfile, PROFILE_BATCH_MAX};

/// Latencies of one model on one kind, by items. Between measured sizes: linear; below the smallest: its latency; never
/// falling, since a measurement below that of a smaller size is noise.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyTable {
    /// Of 1, 2, … items, in milliseconds.
    ms: Vec<f64>,
}

impl LatencyTable {
    /// From measured points (items, milliseconds) in any order.
    ///
    /// # Errors
    /// If there is none, a size is out of range or comes twice, or a latency is not positive.
    pub fn from_points(points: &[(u32, f64)]) -> Result<Self, String> {
        let mut points = points.to_vec();
        points.sort_unstable_by_key(|point| point.0);
        for &(items, ms) in &points {
            if !(1..=PROFILE_BATCH_MAX).contains(&items) {
                return Err(format!("expected 1 to {PROFILE_BATCH_MAX} items, got {items}"));
            }
            if !(ms.is_finite() && ms > 0.0) {
                return Err(format!("{items} items: expected a latency_ms above 0, got {ms}"));
            }
        }
        if let Some(twice) = points.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("{} items come twice; expected one row each", twice[0].0));
        }
        let Some(&(first_items, first_ms)) = points.first() else { return Err("expected at least one row".to_owned()) };
        let mut ms = vec![first_ms; first_items as usize];
        for pair in points.windows(2) {
            let ((from, low), (to, high)) = (pair[0], pair[1]);
            let step = (high - low) / f64::from(to - from);
            ms.extend((1..=to - from).map(|at| low + step * f64::from(at)));
        }
        let mut slowest = 0.0;
        for value in &mut ms {
            slowest = f64::max(slowest, *value);
            *value = slowest;
        }
        Ok(Self { ms })
    }

    /// From the profile of batches on the kind.
    #[must_use]
    pub fn from_profile(profile: &LatencyProfile) -> Self {
        Self { ms: profile.table().iter().map(|latency| latency.get() as f64 / 1e6).collect() }
    }

    /// The largest measured size.
    #[must_use]
    pub fn items_max(&self) -> u32 {
        // At most PROFILE_BATCH_MAX.
        self.ms.len() as u32
    }

    /// The latency of this many items in milliseconds. Above the largest measured size it is that one's: less than the
    /// truth, as an upper bound of throughput may assume.
    #[must_use]
    pub fn latency_ms(&self, items: u32) -> f64 {
        let last = self.ms.len().saturating_sub(1);
        self.ms.get((items.max(1) as usize - 1).min(last)).copied().unwrap_or(f64::INFINITY)
    }

    /// The largest measured size whose latency is within the SLO; 0 if none is.
    #[must_use]
    pub fn items_within(&self, slo_ms: f64) -> u32 {
        self.ms.partition_point(|&ms| ms <= slo_ms) as u32
    }

    /// Whether the table tells which sizes are within the SLO, up to this many items.
    #[must_use]
    pub fn reaches(&self, items: u32, slo_ms: f64) -> bool {
        self.items_max() >= items || self.items_within(slo_ms) < self.items_max()
    }

    /// Latencies of 1, 2, … items in milliseconds.
    #[must_use]
    pub fn all_ms(&self) -> &[f64] {
        &self.ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_joined_and_noise_does_not_make_a_larger_request_faster() {
        let table = LatencyTable::from_points(&[(4, 10.0), (2, 4.0), (5, 9.0)]).unwrap();
        assert_eq!(table.all_ms(), [4.0, 4.0, 7.0, 10.0, 10.0]);
        assert_eq!([1, 3, 9].map(|items| table.latency_ms(items)), [4.0, 7.0, 10.0]);
        assert_eq!([3.0, 4.0, 8.0, 50.0].map(|slo_ms| table.items_within(slo_ms)), [0, 2, 3, 5]);
        assert!(table.reaches(5, 50.0) && !table.reaches(6, 50.0) && table.reaches(6, 8.0));
    }

    #[test]
    fn impossible_points_are_refused() {
        let refused = |points: &[(u32, f64)], words: &str| {
            let error = LatencyTable::from_points(points).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        refused(&[], "at least one row");
        refused(&[(0, 1.0)], "expected 1 to 4096 items, got 0");
        refused(&[(1, 0.0)], "1 items: expected a latency_ms above 0");
        refused(&[(1, f64::NAN)], "above 0");
        refused(&[(2, 1.0), (2, 2.0)], "2 items come twice");
    }
}
