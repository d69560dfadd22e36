//! The last samples of a quantity, and their quantiles.

use symphony_types::Time;

/// The number of samples: with this many, the error of the 90 % quantile is a fifth of their spread.
pub(crate) const SAMPLES_KEPT: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct SampleRing {
    values: Vec<f32>,
    /// Index of the next sample, once the ring is full.
    next: usize,
    /// Time of the newest sample.
    last: Time,
}

impl SampleRing {
    pub(crate) const fn new() -> Self {
        Self { values: Vec::new(), next: 0, last: Time::ZERO }
    }

    pub(crate) fn push(&mut self, now: Time, value: f32) {
        self.last = now;
        if self.values.len() < SAMPLES_KEPT {
            self.values.push(value);
        } else {
            self.values[self.next] = value;
            self.next = (self.next + 1) % SAMPLES_KEPT;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) const fn last(&self) -> Time {
        self.last
    }

    /// The smallest value that at least this share of the samples does not exceed.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        let rank = (quantile * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.max(1) - 1).map(|&value| f64::from(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_samples_go_and_quantiles_are_of_what_is_left() {
        let mut ring = SampleRing::new();
        assert_eq!(ring.quantile(0.5), None);
        for value in 0..200_u16 {
            ring.push(Time::from_nanos(value.into()), f32::from(value));
        }
        assert_eq!((ring.len(), ring.last()), (SAMPLES_KEPT, Time::from_nanos(199)));
        // 136 to 199 are left.
        assert_eq!(
            (ring.quantile(0.0), ring.quantile(0.5), ring.quantile(1.0)),
            (Some(136.0), Some(167.0), Some(199.0))
        );
    }
}
