//! Seed 000, Figure 14 (section 5.6): a changing workload on 512 GPUs, whose number follows the autoscaler's advice.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use symphony_simulator::{CourseStep, RunResult, ScalingResult, fluid_gpus, meets_slo};
use symphony_workload::Scenario;

use super::cell;
use super::changing_rates::{STEP_S, factors};
use crate::data::zoo_1080ti;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Layer, Lines, Marker, Panel, Rule, Series, Stack, Style};
use crate::report::{Comparison, Plot, Report, Table};
use crate::setup::{Models, Setup};
use crate::system::{self, System};

const MODELS: usize = 24;
const SEED: u64 = 1;
/// The busiest moment needs this share of the fleet, by the staggered bound.
const PEAK_SHARE: f64 = 0.86;
/// From an order to a GPU that serves, in seconds.
const PROVISION_S: f64 = 10.0;
/// GPUs are released by the largest need of so many seconds, and not within that time after others were ordered: three times
/// what it takes to get one back, on a day that is 17 times as short as a real one.
const DOWN_S: f64 = 30.0;
/// A rise of the need by this share from one step of the rates to the next is a step of the load.
const RISE_MIN: f64 = 0.02;
/// After so many seconds the step is over: time to notice it, twice the time for GPUs to come, and to notice that they did.
const SETTLED_S: f64 = 30.0;
/// What is drawn and written: means over so many seconds.
const BUCKET_S: f64 = 50.0;

/// The workload: models, and what each is asked for.
struct Load {
    models: Vec<Models>,
    /// Requests per second by model, for each [`STEP_S`].
    rates: Vec<Vec<f64>>,
    gpus: u32,
    duration_s: f64,
}

impl Load {
    fn new(lab: &Lab<'_>) -> Result<Self> {
        let (gpus, duration_s) = lab.pick((512, 10_000.0), (64, 400.0));
        // Of the 35 models of Table 5, in the order of β/α, as many evenly spread.
        let rows = zoo_1080ti();
        let models: Vec<_> = (0..MODELS).map(|index| Models::of(&rows[index * rows.len() / MODELS])).collect();
        let mut load = Self { models, rates: Vec::new(), gpus, duration_s };
        // Between equal rates, where the slowest model has most of the GPUs, and equal GPUs, where the fastest has most of
        // the requests.
        let weights: Vec<f64> = load.models.iter().map(|model| 1.0 / seconds_per_request(model).sqrt()).collect();
        // One day whatever the size: the quick variant sees the rise of the morning.
        let factors: Vec<_> = (0..MODELS as u64).map(|model| factors(SEED, model, duration_s.max(1_500.0))).collect();
        let from = lab.pick(0, 100);
        let steps = (duration_s / STEP_S) as usize;
        load.rates = (from..from + steps)
            .map(|step| weights.iter().zip(&factors).map(|(weight, factors)| weight * factors[step]).collect())
            .collect();
        // Scaled until the busiest moment fits as meant. The need is nearly, not quite, in proportion.
        let scenario = load.at(0)?.scenario()?;
        let peak = |load: &Self| load.need(&scenario).into_iter().fold(0.0, f64::max);
        for _ in 0..20 {
            let scale = PEAK_SHARE * f64::from(gpus) / peak(&load);
            load.rates.iter_mut().flatten().for_each(|rate| *rate *= scale);
        }
        Ok(load)
    }

    /// GPUs that perfectly staggered batches would need, for each step.
    fn need(&self, scenario: &Scenario) -> Vec<f64> {
        let of = |rates: &Vec<f64>| {
            let by_name: Vec<_> = scenario.models.iter().map(|model| model.name.as_str()).zip(rates).collect();
            fluid_gpus(scenario, |model| {
                by_name.iter().find(|(name, _)| *name == model.name).map_or(0.0, |pair| *pair.1)
            })
        };
        self.rates.iter().map(of).collect()
    }

    fn total(&self, step: usize) -> f64 {
        self.rates[step].iter().sum()
    }

    /// The load of one step, held.
    fn at(&self, step: usize) -> Result<Setup> {
        let mut setup = self.setup("a moment", |model| Ok(format!("weight = {:?}\n", self.rates[step][model])))?;
        setup.duration_s = 10.0;
        Ok(setup)
    }

