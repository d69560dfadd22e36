//! The Symphony paper, Figure 14 (section 5.6): a changing workload on 512 GPUs, whose number follows the autoscaler's
//! advice.

mod found;
mod load;

use anyhow::{Context as _, Result, bail};
use symphony_simulator::{CourseStep, RunResult};

use super::cell;
use super::changing_rates::STEP_S;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Layer, Lines, Marker, Panel, Rule, Series, Stack, Style};
use crate::report::{Plot, Report, Table};
use crate::system::{self, System};

use found::{Measured, RISE_MIN, SETTLED_S, Turns, chance, comparisons};
use load::{DOWN_S, Load, MODELS, PEAK_SHARE, PROVISION_S, ideal_gpus};

/// Draws of rates and arrivals: the first one is shown, the others show how much of it is chance.
const SEEDS: [u64; 3] = [1, 2, 3];
/// Plots and files contain means over this many seconds.
const BUCKET_S: f64 = 50.0;

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let seeds = lab.pick(&SEEDS[..], &SEEDS[..1]);
    let loads = seeds.iter().map(|&seed| Load::new(lab, seed)).collect::<Result<Vec<_>>>()?;
    let needs = loads.iter().map(|load| Ok(load.need(&load.at(0)?.scenario()?))).collect::<Result<Vec<Vec<f64>>>>()?;
    // As many requests per second as there are models, times the factors.
    let whole = |draw: usize, system: &System| {
        let start = (1.1 * needs[draw][0]).ceil() as u32;
        Ok((loads[draw].whole(system.policy, start)?, MODELS as f64))
    };
    let followed = (0..seeds.len()).map(|draw| whole(draw, &system::SYMPHONY));
    let runs = lab.runs(&followed.chain([whole(0, &system::EAGER)]).collect::<Result<Vec<_>>>()?)?;
    let scaling = |run: &RunResult| run.autoscale.clone().context("an autoscaled run has a course");
    let [run, .., eager] = &runs[..] else { bail!("each run gives a result") };
    let eager = scaling(eager)?;
    let every = lab.pick(25, 8);
    let moments: Vec<usize> = (every / 2..needs[0].len()).step_by(every).collect();
    let cases: Vec<(usize, usize)> =
        (0..seeds.len()).flat_map(|draw| moments.iter().map(move |&step| (draw, step))).collect();
    let ideals = lab.map(&cases, |&(draw, step)| ideal_gpus(&loads[draw], step, needs[draw][step]));
    let ideals = ideals.into_iter().collect::<Result<Vec<u32>>>()?;
    let all = loads.iter().zip(&needs).zip(&runs).zip(ideals.chunks(moments.len()));
    let all = all
        .map(|(((load, need), run), ideals)| {
            Ok(Measured::new(load, need, &scaling(run)?, &moments, ideals, run.bad_rate))
        })
        .collect::<Result<Vec<_>>>()?;
    let (load, need, scaling, found) = (&loads[0], &needs[0], scaling(run)?, &all[0]);
    let ideals = &ideals[..moments.len()];

    let (buckets, eager_buckets) = (Bucket::all(&scaling.course), Bucket::all(&eager.course));
    let figure = figure(load, &buckets, &eager_buckets, &scaling.course, &moments, ideals);
    let requests = run.offered_rps * (load.duration_s - 2.0);
    let mut tables =
        vec![course_table(&buckets, &eager_buckets, need), model_table(load, &buckets), ideal_table(load, found)];
    // One draw says nothing about chance.
    if seeds.len() > 1 {
        tables.push(seed_table(&loads, &all));
    }
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables,
        comparisons: comparisons(&all),
        setup: format!(
            "{MODELS} models of Table 5, evenly spread over β/α, each with its own SLO (20 to 378 ms); {} emulated 1080Ti at the most; policy \
             `symphony`; {} s, {:.0} million requests, seed {}. Rates change every {STEP_S} s: a day of 5000 s (±55 %, models up to 8 % of a day apart), \
             bursts of single models (1.5 to 2.5 times the rate for 1 to 7 minutes, every 2000 s on average), and ±2 % from step to step. A model's \
             mean rate is in proportion to 1/√(GPU time of a request). The busiest moment needs {:.0} % of the fleet by the staggered bound. The autoscaler \
             looks every second and has its defaults, but that GPUs are released after {DOWN_S} s and not after a minute, on a day that is 17 times as short as a real one; a GPU serves {PROVISION_S} s after it was ordered, and one that is released ends what it has. The \
             offline ideal is searched at {} moments: the fewest GPUs on which the rates of that moment, held for 10 s, meet every model's SLO at p99.",
            load.gpus,
            cell(load.duration_s, 0),
            requests / 1e6,
            load.seed,
            100.0 * PEAK_SHARE,
            moments.len()
        ),
        differences: vec![
            "The paper's rates are counted in 150 hours of video; ours are made, with a day that is 17 times as short as a real one, so that rises are \
             steeper."
                .to_owned(),
            format!(
                "With `eager` in the same loop {} GPUs are there in the mean, with `symphony` {}: a work-conserving policy keeps all GPUs busy with small \
                 batches, and no idle share says that some could go (the paper's section 4.4 says it of Clockwork).",
                cell(eager.gpus_mean, 0),
                cell(scaling.gpus_mean, 0)
            ),
            "The paper's advice is drawn beside a cluster of 512 GPUs that are always there. Here it is followed: the second panel shows GPUs that are \
             there, and the third what is still missing or too many."
                .to_owned(),
            format!(
                "After a fall of the load GPUs stay for {DOWN_S} s in case it was a lull, and then go a tenth at a time, so for a while after a burst \
                 more are there than the moment needs. How often a moment falls into such a time is chance: {}.",
                chance(seeds, &all)
            ),
            format!(
                "A step of the load is a rise of the need by {:.0} % within {STEP_S} s; requests are lost until the GPUs come. What is lost in the {SETTLED_S} s \
                 after a step is counted in the bad rate of the whole run, and not in that outside of steps.",
                100.0 * RISE_MIN
            ),
        ],
        missing: Vec::new(),
    })
}

