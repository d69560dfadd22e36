//! The Nexus paper, Figure 13 (section 7.4): epochs follow a workload over 1000 s.

use anyhow::{Context as _, Result};
use rand::SeedableRng as _;
use rand_distr::{Distribution as _, Poisson};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_packing::{PackedNode, Session};
use symphony_placement::{Demand, Incremental, Loads, Packed, Placed, Placement};

use super::cell;
use super::zoo_jobs::{Job, drawn};
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};

/// Section 7.4: the window, when the load rises and falls, and the length of an epoch, in seconds.
const WINDOW_S: usize = 1000;
const RISES_S: usize = 326;
const FALLS_S: usize = 644;
const EPOCH_S: usize = 30;
/// Section 7.4: 100 GPUs; 70 sessions are those of the applications whose number it gives (game 50, traffic 20).
const GPUS: usize = 100;
const SESSIONS: usize = 70;
/// Rates, by what one GPU does alone: the highest one, and all of them while the load is high.
const RATE_GPUS_MAX: f64 = 1.0;
const HIGH: f64 = 1.5;
/// How much a rate varies while the load is high, and how long a variation takes.
const VARIES: f64 = 0.2;
const PERIOD_S: f64 = 97.0;
/// The seconds that an epoch looks back, and what it plans for over what it saw: Poisson counts of a second vary.
const OBSERVED_S: usize = 10;
const HEADROOM: f64 = 1.15;
/// How long a model that is placed again serves nothing.
const LOAD_S: usize = 1;
/// Points of the plots, in seconds.
const STEP_S: usize = 5;

/// What one way of packing did, second by second.
struct Course {
    gpus: Vec<usize>,
    bad: Vec<f64>,
    loads: usize,
}

pub(crate) fn run(_: &Lab<'_>) -> Result<Report> {
    let jobs = drawn(SESSIONS, RATE_GPUS_MAX, 1)?;
    let arrivals = arrivals(&jobs)?;
    let incremental = course(&Incremental, &jobs, &arrivals)?;
    let scratch = course(&Packed, &jobs, &arrivals)?;
    let offered: Vec<f64> = arrivals.iter().map(|second| second.iter().sum()).collect();
    let all: f64 = offered.iter().sum();
    let share = |course: &Course| course.bad.iter().sum::<f64>() / all;
    let mut table = Table::new(&["second", "requests_rps", "gpus", "bad_rate", "scratch_gpus", "scratch_bad_rate"]);
    for from in (0..WINDOW_S).step_by(STEP_S) {
        let mean = |of: &[f64]| of[from..from + STEP_S].iter().sum::<f64>() / STEP_S as f64;
        let bad = |course: &Course| cell(mean(&course.bad) / mean(&offered), 4);
        let (ours, theirs) = (incremental.gpus[from].to_string(), scratch.gpus[from].to_string());
        table.rows.push(vec![
            from.to_string(),
            cell(mean(&offered), 0),
            ours,
            bad(&incremental),
            theirs,
            bad(&scratch),
        ]);
    }
    let is_high = |second: usize| (RISES_S..FALLS_S).contains(&second);
    let bad_percent = |counts: &dyn Fn(usize) -> bool| {
        let sum = |of: &[f64]| (0..WINDOW_S).filter(|&second| counts(second)).map(|second| of[second]).sum::<f64>();
        100.0 * sum(&incremental.bad) / sum(&offered)
    };
    let rise = lag(&incremental.gpus, RISES_S, |now, before| now > before);
    let fall = lag(&incremental.gpus, FALLS_S, |now, before| now < before);
    let mut comparisons = vec![
        Comparison::words("nexus-fig13", "bad_rate", Some(share(&incremental)), ""),
        Comparison::words("nexus-fig13", "rise", rise, "s"),
        Comparison::words("nexus-fig13", "fall", fall, "s"),
    ];
    let moves = incremental.loads as f64 / scratch.loads.max(1) as f64;
    comparisons.push(Comparison::aim(
        "moves",
        "models loaded: incremental packing over packing from scratch",
        (0.0, 0.4),
        moves,
        "",
    ));
    Ok(Report {
        plots: vec![Plot { suffix: "", figure: figure(&offered, &incremental, &scratch) }],
        tables: vec![table],
        comparisons,
        setup: format!(
            "{SESSIONS} sessions of models drawn from the Symphony paper's Table 5 with its SLOs, rates up to {RATE_GPUS_MAX} GPU's worth, Poisson counts by second; \
             from second {RISES_S} to {FALLS_S} they are {HIGH} times as high and vary by {VARIES} over {PERIOD_S} s, each in a phase of its own. At most {GPUS} GPUs. \
             Epochs of {EPOCH_S} s plan for {HEADROOM} of what the last {OBSERVED_S} s saw. Bad: what arrives in a second beyond what the GPUs' duty cycles take; a model \
             that is placed anew takes nothing for {LOAD_S} s. Incremental packing, and packing from scratch onto GPUs in order; `symphony-placement`."
        ),
        differences: vec![
            format!(
                "Epochs begin at multiples of 30 s only, so the rise is answered at the next one; the paper's system also acts before an epoch ends. Its workload is drawn, \
                 not printed: ours has its times and its shape. While the load is high, and rates outgrow what the last epoch has planned for, {:.1} % are bad; before \
                 and after {:.1} %.",
                bad_percent(&is_high),
                bad_percent(&|second| !is_high(second))
            ),
            "Requests are counts by second, not simulated one by one: a burst within a second costs nothing here, and one of a second cannot wait for the next. So bad rates \
             are right in when they rise, and rough in how far."
                .to_owned(),
            format!(
                "From scratch, {:.2} % are bad, {} models are loaded in place of {}: what moves cannot serve. That is why the paper packs incrementally; it does not show the other.",
                100.0 * share(&scratch),
                scratch.loads,
                incremental.loads
            ),
        ],
        missing: Vec::new(),
    })
}

