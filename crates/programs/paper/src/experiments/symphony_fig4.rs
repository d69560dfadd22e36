//! The Symphony paper, Figure 4 (section 4.3, "Microbenchmark evaluation"): goodput of deferral over eager, over the
//! grid of Table 3.

use anyhow::Result;
use rand::SeedableRng as _;
use rand::seq::IndexedRandom as _;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::cell;
use crate::data;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Rule, Series, Style};
use crate::report::{Comparison, Plot, Reading, Report, Table};
use crate::setup::{Models, Setup};
use crate::system::{self, System};

/// Table 3: shapes of the gamma distribution of gaps; 1 is Poisson.
const SHAPES: [f64; 6] = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0];
const MODELS: [&str; 6] = ["DenseNet121", "InceptionV3", "ResNet50V2", "VGG16", "Xception", "BERT"];
const COUNTS: [u32; 6] = [8, 16, 24, 32, 48, 64];
const GPUS_PER_MODEL: [f64; 7] = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0];
const SLOS_MS: [f64; 5] = [20.0, 25.0, 30.0, 40.0, 50.0];

/// The number of cases drawn from the grid's 7560; a seed selects them.
const SAMPLES: usize = 48;
const SAMPLES_QUICK: usize = 6;

/// What the others are compared with: the strongest, and the paper's.
const EAGER: [System; 2] = [system::EAGER, system::EAGER_PAPER];
const OURS: [System; 2] = [system::SYMPHONY, system::AUTO];

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let shapes: Vec<f64> = lab.pick(SHAPES.to_vec(), vec![0.1, 1.0]);
    let mut table = Table::new(&["panel", "case", "gamma_shape", "system", "goodput_rps", "over", "over_rps", "ratio"]);
    let mut panels = Vec::new();
    let mut comparisons = Vec::new();

    // (a) mixed models; (b) and (c) one profile at two SLOs.
    let zoo: Vec<_> = data::zoo_1080ti().iter().map(Models::of).collect();
    let pools = [(1.0, 35), (2.0, 70), (4.0, 140)];
    let mixed: Vec<_> = pools
        .into_iter()
        .take(lab.pick(pools.len(), 1))
        .map(|(ratio, gpus)| {
            (
                format!("{ratio} GPU{} per model", if ratio == 1.0 { "" } else { "s" }),
                lab.setup("mixed", gpus, zoo.clone()),
            )
        })
        .collect();
    panels.push(by_shape(
        lab,
        "a",
        "35 models of Table 5 mixed",
        "mixed",
        &mixed,
        &shapes,
        &mut table,
        &mut comparisons,
    )?);
    let at_slo = |name: &str, slo_ms: f64| {
        let row = data::model_1080ti(name);
        let models = vec![Models { count: 16, slo_ms, ..Models::of(&row) }];
        (format!("SLO {slo_ms:.0} ms"), lab.setup(name, 32, models))
    };
    let at_slos = |name: &str| -> Vec<_> {
        lab.pick::<&[f64]>(&[30.0, 50.0], &[30.0]).iter().map(|&slo_ms| at_slo(name, slo_ms)).collect()
    };
    let densenet = at_slos("DenseNet121");
    let title = "16 × DenseNet121 (strong batching) on 32 GPUs";
    panels.push(by_shape(lab, "b", title, "densenet_30ms", &densenet, &shapes, &mut table, &mut comparisons)?);
    let bert = at_slos("BERT");
    let title = "16 × BERT (no batching gain) on 32 GPUs";
    panels.push(by_shape(lab, "c", title, "bert", &bert, &shapes, &mut table, &mut comparisons)?);
    panels.push(all_cases(lab, &mut table, &mut comparisons)?);

    let ours = |key: &str| {
        let found = comparisons.iter().find(|comparison| comparison.key == key).and_then(|comparison| comparison.ours);
        found.map_or_else(String::new, |value| cell(value, 2))
    };
    let differences = vec![
            format!(
                "On mixed models the paper finds 1.34 to 1.89, we find {} to {} over the eager policy of the paper's appendix C, which ranks \
                 waiting batches by the time at which they wanted to start. Most of that is the ranking's fault: `eager`, which ranks by the \
                 latest start and gives up early as `symphony` does, is far closer, as (d) shows.",
                ours("mixed_least"),
                ours("mixed_most")
            ),
            "Against `eager`: with many GPUs per model, strong batching and tight SLOs waiting pays, up to more than 2×. With one GPU per model all GPUs are \
             needed all the time, and a GPU that was kept waiting is missed by the next model; in bursts the company that a request waits \
             for has come already; BERT gains nothing from company. There waiting loses, by up to a fifth. `auto` exists for these cases."
                .to_owned(),
            "A larger sample, drawn evenly, with `auto` against the best of four fixed policies is in [the former ADR 8](../internals/lab/2026-11-auto-seven-rules.md#evidence)."
                .to_owned(),
];
    let figure = Figure {
        title: "Goodput of deferral over the goodput of eager".to_owned(),
        subtitle:
            "(a) to (c), solid: symphony over the eager policy of the paper; dashed: auto over our strongest eager policy"
                .to_owned(),
        columns: 2,
        panels,
        theirs: String::new(),
        note: "Grey bands: what the Symphony paper says in words about its Figure 4, against its own eager policy.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons,
        setup: format!(
            "(a) to (c): {}. (d): {} cases drawn from the {} of Table 3, 10 s each, seed 1. Gaps follow a gamma law; shape 1 is Poisson. Ratios \
             of two rates near zero count as 1.",
            lab.words(),
            lab.pick(SAMPLES, SAMPLES_QUICK),
            MODELS.len() * COUNTS.len() * GPUS_PER_MODEL.len() * SLOS_MS.len() * SHAPES.len(),
        ),
        differences,
        missing: Report::missing(&OURS, &lab.known(&OURS)),
    })
}

