//! *Implementing Inference scheduler in Blox*, Figure 6 (section 5.4): how often a model is loaded where it is placed.

use anyhow::{Context as _, Result};
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_packing::squishy_bin_packing;
use symphony_placement::{Demand, Incremental, Loads, Packed, Placed, Placement, Random, Sticky};

use super::cell;
use super::zoo_jobs::{Job, sessions};
use crate::data;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Rule, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};

/// The paper's models and scheduling iterations (section 5.4).
const MODELS: usize = 25;
const EPOCHS: usize = 30;
/// How often a model has a job in an epoch.
const PRESENT: f64 = 0.7;
/// Rates are drawn again in each epoch between these shares of what a GPU does alone.
const RATE_GPUS: (f64, f64) = (0.05, 1.5);

type Kind = (&'static str, &'static str, &'static (dyn Placement + Sync));

static PLACEMENTS: [Kind; 4] = [
    ("sticky", "sticky: fewest loads", &Sticky),
    ("random", "random", &Random),
    ("incremental", "incremental packing", &Incremental),
    ("in_order", "in order", &Packed),
];

/// The hits of one placement: over all epochs but the first, and of each.
struct Hits {
    rate: f64,
    by_epoch: Vec<f64>,
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let seeds: Vec<u64> = (1..=lab.pick(10, 2)).collect();
    let models = lab.pick(vec![5, 10, 15, 20, 25, 30, 35], vec![5, 25]);
    let mut work = Vec::new();
    for placement in &PLACEMENTS {
        work.extend(models.iter().map(|&models| (placement, models)));
    }
    let found = lab.map(&work, |((_, _, placement), models)| hits(*placement, *models, &seeds));
    let found = found.into_iter().collect::<Result<Vec<_>>>()?;
    let mut table = Table::new(&["placement", "models", "epoch", "hit_rate"]);
    let mut by_epoch = Lines::new(
        &format!("{MODELS} models"),
        Axis::between("epoch", 1.0, EPOCHS as f64),
        Axis::between("models loaded already, %", 0.0, 105.0),
    );
    let mut by_models = Lines::new(
        "all epochs",
        Axis::between("different models", 0.0, 40.0),
        Axis::between("models loaded already, %", 0.0, 105.0),
    );
    let mut rates = Vec::new();
    for (index, ((key, label, _), hits)) in PLACEMENTS.iter().zip(found.chunks(models.len())).enumerate() {
        let points = models.iter().zip(hits).map(|(&models, hits)| (models as f64, 100.0 * hits.rate)).collect();
        by_models.series.push(Series { style: Style::plain(label, index), draw: Draw::Points, points });
        for (models, hits) in models.iter().zip(hits) {
            table.rows.push(vec![(*key).to_owned(), models.to_string(), "all".to_owned(), cell(hits.rate, 4)]);
            if *models == MODELS {
                let numbered = || hits.by_epoch.iter().enumerate().map(|(at, rate)| (at + 2, *rate));
                let points = numbered().map(|(epoch, rate)| (epoch as f64, 100.0 * rate)).collect();
                by_epoch.series.push(Series { style: Style::plain(label, index), draw: Draw::Line, points });
                let row = |(epoch, rate): (usize, f64)| {
                    vec![(*key).to_owned(), models.to_string(), epoch.to_string(), cell(rate, 4)]
                };
                table.rows.extend(numbered().map(row));
                rates.push((*key, hits.rate));
            }
        }
    }
    let rate = |key: &str| rates.iter().find(|(known, _)| *known == key).map(|(_, rate)| *rate);
    for (key, words) in [("sticky", "the paper's technique"), ("random", "the paper's random placement")] {
        by_epoch.rules.push(Rule::Level(100.0 * data::claim("blox-fig6", key).low, words.to_owned()));
    }
    let sticky = rate("sticky").context("sticky was placed")?;
    let aim = Comparison::aim("sticky_aim", "hit rate of sticky placement", (0.6, 1.0), sticky, "");
    let incremental = rate("incremental").context("incremental was placed")?;
    let figure = Figure {
        title: "Placing models where they are loaded".to_owned(),
        subtitle: "Of the models that GPUs need for an epoch, those that they have loaded already".to_owned(),
        columns: 2,
        panels: vec![Panel::Lines(by_epoch), Panel::Lines(by_models)],
        theirs: String::new(),
        note: "Implementing Inference scheduler in Blox, Figure 6.".to_owned(),
    };
    let words = ["sticky", "random"].map(|key| Comparison::words("blox-fig6", key, rate(key), ""));
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: words.into_iter().chain([aim]).collect(),
        setup: format!(
            "{MODELS} models of the Symphony paper's Table 5 (1080Ti), {EPOCHS} epochs, {} seeds. In each epoch each model has a job with probability {PRESENT}, with \
             a rate drawn between {} and {} of what a GPU does alone. As many GPUs as the largest epoch needs. `symphony-placement`; a GPU without work keeps what \
             it has loaded.",
            seeds.len(),
            RATE_GPUS.0,
            RATE_GPUS.1
        ),
        differences: vec![
            "The paper looks for each model in turn in the table of the last placement; ours is the assignment with fewest loads over all GPUs. The paper \
             does not say how its jobs change from epoch to epoch, which decides how much there is to keep."
                .to_owned(),
            "Chance hits about as often as a GPU's models are among all pairs of models and GPUs: the paper's 15 % need fewer GPUs than ours. With five models \
             it is as high here; more models make it rarer, as the paper says."
                .to_owned(),
            format!(
                "Incremental packing hits {:.1} %: it keeps nodes as they are, where packing from scratch makes new ones that happen to need what is loaded.",
                100.0 * incremental
            ),
        ],
        missing: Vec::new(),
    })
}

/// Means over the seeds.
fn hits(placement: &dyn Placement, models: usize, seeds: &[u64]) -> Result<Hits> {
    let mut hits = Hits { rate: 0.0, by_epoch: vec![0.0; EPOCHS - 1] };
    for &seed in seeds {
        let epochs = epochs(models, seed)?;
        let gpus = epochs.iter().map(|jobs| squishy_bin_packing(&sessions(jobs)).len()).max().unwrap_or(0);
        let names: Vec<_> = (0..models).collect();
        let (mut placed, mut all) = (Placed::default(), Loads::default());
        for (at, jobs) in epochs.iter().enumerate() {
            let sessions = sessions(jobs);
            let next = placement.place(&Demand::new(&sessions, &names, gpus, seed + at as u64)?, &placed);
            if at > 0 {
                let loads = Loads::between(&placed, &next);
                all = all.and(loads);
                hits.by_epoch[at - 1] += loads.hit_rate().unwrap_or(1.0) / seeds.len() as f64;
            }
            placed = next;
        }
        hits.rate += all.hit_rate().unwrap_or(1.0) / seeds.len() as f64;
    }
    Ok(hits)
}

/// The jobs of each epoch: one for each model, which often has no rate.
fn epochs(models: usize, seed: u64) -> Result<Vec<Vec<Job>>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let jobs =
        data::zoo_1080ti().iter().take(models).map(|row| Job::new(row, row.slo_ms)).collect::<Result<Vec<_>>>()?;
    let mut epochs = Vec::new();
    for _ in 0..EPOCHS {
        let mut drawn = jobs.clone();
        for job in &mut drawn {
            let gpus = random.random_range(RATE_GPUS.0..RATE_GPUS.1);
            job.rate_rps = if random.random_bool(PRESENT) { gpus * job.alone_rps } else { 0.0 };
        }
        epochs.push(drawn);
    }
    Ok(epochs)
}