    /// All of it, with GPUs that follow.
    fn whole(&self, policy: &str, start: u32) -> Result<Setup> {
        let mut setup = self.setup("changing", |model| {
            let mut rows = String::new();
            for (step, rates) in self.rates.iter().enumerate() {
                write!(rows, "[{:?},{:?}],", step as f64 * STEP_S, rates[model])?;
            }
            // Factors are the rates themselves, against one request per second.
            Ok(format!("weight = 1\nrate_profile = [{rows}]\n"))
        })?;
        setup.duration_s = self.duration_s - 2.0;
        setup.more_of_gpus = format!("start = {start}\nmin = 1\n");
        setup.more = format!(
            "[autoscale]\nprovision_s = {PROVISION_S:?}\ndown_window_s = {DOWN_S:?}\ndown_after_up_s = {DOWN_S:?}\n"
        );
        Ok(setup.with_policy(policy))
    }

    fn setup(&self, name: &str, more: impl Fn(usize) -> Result<String>) -> Result<Setup> {
        let mut models = self.models.clone();
        for (index, model) in models.iter_mut().enumerate() {
            model.more = more(index)?;
        }
        Ok(Setup {
            name: name.to_owned(),
            policy: r#""symphony""#.to_owned(),
            gpus: self.gpus,
            models,
            arrival: r#""poisson""#.to_owned(),
            popularity: r#""weights""#.to_owned(),
            network: crate::setup::Network::default(),
            duration_s: self.duration_s,
            seeds: vec![SEED],
            trace: String::new(),
            more_of_gpus: String::new(),
            more: String::new(),
        })
    }
}

/// The GPU time of one request in the largest batch that the SLO allows.
fn seconds_per_request(model: &Models) -> f64 {
    let batch = ((model.slo_ms - model.beta_ms) / model.alpha_ms).floor().max(1.0);
    (model.alpha_ms + model.beta_ms / batch) / 1e3
}

