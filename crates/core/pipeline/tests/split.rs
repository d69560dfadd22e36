//! The split against brute force over all batch sizes, on random trees and forks that join.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use symphony_pipeline::{BatchOption, Cost, Pipeline, Split, even_split, options, split, split_options};
use symphony_types::{LatencyProfile, Nanos};

use crate::shapes::{Dice, forks_and_joins, pipeline, tree};

const STEP: Nanos = Nanos::from_millis(1);
const RATE_RPS: f64 = 200.0;
const COSTS: [Cost; 3] = [Cost::Execution, Cost::Waiting, Cost::Deferred];

/// Up to four batch sizes whose latencies are multiples of `unit`.
fn profile(dice: &mut Dice, unit: Nanos) -> LatencyProfile {
    let mut latency = Nanos::ZERO;
    let table: Vec<_> = (0..1 + dice.below(4))
        .map(|_| {
            latency += unit.saturating_mul(1 + dice.below(9) as u64);
            latency
        })
        .collect();
    LatencyProfile::from_table(&table).unwrap()
}

fn random(seed: u64, is_tree: bool, unit: Nanos) -> Pipeline {
    let mut dice = Dice::new(seed);
    let stages = 1 + dice.below(6);
    let edges = if is_tree { tree(&mut dice, stages) } else { forks_and_joins(&mut dice, stages) };
    let slo = Nanos::from_millis(5 + dice.below(60) as u64);
    pipeline(&mut dice, stages, &edges, slo, &mut |dice| profile(dice, unit))
}

fn all_options(pipeline: &Pipeline, cost: Cost) -> Vec<Vec<BatchOption>> {
    let requests = pipeline.requests_per_request();
    let stages = pipeline.stages().iter().zip(requests);
    stages.map(|(stage, requests)| options(&stage.profile, RATE_RPS * requests, cost)).collect()
}

/// What the longest path takes if each stage takes this long.
fn longest(pipeline: &Pipeline, takes: &[Nanos]) -> Nanos {
    let mut until = vec![Nanos::ZERO; takes.len()];
    for &stage in pipeline.order() {
        let into = pipeline.edges().iter().filter(|edge| edge.to == stage);
        until[stage] = into.map(|edge| until[edge.from]).max().unwrap_or(Nanos::ZERO) + takes[stage];
    }
    until.into_iter().max().unwrap()
}

/// The fewest GPUs over every choice of batch sizes whose longest path is within the budget.
fn brute_force(pipeline: &Pipeline, options: &[Vec<BatchOption>], budget: Nanos) -> Option<f64> {
    let mut fewest: Option<f64> = None;
    let mut chosen = vec![0; options.len()];
    loop {
        let pick: Vec<_> = options.iter().zip(&chosen).map(|(options, &at)| options[at]).collect();
        let takes: Vec<_> = pick.iter().map(|option| option.takes).collect();
        if longest(pipeline, &takes) <= budget {
            let gpus: f64 = pick.iter().map(|option| option.gpus).sum();
            fewest = Some(fewest.map_or(gpus, |fewest| fewest.min(gpus)));
        }
        // The next choice, as an odometer has it.
        let Some(stage) = (0..chosen.len()).find(|&stage| chosen[stage] + 1 < options[stage].len()) else {
            return fewest;
        };
        chosen[..stage].fill(0);
        chosen[stage] += 1;
    }
}

fn about(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(1.0)
}