/// The requests of each session in each second.
fn arrivals(jobs: &[Job]) -> Result<Vec<Vec<f64>>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut seconds = Vec::with_capacity(WINDOW_S);
    for second in 0..WINDOW_S {
        let mut counts = Vec::with_capacity(jobs.len());
        for (at, job) in jobs.iter().enumerate() {
            let turn = second as f64 / PERIOD_S + at as f64 / jobs.len() as f64;
            let high = HIGH * (1.0 + VARIES * (std::f64::consts::TAU * turn).sin());
            let factor = if (RISES_S..FALLS_S).contains(&second) { high } else { 1.0 };
            // A rate of zero has no Poisson law.
            let law = Poisson::new((job.rate_rps * factor).max(1e-6)).context("a rate of the experiment")?;
            counts.push(law.sample(&mut random));
        }
        seconds.push(counts);
    }
    Ok(seconds)
}

fn course(placement: &dyn Placement, jobs: &[Job], arrivals: &[Vec<f64>]) -> Result<Course> {
    let models: Vec<_> = (0..jobs.len()).collect();
    let mut placed = place(placement, jobs, &models, jobs.iter().map(|job| job.rate_rps), &Placed::default())?;
    let (mut before, mut since) = (placed.clone(), LOAD_S);
    let mut course = Course { gpus: Vec::new(), bad: Vec::new(), loads: 0 };
    for (second, counts) in arrivals.iter().enumerate() {
        if second > 0 && second % EPOCH_S == 0 {
            let seen = &arrivals[second.saturating_sub(OBSERVED_S)..second];
            let rate = |at: usize| seen.iter().map(|counts| counts[at]).sum::<f64>() / seen.len() as f64;
            let next = place(placement, jobs, &models, (0..jobs.len()).map(rate), &placed)?;
            course.loads += Loads::between(&placed, &next).misses();
            before = std::mem::replace(&mut placed, next);
            since = 0;
        }
        let capacity = capacity(&placed, (since < LOAD_S).then_some(&before), jobs.len());
        course.bad.push(counts.iter().zip(&capacity).map(|(count, capacity)| (count - capacity).max(0.0)).sum());
        course.gpus.push(placed.gpus.iter().filter(|gpu| gpu.node.is_some()).count());
        since += 1;
    }
    Ok(course)
}

