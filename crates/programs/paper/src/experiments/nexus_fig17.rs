//! The Nexus paper, Figure 17 (section 7.5): what the split of the budget gains over equal shares.

use anyhow::Result;
use symphony_pipeline::{Cost, EdgeSpec, Pipeline, PipelineSpec, Split, Stage, even_split, split};
use symphony_types::{LatencyProfile, Nanos, RequestValue};

use super::cell;
use crate::data::model_1080ti;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Rule, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};

/// GPUs of the experiment.
const GPUS: f64 = 8.0;
const GAMMAS: [f64; 3] = [0.1, 1.0, 10.0];
/// ℓ(1) of SSD (section 7.3.2). The paper does not state how it grows with the batch.
const SSD_MS: f64 = 47.0;
/// The part of SSD's ℓ(1) that batches share, β / (α + β).
const FIXED: [f64; 3] = [0.25, 0.5, 0.75];
/// The part that the page compares with the paper.
const COMPARED: f64 = 0.75;
const BATCH_MAX: u32 = 64;
pub(super) const STEP: Nanos = Nanos::from_millis(1);
/// The paper's own scheduler, and the queues of this one.
const COSTS: [(Cost, &str); 3] =
    [(Cost::Waiting, "waiting"), (Cost::Execution, "execution"), (Cost::Deferred, "deferred")];

/// The gain at one setting.
struct Gain {
    cost: &'static str,
    fixed: f64,
    gamma: f64,
    slo_ms: f64,
    split_rps: f64,
    even_rps: f64,
    ssd_budget_ms: f64,
}

impl Gain {
    fn share(&self) -> f64 {
        self.split_rps / self.even_rps - 1.0
    }
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let slos = lab.pick::<&[f64]>(&[300.0, 350.0, 400.0, 450.0, 500.0], &[300.0, 400.0, 500.0]);
    let mut settings = Vec::new();
    for cost in COSTS {
        for fixed in FIXED {
            for gamma in GAMMAS {
                settings.extend(slos.iter().map(|&slo_ms| (cost, fixed, gamma, slo_ms)));
            }
        }
    }
    let gains = lab.map(&settings, |&(cost, fixed, gamma, slo_ms)| gain(cost, fixed, gamma, slo_ms));
    let gains = gains.into_iter().collect::<Result<Vec<_>>>()?;
    let compared: Vec<_> = gains.iter().filter(|gain| gain.cost == "waiting" && gain.fixed == COMPARED).collect();
    let least = compared.iter().map(|gain| gain.share()).fold(f64::INFINITY, f64::min);
    let most = compared.iter().map(|gain| gain.share()).fold(f64::NEG_INFINITY, f64::max);
    let range = |cost| {
        let shares = gains.iter().filter(|gain| gain.cost == cost).map(Gain::share);
        let (least, most) =
            shares.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), share| (l.min(share), m.max(share)));
        format!("{least:.3} to {most:.3} with `{cost}`")
    };
    let by_other_costs = format!("{}, {}", range("execution"), range("deferred"));
    let budget = compared.iter().find(|gain| gain.gamma == 1.0 && gain.slo_ms == 400.0);
    let words = |key, ours, unit| Comparison::words("nexus-fig17", key, ours, unit);
    Ok(Report {
        plots: vec![Plot { suffix: "", figure: figure(&gains, slos) }],
        tables: vec![table(&gains)],
        comparisons: vec![
            words("gain_most", Some(most), ""),
            words("gain_least", Some(least), ""),
            words("ssd_budget", budget.map(|gain| gain.ssd_budget_ms), "ms"),
        ],
        setup: format!(
            "SSD, and Inception γ times, on {GPUS} GPUs; the rate at which both keep all of them busy, with the budget \
             split by the dynamic program in steps of 1 ms, and in halves. SSD takes {SSD_MS} ms alone (section \
             7.3.2); Inception is InceptionV3 of the Symphony paper's Table 5. A batch takes 2·ℓ(b) of its budget, as \
             in the paper's scheduler (`waiting`); the data also has `execution` and `deferred`. Analytic: no \
             arrivals, no queues."
        ),
        differences: vec![
            format!(
                "The paper does not give SSD's profile. The more of its time batches share, the more there is to gain: \
                 shown for 25, 50 and 75 % of {SSD_MS} ms, compared with 75 %."
            ),
            "Where Inception runs ten times for each SSD, it needs most of the GPUs, and its batches are already large \
             in half of the SLO: little is left to gain. The paper's Inception may be larger."
                .to_owned(),
            format!("By what a batch takes alone, or as deferred queues need it, the gain over all of these is less: {by_other_costs}."),
            "The paper measures a running system with whole GPUs and early drop; this counts fractions.".to_owned(),
        ],
        missing: Vec::new(),
    })
}

