//! Searches without bounds: random order, a genetic algorithm, and Bayesian optimisation. All leave out what is part
//! of a fleet that was tried, as the paper gives its rivals.

use anyhow::Result;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Study;
use super::gaussian_process::GaussianProcess;

/// Fleets of a generation.
const POPULATION: usize = 12;
/// Generations without a new fleet after which the search ends.
const STALE_MAX: usize = 50;
/// Fleets that Bayesian optimisation draws before it knows anything.
const DRAWN: usize = 5;

/// What a search has tried.
struct Tried<'a> {
    evaluate: &'a dyn Fn(&[u32]) -> Result<f64>,
    fleets: Vec<(Vec<u32>, f64)>,
    /// The throughput at which the search has found what it looks for.
    target_rps: f64,
}

impl Tried<'_> {
    /// The throughput, or that of a fleet that has everything this one has; and whether the target is reached.
    fn rate(&mut self, counts: &[u32]) -> Result<f64> {
        if let Some(known) = self.known(counts) {
            return Ok(known);
        }
        let rate_rps = (self.evaluate)(counts)?;
        self.fleets.push((counts.to_vec(), rate_rps));
        Ok(rate_rps)
    }

    /// The throughput of a fleet that has everything this one has, if one was tried.
    fn known(&self, counts: &[u32]) -> Option<f64> {
        let has_all = |other: &&(Vec<u32>, f64)| counts.iter().zip(&other.0).all(|(own, others)| own <= others);
        self.fleets.iter().find(has_all).map(|known| known.1)
    }

    fn is_done(&self) -> bool {
        self.fleets.iter().any(|tried| tried.1 >= self.target_rps)
    }
}

/// Fleets tried in a random order until one reaches the target.
pub(crate) fn random(
    study: &Study,
    evaluate: &dyn Fn(&[u32]) -> Result<f64>,
    target_rps: f64,
    seed: u64,
) -> Result<usize> {
    let mut order: Vec<&Vec<u32>> = study.ranking.fleets.iter().map(|fleet| &fleet.counts).collect();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let mut tried = Tried { evaluate, fleets: Vec::new(), target_rps };
    for counts in order {
        tried.rate(counts)?;
        if tried.is_done() {
            break;
        }
    }
    Ok(tried.fleets.len())
}

/// Fleets tried by a genetic algorithm until one reaches the target: each child takes every number from one of two good
/// parents, and one of them changes by one.
pub(crate) fn genetic(
    study: &Study,
    evaluate: &dyn Fn(&[u32]) -> Result<f64>,
    target_rps: f64,
    seed: u64,
) -> Result<usize> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let all: Vec<&Vec<u32>> = study.ranking.fleets.iter().map(|fleet| &fleet.counts).collect();
    let mut tried = Tried { evaluate, fleets: Vec::new(), target_rps };
    let mut population: Vec<(Vec<u32>, f64)> = Vec::new();
    for counts in all.choose_multiple(&mut rng, POPULATION) {
        population.push(((*counts).clone(), tried.rate(counts)?));
        if tried.is_done() {
            return Ok(tried.fleets.len());
        }
    }
    let mut stale = 0;
    while stale < STALE_MAX {
        population.sort_by(|a, b| b.1.total_cmp(&a.1));
        population.truncate((POPULATION / 2).max(1));
        let parents = population.len();
        let before = tried.fleets.len();
        for _ in 0..POPULATION {
            let (one, other) = (rng.random_range(0..parents), rng.random_range(0..parents));
            let (one, other) = (population[one].0.clone(), population[other].0.clone());
            let mut child: Vec<u32> = one.iter().zip(&other).map(|(a, b)| if rng.random() { *a } else { *b }).collect();
            let kind = rng.random_range(0..child.len());
            child[kind] = if rng.random() { child[kind] + 1 } else { child[kind].saturating_sub(1) };
            if !all.contains(&&child) {
                continue;
            }
            let rate_rps = tried.rate(&child)?;
            population.push((child, rate_rps));
            if tried.is_done() {
                return Ok(tried.fleets.len());
            }
        }
        stale = if tried.fleets.len() == before { stale + 1 } else { 0 };
    }
    Ok(tried.fleets.len())
}

/// Fleets tried by Bayesian optimisation until one reaches the target: after a few drawn ones always that of which the
/// most improvement is expected. Every number is a coordinate, in shares of the largest one.
pub(crate) fn bayesian(
    study: &Study,
    evaluate: &dyn Fn(&[u32]) -> Result<f64>,
    target_rps: f64,
    seed: u64,
) -> Result<usize> {
    let all: Vec<&Vec<u32>> = study.ranking.fleets.iter().map(|fleet| &fleet.counts).collect();
    let kinds = all.first().map_or(0, |counts| counts.len());
    let largest = |kind: usize| all.iter().map(|counts| counts[kind]).max().unwrap_or(0).max(1);
    let largest: Vec<f64> = (0..kinds).map(|kind| f64::from(largest(kind))).collect();
    let place = |counts: &[u32]| -> Vec<f64> {
        counts.iter().zip(&largest).map(|(&count, largest)| f64::from(count) / largest).collect()
    };
    let mut tried = Tried { evaluate, fleets: Vec::new(), target_rps };
    for counts in all.choose_multiple(&mut Xoshiro256PlusPlus::seed_from_u64(seed), DRAWN) {
        tried.rate(counts)?;
        if tried.is_done() {
            return Ok(tried.fleets.len());
        }
    }
    loop {
        let (counts, rates): (Vec<_>, Vec<f64>) =
            tried.fleets.iter().map(|(counts, rate)| (place(counts), *rate)).unzip();
        let process = GaussianProcess::fit(&counts, &rates);
        let best_rps = rates.iter().copied().fold(0.0, f64::max);
        let open = all.iter().filter(|counts| tried.known(counts).is_none());
        let promising = open.map(|counts| (process.expected_improvement(&place(counts), best_rps), *counts));
        let Some((_, next)) = promising.max_by(|one, other| one.0.total_cmp(&other.0)) else { break };
        tried.rate(next)?;
        if tried.is_done() {
            break;
        }
    }
    Ok(tried.fleets.len())
}
