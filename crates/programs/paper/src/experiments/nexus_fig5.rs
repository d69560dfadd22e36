//! The Nexus paper, Figure 5 (section 4.3): lazy dropping fails under Poisson arrivals where the fixed cost is high.

use anyhow::Result;

use super::cell;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};
use crate::setup::{Models, Setup};
use crate::system::{CLIPPER, EAGER};

/// What one GPU can do with any of these profiles: batches of 25 in 50 ms (section 4.3).
pub(crate) const OPTIMAL_RPS: f64 = 500.0;
const SLO_MS: f64 = 100.0;
/// Share of the optimum that is offered (section 4.3).
const LOAD: f64 = 0.9;

/// α in milliseconds, and the profile that leaves the optimal throughput as it is: 2ℓ(25) = 100 ms, so β = 50 ms − 25
/// α.
pub(crate) fn profile(lab: &Lab<'_>, alpha_ms: f64) -> Setup {
    let beta_ms = 50.0 - 25.0 * alpha_ms;
    let models = vec![Models { slo_ms: SLO_MS, ..Models::line("model", alpha_ms, beta_ms) }];
    let mut setup = lab.setup(&format!("α = {alpha_ms} ms"), 1, models);
    // One GPU at 500 r/s is little work, and one per cent of few requests is noise.
    setup.duration_s = lab.pick(300.0, 30.0);
    setup
}

/// The values of α of the sweep.
pub(crate) fn alphas(lab: &Lab<'_>) -> Vec<f64> {
    lab.pick((10..=19).collect::<Vec<_>>(), vec![10, 14, 18])
        .into_iter()
        .map(|tenths| f64::from(tenths) / 10.0)
        .collect()
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let alphas = alphas(lab);
    let cases = [
        ("lazy drop, Poisson", CLIPPER, r#""poisson""#),
        ("lazy drop, uniform", CLIPPER, r#""uniform""#),
        ("early drop, Poisson", EAGER, r#""poisson""#),
    ];
    let mut runs = Vec::new();
    for (_, system, arrival) in &cases {
        for &alpha in &alphas {
            let mut setup = profile(lab, alpha).with_policy(system.policy);
            setup.arrival = (*arrival).to_owned();
            runs.push((setup, LOAD * OPTIMAL_RPS));
        }
    }
    let results = lab.runs(&runs)?;
    let mut table = Table::new(&["case", "alpha_ms", "beta_ms", "bad_rate"]);
    let x = Axis::between("α, ms (β = 50 ms − 25 α)", alphas[0], alphas[alphas.len() - 1]);
    let mut lines =
        Lines::new("One GPU at 90 % of its optimal 500 r/s, SLO 100 ms", x, Axis::from_zero("bad requests, %"));
    for (index, ((label, ..), results)) in cases.iter().zip(results.chunks(alphas.len())).enumerate() {
        for (alpha, run) in alphas.iter().zip(results) {
            let words = [(*label).to_owned(), cell(*alpha, 1), cell(50.0 - 25.0 * alpha, 1), cell(run.bad_rate, 4)];
            table.rows.push(words.to_vec());
        }
        let points = alphas.iter().zip(results).map(|(&alpha, run)| (alpha, 100.0 * run.bad_rate)).collect();
        lines.series.push(Series { style: Style::plain(label, [1, 0, 2][index]), draw: Draw::Points, points });
    }
    let worst = results[0].bad_rate;
    let uniform = results[alphas.len()..2 * alphas.len()].iter().map(|run| run.bad_rate).fold(0.0, f64::max);
    let figure = Figure {
        title: "Serving the oldest request first fails where batches matter".to_owned(),
        subtitle:
            "A lazy policy gives up a request only when its deadline is lost, and lets the oldest decide the batch size"
                .to_owned(),
        columns: 1,
        panels: vec![Panel::Lines(lines)],
        theirs: String::new(),
        note: "The Nexus paper, Figure 5; early drop is added for comparison.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: vec![Comparison::words("nexus-fig5", "poisson_worse", Some(worst), "")],
        setup: format!(
            "One model on one GPU, 450 r/s for {:.0} s, seed 1. Every profile can do 25 requests in 50 ms. Lazy drop: \
             `clipper`; early drop: `eager`, whose window is the staggered batch, here the same 25.",
            profile(lab, 1.0).duration_s
        ),
        differences: vec![
            format!(
                "Shape and cause agree with the text: with uniform gaps at most {:.2} % are bad, with Poisson gaps a high fixed cost ruins lazy \
                 dropping, since each small batch puts it further behind. The paper has no numbers beyond the plot.",
                100.0 * uniform
            ),
            "Once behind, lazy dropping stays behind, so its bad rate depends on how long a run lasts. The paper does not say how long its \
             simulations were."
                .to_owned(),
        ],
        missing: Vec::new(),
    })
}