fn gain((cost, name): (Cost, &'static str), fixed: f64, gamma: f64, slo_ms: f64) -> Result<Gain> {
    let pipeline = pipeline(fixed, gamma, slo_ms)?;
    let by_split = |rate_rps| split(&pipeline, rate_rps, cost, STEP, Nanos::ZERO).ok();
    let by_half = |rate_rps| even_split(&pipeline, rate_rps, cost, Nanos::ZERO).ok();
    let split_rps = throughput(GPUS, &by_split);
    let ssd_budget_ms = by_split(split_rps).map_or(0.0, |split| split.stages[0].budget.as_millis_f64());
    Ok(Gain { cost: name, fixed, gamma, slo_ms, split_rps, even_rps: throughput(GPUS, &by_half), ssd_budget_ms })
}

/// The highest rate that so many GPUs serve.
pub(super) fn throughput(gpus: f64, at: &dyn Fn(f64) -> Option<Split>) -> f64 {
    let fits = |rate_rps: f64| at(rate_rps).is_some_and(|split| split.gpus <= gpus);
    let (mut low, mut high) = (0.0, 1.0);
    while fits(high) {
        (low, high) = (high, 2.0 * high);
    }
    // To a millionth.
    for _ in 0..20 {
        let middle = f64::midpoint(low, high);
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

fn pipeline(fixed: f64, gamma: f64, slo_ms: f64) -> Result<Pipeline> {
    let inception = model_1080ti("InceptionV3");
    let stage = |name: &str, alpha_ms: f64, beta_ms: f64| -> Result<Stage> {
        let profile = LatencyProfile::from_line(alpha_ms, beta_ms, BATCH_MAX)?;
        Ok(Stage { name: name.to_owned(), model: name.to_owned(), profile })
    };
    let (from, to) = ("SSD".to_owned(), "Inception".to_owned());
    Ok(Pipeline::new(PipelineSpec {
        name: "figure-17".to_owned(),
        slo: Nanos::from_millis_f64(slo_ms),
        value: RequestValue::ONE,
        partial: false,
        stages: vec![
            stage(&from, SSD_MS * (1.0 - fixed), SSD_MS * fixed)?,
            stage(&to, inception.alpha_ms, inception.beta_ms)?,
        ],
        edges: vec![EdgeSpec { from, to, gamma, per_row: true, condition: None, most: None }],
    })?)
}

fn figure(gains: &[Gain], slos: &[f64]) -> Figure {
    let panel = |gamma: f64| {
        let (first, last) = (slos[0], slos[slos.len() - 1]);
        let x = Axis::between("SLO, ms", first, last);
        let mut lines = Lines::new(&format!("γ = {gamma}"), x, Axis::between("gain over halves, %", 0.0, 60.0));
        lines.rules.push(Rule::Band(13.0, 55.0, "the paper".to_owned()));
        for (at, fixed) in FIXED.into_iter().enumerate() {
            let of = gains.iter().filter(|gain| gain.cost == "waiting" && gain.fixed == fixed && gain.gamma == gamma);
            let points = of.map(|gain| (gain.slo_ms, 100.0 * gain.share())).collect();
            let style = Style::plain(&format!("{:.0} % of SSD's time shared by a batch", 100.0 * fixed), at);
            lines.series.push(Series { style, draw: Draw::Points, points });
        }
        Panel::Lines(lines)
    };
    Figure {
        title: "Splitting the budget by cost beats equal shares".to_owned(),
        subtitle: "SSD, then Inception γ times, on 8 GPUs; throughput over that of an even split".to_owned(),
        columns: 3,
        panels: GAMMAS.into_iter().map(panel).collect(),
        theirs: String::new(),
        note: "The Nexus paper, Figure 17; its text says 13 to 55 % over all settings.".to_owned(),
    }
}

fn table(gains: &[Gain]) -> Table {
    let mut table =
        Table::new(&["cost", "ssd_fixed", "gamma", "slo_ms", "split_rps", "even_rps", "gain", "ssd_budget_ms"]);
    for gain in gains {
        table.rows.push(vec![
            gain.cost.to_owned(),
            cell(gain.fixed, 2),
            gain.gamma.to_string(),
            cell(gain.slo_ms, 0),
            cell(gain.split_rps, 1),
            cell(gain.even_rps, 1),
            cell(gain.share(), 3),
            cell(gain.ssd_budget_ms, 0),
        ]);
    }
    table
}