/// Means over [`BUCKET_S`].
struct Bucket {
    at_s: f64,
    length_s: f64,
    /// Requests by model: offered, good, bad.
    models: Vec<[f64; 3]>,
    serving: f64,
    busy: f64,
    there: f64,
    pressure: f64,
    add: u32,
    release: u32,
}

impl Bucket {
    fn all(course: &[CourseStep]) -> Vec<Self> {
        let bucket = |steps: &[CourseStep]| {
            let count = steps.len() as f64;
            let mean = |of: fn(&CourseStep) -> f64| steps.iter().map(of).sum::<f64>() / count;
            let last = &steps[steps.len() - 1];
            let mut models = vec![[0.0; 3]; last.models.len()];
            for step in steps {
                for (sum, model) in models.iter_mut().zip(&step.models) {
                    let counts = [model.offered, model.good, model.bad].map(f64::from);
                    sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
                }
            }
            Self {
                at_s: last.at_s,
                length_s: count,
                models,
                serving: mean(|step| step.serving),
                busy: mean(|step| step.busy),
                there: mean(|step| step.serving + f64::from(step.draining)),
                pressure: mean(|step| step.pressure),
                add: steps.iter().map(|step| step.add).sum(),
                release: steps.iter().map(|step| step.release).sum(),
            }
        };
        course.chunks(BUCKET_S as usize).map(bucket).collect()
    }

    fn sum(&self, of: usize) -> f64 {
        self.models.iter().map(|model| model[of]).sum()
    }

    fn bad_rate(&self) -> f64 {
        let (good, bad) = (self.sum(1), self.sum(2));
        if bad > 0.0 { bad / (good + bad) } else { 0.0 }
    }
}