/// The offline ideal of one moment: the fewest GPUs on which its rates, held for ten seconds, meet every model's SLO.
fn ideal_gpus(load: &Load, step: usize, need: f64) -> Result<u32> {
    let setup = load.at(step)?;
    let meets = |gpus: u32| -> Result<bool> {
        let scenario = Setup { gpus, ..setup.clone() }.scenario()?;
        Ok(meets_slo(&scenario, SEED, load.total(step))?.passed)
    };
    let (mut low, mut high) = (need.floor() as u32, (1.1 * need).ceil() as u32 + 2);
    while !meets(high)? {
        (low, high) = (high, high + high / 8 + 1);
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if meets(middle)? { high = middle } else { low = middle }
    }
    Ok(high)
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let load = Load::new(lab)?;
    let need = load.need(&load.at(0)?.scenario()?);
    let start = (1.1 * need[0]).ceil() as u32;
    // As many requests per second as there are models, times the factors.
    let whole = |system: &System| Ok((load.whole(system.policy, start)?, MODELS as f64));
    let runs = lab.runs(&[&system::SYMPHONY, &system::EAGER].map(whole).into_iter().collect::<Result<Vec<_>>>()?)?;
    let scaling = |run: &RunResult| run.autoscale.clone().context("an autoscaled run has a course");
    let [run, eager] = &runs[..] else { bail!("two runs give two results") };
    let (scaling, eager) = (scaling(run)?, scaling(eager)?);
    let every = lab.pick(25, 8);
    let moments: Vec<usize> = (every / 2..need.len()).step_by(every).collect();
    let ideals = lab.map(&moments, |&step| ideal_gpus(&load, step, need[step]));
    let ideals: Vec<u32> = ideals.into_iter().collect::<Result<_>>()?;

    let found = Found::new(&load, &need, &scaling, &moments, &ideals);
    let (buckets, eager_buckets) = (Bucket::all(&scaling.course), Bucket::all(&eager.course));
    let figure = figure(&load, &buckets, &eager_buckets, &scaling.course, &moments, &ideals);
    let requests = run.offered_rps * (load.duration_s - 2.0);
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![course_table(&buckets, &eager_buckets, &need), model_table(&load, &buckets), ideal_table(&load, &found)],
        comparisons: found.comparisons(run.bad_rate),
        setup: format!(
            "{MODELS} models of Table 5, evenly spread over β/α, each with its own SLO (20 to 378 ms); {} emulated 1080Ti at the most; policy \
             `symphony`; {} s, {:.0} million requests, seed {SEED}. Rates change every {STEP_S} s: a day of 5000 s (±55 %, models up to 8 % of a day apart), \
             bursts of single models (1.5 to 2.5 times the rate for 1 to 7 minutes, every 2000 s on average), and ±2 % from step to step. A model's \
             mean rate is in proportion to 1/√(GPU time of a request). The busiest moment needs {:.0} % of the fleet by the staggered bound. The autoscaler \
             looks every second and has its defaults, but that GPUs are released after {DOWN_S} s and not after a minute; a GPU serves {PROVISION_S} s after it was ordered, and one that is released ends what it has. The \
             offline ideal is searched at {} moments: the fewest GPUs on which the rates of that moment, held for 10 s, meet every model's SLO at p99.",
            load.gpus,
            cell(load.duration_s, 0),
            requests / 1e6,
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
                "After a fall of the load GPUs stay for {DOWN_S} s in case it was a lull, so for that long after a burst more are there than the moment \
                 needs."
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

/// What the run is judged by.
struct Found {
    /// By moment: its second, the ideal, GPUs that were there in the steps around it, and what the bound needs.
    gpus: Vec<(f64, f64, f64, f64)>,
    /// Bad rates of [`STEP_S`] each, and whether they follow a step of the load.
    bad: Vec<(f64, bool)>,
    /// Bad requests, and all, outside of steps.
    outside: (f64, f64),
}

impl Found {
    fn new(load: &Load, need: &[f64], scaling: &ScalingResult, moments: &[usize], ideals: &[u32]) -> Self {
        let course = &scaling.course;
        let per_step = STEP_S as usize;
        let chunks: Vec<&[CourseStep]> = course.chunks(per_step).take(load.rates.len()).collect();
        let there = |step: usize| {
            let sum: f64 = chunks[step].iter().map(|at| at.serving + f64::from(at.draining)).sum();
            sum / chunks[step].len() as f64
        };
        let gpus = moments
            .iter()
            .zip(ideals)
            .filter(|(step, _)| **step < chunks.len())
            .map(|(&step, &ideal)| (step as f64 * STEP_S, f64::from(ideal), there(step), need[step]))
            .collect();
        let rises: Vec<bool> =
            (0..need.len()).map(|step| step > 0 && need[step] > (1.0 + RISE_MIN) * need[step - 1]).collect();
        let settling = (SETTLED_S / STEP_S) as usize;
        let (mut bad, mut outside) = (Vec::new(), (0.0, 0.0));
        for (step, chunk) in chunks.iter().enumerate() {
            let counts = chunk.iter().map(CourseStep::total);
            let (good, lost) =
                counts.fold((0.0, 0.0), |sum, at| (sum.0 + f64::from(at.good), sum.1 + f64::from(at.bad)));
            let after_rise = rises[(step + 1).saturating_sub(settling)..=step].contains(&true);
            bad.push((if lost > 0.0 { lost / (good + lost) } else { 0.0 }, after_rise));
            if !after_rise {
                outside = (outside.0 + lost, outside.1 + good + lost);
            }
        }
        Self { gpus, bad, outside }
    }

    fn comparisons(&self, bad_rate: f64) -> Vec<Comparison> {
        let excess: Vec<f64> = self.gpus.iter().map(|&(_, ideal, there, _)| there / ideal - 1.0).collect();
        let count = excess.len() as f64;
        let within = excess.iter().filter(|excess| excess.abs() <= 0.15).count() as f64 / count;
        let calm: Vec<f64> = self.bad.iter().filter(|(_, after)| !after).map(|&(bad, _)| bad).collect();
        let calm_bad = Some(100.0 * self.outside.0 / self.outside.1);
        let bad_rate = 100.0 * bad_rate;
        let calm_share = calm.iter().filter(|&&bad| bad < 0.01).count() as f64 / calm.len() as f64;
        let (mean, most) =
            (excess.iter().sum::<f64>() / count, excess.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        let near = (0.85, 1.15);
        vec![
            Comparison::words("symphony-fig14", "bad_rate", calm_bad, "%"),
            Comparison::aim("gpus_over_ideal", "GPUs there over the offline ideal, mean", near, 1.0 + mean, ""),
            Comparison::aim(
                "gpus_within",
                "share of the moments at which GPUs are within 15 % of the ideal",
                (1.0, 1.0),
                within,
                "",
            ),
            Comparison::aim("gpus_over_ideal_most", "GPUs there over the offline ideal, largest", near, 1.0 + most, ""),
            Comparison::aim(
                "bad_below_1_share",
                "share of the 10 s outside of steps with a bad rate below 1 %",
                (1.0, 1.0),
                calm_share,
                "",
            ),
            Comparison::aim("bad_rate_whole", "bad rate of the whole run, steps included", (0.0, 1.0), bad_rate, "%"),
        ]
    }
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

fn ideal_table(load: &Load, found: &Found) -> Table {
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
        note: "Seed 000, Figure 14; its rates come from 150 hours of video. One colour for each model, those with the largest β/α at the bottom.".to_owned(),
    }
}
