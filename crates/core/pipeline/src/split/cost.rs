//! What a stage costs within a budget: GPUs kept busy, R·ℓ(b)/b, by the largest batch that the budget allows.

use symphony_types::{LatencyProfile, Nanos};

/// How much of a stage's budget a batch takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// ℓ(b): the time in which it runs (the Nexus paper, section 6.2 and Figure 4).
    Execution,
    /// 2·ℓ(b): a request that misses a batch runs with the next one (section 4.1, and line 6 of Algorithm 1).
    Waiting,
    /// ℓ(b) + b/R: a deferred batch gathers for b/R, since staggered GPUs start a batch that often (the Symphony paper,
    /// equations 2 and 3, as `symphony-partitioner` has them). One request alone waits for nothing.
    Deferred,
}

impl Cost {
    /// The time that a batch takes of the budget at `rate_rps` stage requests per second.
    #[must_use]
    pub fn takes(self, profile: &LatencyProfile, rate_rps: f64, batch: u32) -> Nanos {
        let runs = profile.latency(batch);
        match self {
            Self::Execution => runs,
            Self::Waiting => runs.saturating_mul(2),
            Self::Deferred if batch <= 1 => runs,
            Self::Deferred => runs + Nanos::from_secs_f64(f64::from(batch) / rate_rps),
        }
    }
}

/// A batch size of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchOption {
    /// Items of the batch.
    pub batch: u32,
    /// Its part of the budget.
    pub takes: Nanos,
    /// GPUs that the stage keeps busy with such batches.
    pub gpus: f64,
}

/// Every batch size of a stage that is asked for `rate_rps` requests per second.
#[must_use]
pub fn options(profile: &LatencyProfile, rate_rps: f64, cost: Cost) -> Vec<BatchOption> {
    let option = |batch: u32| BatchOption {
        batch,
        takes: cost.takes(profile, rate_rps, batch),
        gpus: rate_rps * profile.latency(batch).as_secs_f64() / f64::from(batch),
    };
    (1..=profile.batch_max()).map(option).collect()
}

/// The option within the budget that needs fewest GPUs; among equals the first.
pub(crate) fn best_within(options: &[BatchOption], budget: Nanos) -> Option<&BatchOption> {
    let within = options.iter().filter(|option| option.takes <= budget);
    within.reduce(|best, option| if option.gpus < best.gpus { option } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_2_of_the_paper_allows_batches_of_half_the_slo() {
        // Model A: 50, 75 and 100 ms for batches of 4, 8 and 16; 160 requests a second within 200 ms.
        let latency = |b: u32| {
            Nanos::from_millis(if b <= 4 {
                50
            } else if b <= 8 {
                75
            } else {
                100
            })
        };
        let table: Vec<_> = (1..=16).map(latency).collect();
        let a = LatencyProfile::from_table(&table).unwrap();
        let best = |cost| {
            let all = options(&a, 160.0, cost);
            best_within(&all, Nanos::from_millis(200)).map(|option| (option.batch, option.gpus))
        };
        assert_eq!(best(Cost::Waiting), Some((16, 1.0)));
        // Gathering 16 takes 100 ms, too.
        assert_eq!(best(Cost::Deferred), Some((16, 1.0)));
        let all = options(&a, 160.0, Cost::Waiting);
        assert_eq!(best_within(&all, Nanos::from_millis(199)).unwrap().batch, 8);
        assert_eq!(best_within(&all, Nanos::from_millis(99)), None);
    }
}