fn seed_table(loads: &[Load], all: &[Measured]) -> Table {
    let header = [
        "seed",
        "moments",
        "within_15_percent",
        "there_over_ideal_mean",
        "there_over_ideal_most",
        "bad_rate",
        "bad_rate_outside_of_steps",
        "gpus_mean",
        "orders",
        "releases",
        "taken_back",
    ];
    let mut table = Table { suffix: "-seeds", ..Table::new(&header) };
    for (load, found) in loads.iter().zip(all) {
        let (mean, most) = found.over();
        let Turns { orders, releases, taken_back } = found.turns;
        table.rows.push(vec![
            load.seed.to_string(),
            found.gpus.len().to_string(),
            found.within().to_string(),
            cell(mean, 3),
            cell(most, 3),
            cell(found.bad_rate, 6),
            cell(found.calm_bad(), 6),
            cell(found.gpus_mean, 1),
            orders.to_string(),
            releases.to_string(),
            taken_back.to_string(),
        ]);
    }
    table
}

fn course_table(buckets: &[Bucket], eager: &[Bucket], need: &[f64]) -> Table {
    let header = [
        "until_s",
        "offered_rps",
        "good_rps",
        "bad_rate",
        "gpus_there",
        "gpus_serving",
        "gpus_executing",
        "gpus_bound",
        "advice_mean",
        "ordered",
        "released",
        "gpus_there_eager",
    ];
    let mut table = Table::new(&header);
    for (bucket, eager) in buckets.iter().zip(eager) {
        let last = ((bucket.at_s / STEP_S) as usize).min(need.len());
        let steps = &need[last.saturating_sub((BUCKET_S / STEP_S) as usize).min(last.saturating_sub(1))..last];
        table.rows.push(vec![
            cell(bucket.at_s, 0),
            cell(bucket.sum(0) / bucket.length_s, 0),
            cell(bucket.sum(1) / bucket.length_s, 0),
            cell(bucket.bad_rate(), 5),
            cell(bucket.there, 1),
            cell(bucket.serving, 1),
            cell(bucket.busy, 1),
            cell(steps.iter().sum::<f64>() / steps.len().max(1) as f64, 1),
            cell(bucket.pressure, 1),
            bucket.add.to_string(),
            bucket.release.to_string(),
            cell(eager.there, 1),
        ]);
    }
    table
}

fn model_table(load: &Load, buckets: &[Bucket]) -> Table {
    let mut table = Table { suffix: "-models", ..Table::new(&["until_s", "model", "good_rps", "bad_rps"]) };
    // Every other one: enough to see days and bursts.
    for bucket in buckets.iter().skip(1).step_by(2) {
        for (model, counts) in load.models.iter().zip(&bucket.models) {
            table.rows.push(vec![
                cell(bucket.at_s, 0),
                model.name.clone(),
                cell(counts[1] / bucket.length_s, 1),
                cell(counts[2] / bucket.length_s, 1),
            ]);
        }
    }
    table
}

fn ideal_table(load: &Load, found: &Measured) -> Table {
    let header = ["at_s", "rate_rps", "gpus_bound", "gpus_ideal", "gpus_there", "there_over_ideal"];
    let mut table = Table { suffix: "-ideal", ..Table::new(&header) };
    for &(at_s, ideal, there, need) in &found.gpus {
        table.rows.push(vec![
            cell(at_s, 0),
            cell(load.total((at_s / STEP_S) as usize), 0),
            cell(need, 1),
            cell(ideal, 0),
            cell(there, 1),
            cell(there / ideal, 3),
        ]);
    }
    table
}