/// Ratios by burstiness, one line for each case and system.
#[expect(clippy::too_many_arguments, reason = "called three times, in a row")]
fn by_shape(
    lab: &Lab<'_>,
    panel: &str,
    title: &str,
    claim: &str,
    cases: &[(String, Setup)],
    shapes: &[f64],
    table: &mut Table,
    comparisons: &mut Vec<Comparison>,
) -> Result<Panel> {
    let systems: Vec<System> = EAGER.into_iter().chain(lab.known(&OURS)).collect();
    let mut setups = Vec::new();
    for (_, setup) in cases {
        for system in &systems {
            for shape in shapes {
                let mut setup = setup.with_policy(system.policy);
                setup.arrival = format!("{{ gamma = {shape:?} }}");
                setups.push(setup);
            }
        }
    }
    let goodputs = lab.goodputs(&setups)?;
    let x = Axis::between("shape of the gamma law of gaps (1: Poisson)", 0.0, 1.05);
    let mut lines = Lines::new(&format!("({panel}) {title}"), x, ratio_axis());
    let claimed = data::claim("symphony-fig4", claim);
    lines.rules.push(Rule::Band(claimed.low, claimed.high, "the paper's words".to_owned()));
    lines.rules.push(Rule::Level(1.0, String::new()));
    let mut ratios = Vec::new();
    for (index, ((label, _), found)) in cases.iter().zip(goodputs.chunks(systems.len() * shapes.len())).enumerate() {
        let (eager, papers_eager) = (&found[..shapes.len()], &found[shapes.len()..2 * shapes.len()]);
        for (system, found) in systems.iter().zip(found.chunks(shapes.len())).skip(2) {
            // Deferral is compared as in the paper; `auto` with the strongest.
            let (eager, against) =
                if *system == system::AUTO { (eager, system::EAGER) } else { (papers_eager, system::EAGER_PAPER) };
            let points: Vec<_> =
                shapes.iter().zip(found.iter().zip(eager)).map(|(&s, (&o, &e))| (s, ratio(o, e))).collect();
            for ((shape, ratio), (ours, eager)) in points.iter().zip(found.iter().zip(eager)) {
                table.rows.push(vec![
                    panel.to_owned(),
                    label.clone(),
                    cell(*shape, 1),
                    system.key.to_owned(),
                    cell(*ours, 0),
                    against.key.to_owned(),
                    cell(*eager, 0),
                    cell(*ratio, 3),
                ]);
            }
            if *system == system::SYMPHONY && (claim != "densenet_30ms" || index == 0) {
                ratios.extend(points.iter().map(|point| point.1));
            }
            // Panel (a) has cases of its own; (b) and (c) share theirs.
            let mut style = Style::plain(label, index + if panel == "a" { 0 } else { 3 });
            if *system == system::AUTO {
                (style.dashed, style.label) = (true, String::new());
            }
            lines.series.push(Series { style, draw: Draw::Points, points });
        }
    }
    for (end, value) in [
        ("least", ratios.iter().copied().fold(f64::INFINITY, f64::min)),
        ("most", ratios.iter().copied().fold(0.0, f64::max)),
    ] {
        let mut comparison = Comparison::words("symphony-fig4", claim, Some(value), "×");
        comparison.what += &format!(": {end} of ours");
        comparison.key = format!("{claim}_{end}");
        comparisons.push(comparison);
    }
    Ok(Panel::Lines(lines))
}

