//! The batch size that perfectly coordinated GPUs would reach: what the window drop aims at.

use symphony_types::{LatencyProfile, Nanos};

use crate::DataDelay;

/// The largest batch that staggered execution sustains (seed 000, section 4.2, equations 2 and 3), at least 1.
///
/// At `rate` items per second a model keeps n = rate·ℓ(b)/b GPUs busy, staggered by ℓ(b)/n, and ℓ(b)/n is b/rate: the
/// time in which the next batch gathers, also where less than one GPU is needed. That wait, the input of the batch and
/// its execution have to fit into the budget: ℓ(b) + b/rate + d·b, which grows with b.
///
/// `budget` is the SLO less reply delay and control delay.
#[must_use]
pub fn target_batch(profile: &LatencyProfile, rate: f64, budget: Nanos, data: DataDelay) -> u32 {
    let fits = |batch: u32| {
        let items = f64::from(batch);
        let needed = profile.latency(batch).as_secs_f64() + items / rate + data.of(batch).as_secs_f64();
        needed <= budget.as_secs_f64()
    };
    let (mut low, mut high) = (1, profile.batch_max() + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

/// What an item may take more of a GPU in a batch that is let shrink than in one of the target size: an eighth.
const SHRINK_COST_MAX: f64 = 0.125;

/// The smallest batch from `least` items on in which an item takes at most an eighth more of a GPU than in one of `target` items.
/// What a target of four loses by one item is nothing to BERT and a quarter to DenseNet121 (docs/adr/0008).
#[must_use]
pub(crate) fn cheap_batch(profile: &LatencyProfile, target: u32, least: u32) -> u32 {
    let per_item = |batch: u32| profile.latency(batch).as_secs_f64() / f64::from(batch);
    let most = (1.0 + SHRINK_COST_MAX) * per_item(target);
    (least.max(1)..target).find(|&batch| per_item(batch) <= most).unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_table_4_batch_sizes_come_out() {
        // Seed 000, Table 4: 8 GPUs, staggered batch sizes 16 and 8 at the analytic rates.
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

    #[test]
    fn a_batch_shrinks_as_far_as_its_items_stay_cheap() {
        let densenet = LatencyProfile::from_line(1.061, 10.312, 64).unwrap();
        // Three of four cost an item 24 % more, nine of twelve 15 %, ten of twelve 9 %, fifteen of twenty 11 %.
        assert_eq!(
            [(4, 3), (12, 9), (20, 15)].map(|(target, least)| cheap_batch(&densenet, target, least)),
            [4, 10, 15]
        );
        let bert = LatencyProfile::from_line(7.008, 0.159, 64).unwrap();
        assert_eq!(cheap_batch(&bert, 4, 3), 3);
        assert_eq!(cheap_batch(&bert, 1, 1), 1);
    }
}
