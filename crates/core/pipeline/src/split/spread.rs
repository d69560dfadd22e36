//! What a split leaves over, given to all stages alike.

use symphony_types::Nanos;

use super::budgets::Split;
use super::cost::Cost;
use crate::pipeline::Pipeline;

/// The budgets of a split with what no stage needs spread over all of them: the same batches, and as much more time
/// for each stage, in proportion, as the longest path through it leaves. [`split`](super::split) gives all of that to
/// the last stages, since it costs no GPU; but a stage whose budget is its batch's latency and nothing more is late
/// whenever anything is. `rate_rps`, `cost` and `hop` are those of the split; `delays` is what every stage request
/// takes besides its batch, which counts as if it were its batch's.
#[must_use]
pub fn spread(pipeline: &Pipeline, found: &Split, rate_rps: f64, cost: Cost, hop: Nanos, delays: Nanos) -> Vec<Nanos> {
    let requests = pipeline.requests_per_request();
    let takes = |(at, stage): (usize, &crate::pipeline::Stage)| {
        found.stages.get(at).map_or(Nanos::ZERO, |budget| {
            cost.takes(&stage.profile, rate_rps * requests[at], budget.batch).min(budget.budget) + delays
        })
    };
    let takes: Vec<Nanos> = pipeline.stages().iter().enumerate().map(takes).collect();
    spread_takes(pipeline, &takes, hop)
}

/// The same with what the batch of each stage takes given, in the order of the pipeline; nothing for stages without.
#[must_use]
pub fn spread_takes(pipeline: &Pipeline, takes: &[Nanos], hop: Nanos) -> Vec<Nanos> {
    let source = pipeline.order().first().copied();
    let hop_to = |stage: usize| if Some(stage) == source { Nanos::ZERO } else { hop };
    let with_hop = |stage: usize| takes.get(stage).copied().unwrap_or(Nanos::ZERO) + hop_to(stage);
    let takes: Vec<Nanos> = (0..pipeline.stages().len()).map(with_hop).collect();
    // The longest way to the end of each stage, and from its end.
    let (mut before, mut behind) = (takes.clone(), vec![Nanos::ZERO; takes.len()]);
    for &stage in pipeline.order() {
        let into = pipeline.edges().iter().filter(|edge| edge.to == stage);
        before[stage] = into.map(|edge| before[edge.from]).max().unwrap_or(Nanos::ZERO) + takes[stage];
    }
    for &stage in pipeline.order().iter().rev() {
        let out = pipeline.edges().iter().filter(|edge| edge.from == stage);
        behind[stage] = out.map(|edge| takes[edge.to] + behind[edge.to]).max().unwrap_or(Nanos::ZERO);
    }
    let slo = u128::from(pipeline.slo().get());
    let budget = |stage: usize| {
        let longest = u128::from((before[stage] + behind[stage]).get()).max(1);
        // At most the SLO, since a stage is a part of the longest path through it.
        Nanos::new((u128::from(takes[stage].get()) * slo / longest) as u64) - hop_to(stage)
    };
    (0..takes.len()).map(budget).collect()
}

#[cfg(test)]
mod tests {
    use symphony_types::{LatencyProfile, RequestValue};

    use super::*;
    use crate::pipeline::{EdgeSpec, PipelineSpec, Stage};
    use crate::split::split;

    /// a → b of 6 ms and 2 ms each alone, and a → c of 4 ms, within 100 ms.
    fn fork() -> Pipeline {
        let stage = |(name, alone_ms): (&str, f64)| Stage {
            name: name.to_owned(),
            model: name.to_owned(),
            profile: LatencyProfile::from_line(1.0, alone_ms - 1.0, 8).unwrap(),
        };
        let edge = |to: &str| EdgeSpec {
            from: "a".to_owned(),
            to: to.to_owned(),
            gamma: 1.0,
            per_row: false,
            condition: None,
            most: None,
        };
        Pipeline::new(PipelineSpec {
            name: "fork".to_owned(),
            slo: Nanos::from_millis(100),
            value: RequestValue::ONE,
            partial: false,
            stages: [("a", 6.0), ("b", 2.0), ("c", 4.0)].map(stage).to_vec(),
            edges: vec![edge("b"), edge("c")],
        })
        .unwrap()
    }

    #[test]
    fn without_load_budgets_are_in_proportion_to_what_stages_take() {
        let (pipeline, hop) = (fork(), Nanos::ZERO);
        let found = split(&pipeline, 1.0, Cost::Deferred, Nanos::from_millis(1), hop).unwrap();
        assert_eq!(found.stages[0].budget, Nanos::from_millis(6), "the split itself leaves the first stage no time");
        let with = |delays| spread(&pipeline, &found, 1.0, Cost::Deferred, hop, delays);
        // The longest paths through a and c take 10 ms, through b 8 ms.
        assert_eq!(with(Nanos::ZERO), [60, 25, 40].map(Nanos::from_millis));
        // 16 and 14 of 30 ms, and 12 of 28.
        assert_eq!(with(Nanos::from_millis(10)), [53_333_333, 42_857_142, 46_666_666].map(Nanos::new));
    }

    #[test]
    fn every_path_fits_and_no_stage_gets_less_than_its_batch_takes() {
        let pipeline = fork();
        for rate_rps in [1.0, 100.0, 1e4] {
            for hop in [Nanos::ZERO, Nanos::from_millis(3)] {
                let found = split(&pipeline, rate_rps, Cost::Deferred, Nanos::from_millis(1), hop).unwrap();
                let spread = spread(&pipeline, &found, rate_rps, Cost::Deferred, hop, Nanos::ZERO);
                for last in [1, 2] {
                    assert!(spread[0] + hop + spread[last] <= pipeline.slo(), "{rate_rps}: {spread:?}");
                }
                for (stage, budget) in found.stages.iter().enumerate() {
                    let takes = Cost::Deferred.takes(&pipeline.stages()[stage].profile, rate_rps, budget.batch);
                    // Rounded down to a nanosecond.
                    assert!(spread[stage] + Nanos::new(1) >= takes, "{rate_rps}: {spread:?}, of which {takes}");
                }
            }
        }
    }
}