/// Each batch is within its budget, and the budgets of each path within the SLO.
fn keeps_the_slo(pipeline: &Pipeline, options: &[Vec<BatchOption>], split: &Split) {
    let budgets: Vec<_> = split.stages.iter().map(|stage| stage.budget).collect();
    assert!(longest(pipeline, &budgets) <= pipeline.slo(), "{split:?}");
    for (stage, options) in split.stages.iter().zip(options) {
        let option = options.iter().find(|option| option.batch == stage.batch).unwrap();
        assert!(option.takes <= stage.budget && about(option.gpus, stage.gpus), "{stage:?} {option:?}");
    }
    assert!(about(split.gpus, split.stages.iter().map(|stage| stage.gpus).sum()), "{split:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    /// Latencies on the grid: the dynamic program finds what brute force finds.
    #[test]
    fn on_the_grid_the_split_is_the_best_one(seed in any::<u64>(), is_tree in any::<bool>()) {
        let pipeline = random(seed, is_tree, STEP);
        for cost in [Cost::Execution, Cost::Waiting] {
            let options = all_options(&pipeline, cost);
            let best = brute_force(&pipeline, &options, pipeline.slo());
            match (split(&pipeline, RATE_RPS, cost, STEP, Nanos::ZERO), best) {
                (Ok(split), Some(best)) => {
                    keeps_the_slo(&pipeline, &options, &split);
                    prop_assert!(about(split.gpus, best), "{cost:?}: {} GPUs, at best {best}: {split:?}", split.gpus);
                }
                (Err(_), None) => {}
                (found, best) => {
                    return Err(TestCaseError::fail(format!("{cost:?}: {found:?}, at best {best:?}")));
                }
            }
        }
    }

    /// Latencies off the grid: no worse than the best with a step less for each stage of a path.
    #[test]
    fn off_the_grid_the_split_is_within_a_step_of_the_best(seed in any::<u64>(), is_tree in any::<bool>()) {
        let pipeline = random(seed, is_tree, Nanos::from_micros(937));
        let steps = longest(&pipeline, &vec![STEP; pipeline.stages().len()]);
        for cost in COSTS {
            let options = all_options(&pipeline, cost);
            let found = split(&pipeline, RATE_RPS, cost, STEP, Nanos::ZERO).ok();
            let best = brute_force(&pipeline, &options, pipeline.slo());
            let with_less = brute_force(&pipeline, &options, pipeline.slo() - steps);
            if let Some(split) = &found {
                keeps_the_slo(&pipeline, &options, split);
                let best = best.unwrap();
                prop_assert!(split.gpus >= best || about(split.gpus, best), "{split:?}, at best {best}");
            }
            if let Some(with_less) = with_less {
                let gpus = found.unwrap().gpus;
                prop_assert!(gpus <= with_less || about(gpus, with_less), "{gpus} GPUs, {with_less} with less time");
            }
        }
    }

    /// A hop costs as much as a longer batch of the stage behind it.
    #[test]
    fn hops_come_off_the_budgets(seed in any::<u64>(), is_tree in any::<bool>()) {
        let pipeline = random(seed, is_tree, STEP);
        let hop = Nanos::from_millis(2);
        let options = all_options(&pipeline, Cost::Execution);
        let source = pipeline.order()[0];
        let mut longer = options.clone();
        for (stage, options) in longer.iter_mut().enumerate() {
            options.iter_mut().filter(|_| stage != source).for_each(|option| option.takes += hop);
        }
        let with_hop = split_options(&pipeline, &options, STEP, hop).ok();
        let with_longer = split_options(&pipeline, &longer, STEP, Nanos::ZERO).ok();
        prop_assert_eq!(with_hop.is_some(), with_longer.is_some());
        if let (Some(one), Some(other)) = (with_hop, with_longer) {
            prop_assert!(about(one.gpus, other.gpus));
            for (stage, (one, other)) in one.stages.iter().zip(&other.stages).enumerate() {
                let hop = if stage == source { Nanos::ZERO } else { hop };
                prop_assert_eq!(one.budget + hop, other.budget);
            }
        }
    }

    /// The dynamic program is at least as good as the split of the paper's baseline.
    #[test]
    fn an_even_split_needs_no_fewer_gpus(seed in any::<u64>(), is_tree in any::<bool>()) {
        let pipeline = random(seed, is_tree, STEP);
        // With steps as fine as the shares.
        let step = Nanos::from_micros(100);
        if let Ok(even) = even_split(&pipeline, RATE_RPS, Cost::Execution, Nanos::ZERO) {
            let best = split(&pipeline, RATE_RPS, Cost::Execution, step, Nanos::ZERO).unwrap();
            prop_assert!(best.gpus <= even.gpus || about(best.gpus, even.gpus), "{best:?} {even:?}");
        }
    }

    /// The deferred cost is the need of GPUs by which clusters plan.
    #[test]
    fn the_deferred_cost_is_the_planners(
        alpha in 0.1_f64..5.0, beta in 0.0_f64..20.0, rate in 1.0_f64..5000.0, slo in 1_u64..200,
    ) {
        let profile = LatencyProfile::from_line(alpha, beta, 64).unwrap();
        let slo = Nanos::from_millis(slo);
        let theirs = symphony_partitioner::gpu_need(&profile, rate, slo);
        let all = options(&profile, rate, Cost::Deferred);
        let within = all.iter().filter(|option| option.takes <= slo);
        let ours = within.reduce(|best, option| if option.gpus < best.gpus { option } else { best });
        prop_assert_eq!(ours.is_some(), theirs.is_some());
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            prop_assert!((ours.gpus - theirs.gpus).abs() <= 1e-4 * theirs.gpus.max(1.0), "{ours:?} {theirs:?}");
        }
    }
}

/// An SLO of 400 ms in steps of one; the best of several, since this machine may be busy.
#[test]
fn twenty_stages_are_split_within_ten_milliseconds() {
    let mut line = |dice: &mut Dice| LatencyProfile::from_line(0.2 + dice.share(), 2.0 * dice.share(), 64).unwrap();
    for is_tree in [true, false] {
        let mut dice = Dice::new(7);
        let edges = if is_tree { tree(&mut dice, 20) } else { forks_and_joins(&mut dice, 20) };
        let pipeline = pipeline(&mut dice, 20, &edges, Nanos::from_millis(400), &mut line);
        let once = || {
            let began = Instant::now();
            let split = split(&pipeline, RATE_RPS, Cost::Execution, STEP, Nanos::ZERO).unwrap();
            assert!(split.gpus > 0.0);
            began.elapsed()
        };
        let best = (0..20).map(|_| once()).min().unwrap();
        let shape = if is_tree { "a tree" } else { "forks and joins" };
        eprintln!("20 stages, {shape}: {:.2} ms", best.as_secs_f64() * 1e3);
        assert!(best <= Duration::from_millis(10), "{best:?}");
    }
}
