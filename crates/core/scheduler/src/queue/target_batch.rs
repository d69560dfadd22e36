//! The target batch: the batch size that perfectly coordinated GPUs would reach, which the window drop protects.

use symphony_types::{LatencyProfile, Nanos};

use crate::DataDelay;

/// The largest batch that staggered execution sustains (the Symphony paper, section 4.2, equations 2 and 3), at
/// least 1.
///
/// At `rate` items per second a model keeps n = rate·ℓ(b)/b GPUs busy, staggered by ℓ(b)/n = b/rate, the time in which
/// the next batch gathers (also if n < 1). Gathering, input transfer and execution must fit into the budget: ℓ(b) +
/// b/rate + d·b ≤ budget, whose left side grows with b.
///
/// `budget` = SLO − reply delay − control delay.
#[must_use]
pub fn target_batch(profile: &LatencyProfile, rate: f64, budget: Nanos, data: DataDelay) -> u32 {
    target_batch_of(profile.batch_max(), |batch| profile.latency(batch), rate, budget, data)
}

/// The target batch for a given planned latency; the result is from 1 to `batch_max`.
pub(crate) fn target_batch_of(
    batch_max: u32,
    takes: impl Fn(u32) -> Nanos,
    rate: f64,
    budget: Nanos,
    data: DataDelay,
) -> u32 {
    let fits = |batch: u32| {
        let items = f64::from(batch);
        let needed = takes(batch).as_secs_f64() + items / rate + data.of(batch).as_secs_f64();
        needed <= budget.as_secs_f64()
    };
    let (mut low, mut high) = (1, batch_max + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_table_4_batch_sizes_come_out() {
        // The Symphony paper, Table 4: 8 GPUs, staggered batch sizes 16 and 8 at the analytic rates.
        let resnet = LatencyProfile::from_line(1.053, 5.072, 64).unwrap();
        assert_eq!(target_batch(&resnet, 5839.0, Nanos::from_millis(25), DataDelay::default()), 16);
        let inception = LatencyProfile::from_line(5.090, 18.368, 64).unwrap();
        assert_eq!(target_batch(&inception, 1083.0, Nanos::from_millis(70), DataDelay::default()), 8);
    }

    #[test]
    fn a_trickle_asks_for_single_requests_and_an_impossible_budget_for_one() {
        let profile = LatencyProfile::from_line(1.0, 5.0, 64).unwrap();
        assert_eq!(target_batch(&profile, 1.0, Nanos::from_millis(25), DataDelay::default()), 1);
        assert_eq!(target_batch(&profile, 0.0, Nanos::from_millis(25), DataDelay::default()), 1);
        assert_eq!(target_batch(&profile, 1000.0, Nanos::from_millis(1), DataDelay::default()), 1);
    }
}
