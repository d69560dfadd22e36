//! From latencies at some batch sizes to a profile at all of them.

use symphony_types::{LatencyProfile, Nanos, ProfileError};

/// The batch sizes to measure for a profile up to `batch_max`: 1, 2, 3, 4, 6, 8, 12, 16, … and `batch_max` itself.
///
/// Two sizes per doubling keep the error of interpolation small where ℓ(b) bends, at a cost logarithmic in the range.
pub(crate) fn sizes(batch_max: u32) -> Vec<u32> {
    let doublings = (0..u32::BITS - 1).map(|power| 1_u32 << power).take_while(|&size| size < batch_max);
    let mut sizes: Vec<_> = doublings.flat_map(|size| [size, size + size / 2]).filter(|&s| s < batch_max).collect();
    sizes.push(batch_max);
    sizes.dedup();
    sizes
}

/// Makes the latencies of these batch sizes, which ascend, monotone by carrying the larger value on; returns which
/// sizes had to be raised.
pub fn raise_to_monotone(latencies: &mut [(u32, Nanos)]) -> Vec<u32> {
    let mut raised = Vec::new();
    let mut largest = Nanos::ZERO;
    for (batch, latency) in latencies {
        if *latency < largest {
            raised.push(*batch);
        }
        largest = largest.max(*latency);
        *latency = largest;
    }
    raised
}

/// The profile through these points, linear between them. The points begin at 1 and are increasing and monotone.
pub(crate) fn profile_through(points: &[(u32, Nanos)]) -> Result<LatencyProfile, ProfileError> {
    let mut table: Vec<_> = points.first().map(|&(_, latency)| latency).into_iter().collect();
    for pair in points.windows(2) {
        let [(from, low), (to, high)] = [pair[0], pair[1]];
        let (span, rise) = (u128::from(to - from), u128::from((high - low).get()));
        table.extend((from + 1..=to).map(|batch| {
            let risen = rise * u128::from(batch - from) / span;
            low + Nanos::new(u64::try_from(risen).unwrap_or(u64::MAX))
        }));
    }
    LatencyProfile::from_table(&table)
}

/// The profile of a model that fills batches up to the next of these points. The points are increasing and monotone.
pub(crate) fn profile_of_steps(points: &[(u32, Nanos)]) -> Result<LatencyProfile, ProfileError> {
    let mut table = Vec::new();
    for &(batch, latency) in points {
        table.resize(batch as usize, latency);
    }
    LatencyProfile::from_table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_up_takes_as_long_as_what_it_is_filled_up_to() {
        let us = Nanos::from_micros;
        let profile = profile_of_steps(&[(1, us(10)), (4, us(20)), (6, us(30))]).unwrap();
        assert_eq!(profile.table(), [10, 20, 20, 20, 30, 30].map(us));
    }

    #[test]
    fn sizes_are_geometric_and_end_at_the_largest() {
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(2), [1, 2]);
        assert_eq!(sizes(4), [1, 2, 3, 4]);
        assert_eq!(sizes(5), [1, 2, 3, 4, 5]);
        assert_eq!(sizes(32), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]);
        assert_eq!(sizes(20), [1, 2, 3, 4, 6, 8, 12, 16, 20]);
        for batch_max in 1..=4096 {
            let sizes = sizes(batch_max);
            assert!(sizes.is_sorted_by(|a, b| a < b) && sizes[0] == 1 && sizes.last() == Some(&batch_max));
        }
    }

    #[test]
    fn a_dip_is_raised_to_what_came_before_and_named() {
        let points = |latencies: [u64; 6]| {
            let pair = |(batch, latency)| (batch, Nanos::new(latency));
            [1, 2, 3, 4, 6, 8].into_iter().zip(latencies).map(pair).collect::<Vec<_>>()
        };
        let mut latencies = points([5, 4, 6, 6, 3, 7]);
        assert_eq!(raise_to_monotone(&mut latencies), [2, 6]);
        assert_eq!(latencies, points([5, 5, 6, 6, 6, 7]));
    }

    #[test]
    fn between_measured_sizes_the_profile_is_linear() {
        let points = [(1, 100), (2, 200), (4, 220), (8, 300)].map(|(b, l)| (b, Nanos::new(l)));
        let profile = profile_through(&points).unwrap();
        assert_eq!(profile.table(), [100, 200, 210, 220, 240, 260, 280, 300].map(Nanos::new));
        assert_eq!(profile_through(&points[..1]).unwrap().table(), [Nanos::new(100)]);
    }
}