fn figure(
    load: &Load,
    buckets: &[Bucket],
    eager: &[Bucket],
    course: &[CourseStep],
    moments: &[usize],
    ideals: &[u32],
) -> Figure {
    let time = || Axis::between("time, s", 0.0, load.duration_s);
    let at: Vec<f64> = buckets.iter().map(|bucket| bucket.at_s - bucket.length_s / 2.0).collect();
    let rate = |model: usize, of: usize| buckets.iter().map(|b| b.models[model][of] / b.length_s).collect::<Vec<_>>();
    let mut layers: Vec<_> =
        (0..MODELS).map(|model| Layer { colour: Layer::colour(model, MODELS), values: rate(model, 1) }).collect();
    let unserved = buckets.iter().map(|bucket| bucket.sum(2) / bucket.length_s).collect();
    layers.push(Layer { colour: "#111111".to_owned(), values: unserved });
    let rates = Stack {
        title: "Served by model, and on top what was not served in time (black)".to_owned(),
        x: time(),
        y: Axis::from_zero("requests per second"),
        at: at.clone(),
        layers,
    };
    let line = |label: &str, index, draw, points| Series { style: Style::plain(label, index), draw, points };
    let points = |of: fn(&Bucket) -> f64| at.iter().copied().zip(buckets.iter().map(of)).collect::<Vec<_>>();
    let mut gpus = Lines::new("GPUs", time(), Axis::between("GPUs", 0.0, 1.04 * f64::from(load.gpus)));
    gpus.series.push(line("GPUs there", 0, Draw::Line, points(|bucket| bucket.there)));
    let points_of_eager = at.iter().copied().zip(eager.iter().map(|bucket| bucket.there)).collect();
    gpus.series.push(line("GPUs there with eager", 4, Draw::Line, points_of_eager));
    gpus.series.push(line("GPUs executing, mean", 2, Draw::Line, points(|bucket| bucket.busy)));
    let ideal = moments.iter().zip(ideals).map(|(&step, &gpus)| (step as f64 * STEP_S, f64::from(gpus))).collect();
    gpus.series.push(Series {
        style: Style::new("offline ideal", "#111111", Marker::Cross),
        draw: Draw::Marks,
        points: ideal,
    });
    gpus.rules.push(Rule::Level(f64::from(load.gpus), "all".to_owned()));
    let mut advice = Lines::new(
        "Advice",
        time(),
        Axis { range: (None, None), ..Axis::from_zero("GPUs to add (above 0) or to release (below)") },
    );
    let each = |of: fn(&CourseStep) -> f64| -> Vec<(f64, f64)> {
        let means = course.chunks(STEP_S as usize).map(|steps| {
            let mean = steps.iter().map(of).sum::<f64>() / steps.len() as f64;
            (steps[steps.len() - 1].at_s, mean)
        });
        means.collect()
    };
    advice.series.push(line("the law before damping", 5, Draw::Line, each(|step| step.pressure)));
    let done = course
        .chunks(STEP_S as usize)
        .map(|steps| {
            let change = |step: &CourseStep| f64::from(step.add) - f64::from(step.release);
            (steps[steps.len() - 1].at_s, steps.iter().map(change).sum())
        })
        .collect();
    advice.series.push(line("ordered or released in 10 s", 1, Draw::Line, done));
    let mut bad = Lines::new("Bad rate", time(), Axis::from_zero("dropped or late in 10 s, %"));
    let rates_10_s = course.chunks(STEP_S as usize).map(|steps| {
        let sum = steps
            .iter()
            .map(CourseStep::total)
            .fold((0.0, 0.0), |sum, at| (sum.0 + f64::from(at.good), sum.1 + f64::from(at.bad)));
        (steps[steps.len() - 1].at_s, 100.0 * if sum.1 > 0.0 { sum.1 / (sum.0 + sum.1) } else { 0.0 })
    });
    bad.series.push(line("bad rate", 3, Draw::Line, rates_10_s.collect()));
    bad.rules.push(Rule::Level(1.0, "1 %".to_owned()));
    Figure {
        title: "The number of GPUs follows a changing load".to_owned(),
        subtitle: format!(
            "{MODELS} models of Table 5 with their own SLOs, rates by day and in bursts, Poisson, up to {} GPUs, symphony; means of 50 s above, of 10 s below",
            load.gpus
        ),
        columns: 1,
        panels: vec![Panel::Stack(rates), Panel::Lines(gpus), Panel::Lines(advice), Panel::Lines(bad)],
        theirs: String::new(),
        note: "The Symphony paper, Figure 14; its rates come from 150 hours of video. One colour for each model, those with the largest β/α at the bottom.".to_owned(),
    }
}
