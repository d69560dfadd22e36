//! The Kairos paper, Figure 2 (section 4): throughput while simulated annealing explores configurations.

use anyhow::Result;
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::cell;
use super::kairos::{Study, differences, only, setup, studies, words};
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Rule, Series};
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{AUTO, KAIROS, RIBBON, System};

/// Fleets below this are left out, as in the figure.
const RATE_MIN_RPS: f64 = 20.0;
/// Fleets that are explored.
const STEPS: (usize, usize) = (60, 6);
/// The temperature at the beginning, as a share of the homogeneous throughput, and what remains of it after each step.
const COOLING: (f64, f64) = (0.3, 0.95);
/// Draws of a neighbour until one is within the budget.
const DRAWS_MAX: usize = 1000;

/// One kind more or less, or one of another kind instead, within the budget and with a base.
fn neighbour(study: &Study, counts: &[u32], rng: &mut Xoshiro256PlusPlus) -> Vec<u32> {
    for _ in 0..DRAWS_MAX {
        let mut next = counts.to_vec();
        for _ in 0..2 {
            let kind = rng.random_range(0..next.len());
            if rng.random::<bool>() {
                next[kind] += 1;
            } else {
                next[kind] = next[kind].saturating_sub(1);
            }
        }
        if next != counts && next[0] > 0 && study.problem.affordable(&next) {
            return next;
        }
    }
    counts.to_vec()
}

/// The fleets in their order, with their throughput.
fn explored(lab: &Lab<'_>, study: &Study, system: &System, equal_rps: f64) -> Result<Vec<(Vec<u32>, f64)>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
    let mut at = study.homogeneous();
    let mut rate_rps = study.goodput(lab, &at, system)?;
    let mut temperature = COOLING.0 * equal_rps;
    let mut explored = Vec::new();
    for _ in 0..lab.pick(STEPS.0, STEPS.1) {
        let next = neighbour(study, &at, &mut rng);
        let next_rps = study.goodput(lab, &next, system)?;
        if next_rps >= RATE_MIN_RPS {
            explored.push((next.clone(), next_rps));
        }
        if next_rps >= rate_rps || rng.random::<f64>() < ((next_rps - rate_rps) / temperature).exp() {
            (at, rate_rps) = (next, next_rps);
        }
        temperature *= COOLING.1;
    }
    Ok(explored)
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let study = only(studies(lab)?, "rm2")?;
    let wanted = [RIBBON, KAIROS, AUTO];
    let systems = lab.known(&wanted);
    let mut table = Table::new(&["policy", "step", "fleet", "goodput_rps", "over_homogeneous"]);
    let x = Axis::from_zero("fleets explored");
    let mut lines = Lines::new("RM2, simulated annealing", x, Axis::from_zero("goodput over that of equal GPUs"));
    lines.rules.push(Rule::Level(1.0, "equal GPUs".to_owned()));
    let mut worse = None;
    for system in &systems {
        let equal_rps = study.homogeneous_rps(lab, system)?.max(1e-9);
        let explored = explored(lab, &study, system, equal_rps)?;
        let ratios: Vec<f64> = explored.iter().map(|(_, rate_rps)| rate_rps / equal_rps).collect();
        for (step, ((counts, rate_rps), ratio)) in explored.iter().zip(&ratios).enumerate() {
            let step = (step + 1).to_string();
            table.rows.push(vec![system.key.to_owned(), step, words(counts), cell(*rate_rps, 2), cell(*ratio, 3)]);
        }
        if *system == RIBBON && !ratios.is_empty() {
            worse = Some(ratios.iter().filter(|ratio| **ratio < 1.0).count() as f64 / ratios.len() as f64);
        }
        let points = (1_u32..).map(f64::from).zip(ratios).collect();
        lines.series.push(Series { style: system.style(), draw: Draw::Points, points });
    }
    let figure = Figure {
        title: "Most fleets on the way of a search are worse than equal GPUs".to_owned(),
        subtitle: "Each step adds or removes up to two GPUs; worse fleets are accepted ever less".to_owned(),
        columns: 1,
        panels: vec![Panel::Lines(lines)],
        theirs: String::new(),
        note: "The Kairos paper, Figure 2, which uses Ribbon's policy.".to_owned(),
    };
    let mut differences = differences();
    differences.push("The paper does not give its neighbours and temperatures; ours are in the source.".to_owned());
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: vec![Comparison::words("kairos-fig2", "worse", worse, "")],
        setup: setup(lab),
        differences,
        missing: Report::missing(&wanted, &systems),
    })
}