fn place(
    placement: &dyn Placement,
    jobs: &[Job],
    models: &[usize],
    rates: impl Iterator<Item = f64>,
    previous: &Placed,
) -> Result<Placed> {
    let session = |(job, rate): (&Job, f64)| (job.slo, rate * HEADROOM);
    let planned: Vec<_> = jobs.iter().zip(rates).map(session).collect();
    let sessions: Vec<Session<'_>> = jobs
        .iter()
        .zip(&planned)
        .map(|(job, &(slo, rate_per_second))| Session { profile: &job.profile, slo, rate_per_second })
        .collect();
    Ok(placement.place(&Demand::new(&sessions, models, GPUS, 1)?, previous))
}

/// Requests per second that each session's GPUs take: whole batches in their duty cycles. With `before`, only where the
/// session's model was loaded.
fn capacity(placed: &Placed, before: Option<&Placed>, sessions: usize) -> Vec<f64> {
    let mut capacity = vec![0.0; sessions];
    for (at, gpu) in placed.gpus.iter().enumerate() {
        let Some(PackedNode { duty, sessions, .. }) = &gpu.node else { continue };
        for packed in sessions {
            let was = before.and_then(|before| before.gpus.get(at));
            if before.is_none() || was.is_some_and(|was| was.loaded.contains(&packed.session)) {
                capacity[packed.session] += f64::from(packed.batch) / duty.as_secs_f64();
            }
        }
    }
    capacity
}

/// The seconds until the number of GPUs changes so.
fn lag(gpus: &[usize], from: usize, changes: fn(usize, usize) -> bool) -> Option<f64> {
    gpus[from..].iter().position(|&now| changes(now, gpus[from])).map(|seconds| seconds as f64)
}

fn figure(offered: &[f64], incremental: &Course, scratch: &Course) -> Figure {
    let x = || Axis::between("time, s", 0.0, WINDOW_S as f64);
    let points = |of: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
        (0..WINDOW_S).step_by(STEP_S).map(|at| (at as f64, of(at))).collect()
    };
    let sum = |of: &[f64], at: usize| of[at..at + STEP_S].iter().sum::<f64>();
    let series = |label: &str, index: usize, draw: Draw, points: Vec<(f64, f64)>| Series {
        style: Style::plain(label, index),
        draw,
        points,
    };
    let mut requests = Lines::new("requests", x(), Axis::from_zero("requests per second"));
    requests.series.push(series("all sessions", 2, Draw::Line, points(&|at| sum(offered, at) / STEP_S as f64)));
    let mut gpus = Lines::new("GPUs", x(), Axis::from_zero("GPUs in use"));
    let mut bad = Lines::new("bad requests", x(), Axis::from_zero("bad requests, %"));
    for (label, index, course) in [("incremental packing", 0, incremental), ("from scratch", 1, scratch)] {
        gpus.series.push(series(label, index, Draw::Steps, points(&|at| course.gpus[at] as f64)));
        let rate = |at: usize| 100.0 * sum(&course.bad, at) / sum(offered, at);
        bad.series.push(series(label, index, Draw::Line, points(&rate)));
    }
    Figure {
        title: "Epochs follow the workload".to_owned(),
        subtitle: "Every 30 s the sessions are packed again, by what the last seconds saw".to_owned(),
        columns: 1,
        panels: vec![Panel::Lines(requests), Panel::Lines(gpus), Panel::Lines(bad)],
        theirs: String::new(),
        note: "The Nexus paper, Figure 13.".to_owned(),
    }
}