/// Ratios over a sample of the grid, sorted.
fn all_cases(lab: &Lab<'_>, table: &mut Table, comparisons: &mut Vec<Comparison>) -> Result<Panel> {
    let systems: Vec<System> = EAGER.into_iter().chain(lab.known(&OURS)).collect();
    let samples = samples(lab);
    let mut setups = Vec::new();
    for (_, setup) in &samples {
        setups.extend(systems.iter().map(|system| setup.with_policy(system.policy)));
    }
    let goodputs = lab.goodputs(&setups)?;
    let x = Axis::between("share of the cases, %", 0.0, 100.0);
    let mut lines = Lines::new("(d) cases drawn from the whole grid, sorted", x, ratio_axis());
    lines.rules.push(Rule::Level(1.0, String::new()));
    let by_case: Vec<&[f64]> = goodputs.chunks(systems.len()).collect();
    for (at, system) in systems.iter().enumerate().skip(2) {
        for (against, label) in [(0, "over eager"), (1, "over the paper's eager")] {
            let mut ratios: Vec<f64> = by_case.iter().map(|found| ratio(found[at], found[against])).collect();
            ratios.sort_by(f64::total_cmp);
            let last = (ratios.len() - 1) as f64;
            let points = ratios.iter().enumerate().map(|(i, &ratio)| (100.0 * i as f64 / last, ratio)).collect();
            let mut style = system.style();
            style.label = format!("{} {label}", system.label);
            if against == 1 {
                style.colour = if *system == system::AUTO { "#e8b690" } else { "#8a94a0" };
            }
            lines.series.push(Series { style, draw: Draw::Line, points });
            if *system == system::SYMPHONY || against == 0 {
                let share = |holds: fn(f64) -> bool| {
                    ratios.iter().filter(|&&ratio| holds(ratio)).count() as f64 / ratios.len() as f64
                };
                for (key, share) in
                    [("no_worse_share", share(|r| r > 0.95)), ("half_better_share", share(|r| r >= 1.5))]
                {
                    let mut comparison = Comparison::words("symphony-fig4", key, Some(share), "");
                    comparison.what = format!("{}: {} {label}", comparison.what, system.label);
                    comparison.key = format!("{key}_{}_{against}", system.key);
                    comparison.theirs.1 = 1.0;
                    comparison.reading = Reading::Words;
                    comparisons.push(comparison);
                }
            }
        }
    }
    for ((name, setup), found) in samples.iter().zip(&by_case) {
        for (system, goodput) in systems.iter().zip(*found).skip(1) {
            let over = system::EAGER.key.to_owned();
            let shape = setup.arrival.trim_matches(|c: char| !c.is_ascii_digit()).to_owned();
            let row = ["d".to_owned(), name.clone(), shape, system.key.to_owned(), cell(*goodput, 0)];
            table
                .rows
                .push(row.into_iter().chain([over, cell(found[0], 0), cell(ratio(*goodput, found[0]), 3)]).collect());
        }
    }
    Ok(Panel::Lines(lines))
}

/// Cases of Table 3 with their names.
fn samples(lab: &Lab<'_>) -> Vec<(String, Setup)> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut pick = |from: &[f64]| *from.choose(&mut random).unwrap_or(&1.0);
    let mut samples = Vec::new();
    for index in 0..lab.pick(SAMPLES, SAMPLES_QUICK) {
        let row = data::model_1080ti(MODELS[index % MODELS.len()]);
        let counts = COUNTS.map(f64::from);
        let count = pick(&counts) as u32;
        let count = if lab.quick() { count.min(16) } else { count };
        let (per_model, slo_ms, shape) = (pick(&GPUS_PER_MODEL), pick(&SLOS_MS), pick(&SHAPES));
        let gpus = (per_model * f64::from(count)).round() as u32;
        let name = format!("{count} × {}; {gpus} GPUs; {slo_ms:.0} ms", row.name);
        let mut setup = lab.setup(&name, gpus, vec![Models { count, slo_ms, ..Models::of(&row) }]);
        setup.arrival = format!("{{ gamma = {shape:?} }}");
        setup.duration_s = lab.pick(10.0, 4.0);
        setup.seeds = vec![1];
        samples.push((name, setup));
    }
    samples
}

fn ratio_axis() -> Axis {
    Axis { range: (Some(0.5), None), ..Axis::from_zero("goodput ratio") }
}

/// The ratio of two goodputs; where both are a trickle, neither is ahead.
fn ratio(ours: f64, theirs: f64) -> f64 {
    if ours.max(theirs) < 1.0 { 1.0 } else { ours / theirs.max(1.0) }
}
