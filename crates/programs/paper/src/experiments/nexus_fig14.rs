//! The Nexus paper, Figure 14 (section 7.5): several models on one GPU, in turn or beside each other.

use anyhow::Result;

use super::cell;
use super::nexus_apps::{PRE_MS, RUNS};
use crate::data;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};
use crate::setup::{Models, Setup};
use crate::system::{AUTO, CLIPPER, EAGER, NEXUS_1, NEXUS_LAZY};

/// SLO of panel (a), and the number of models of panel (b).
const SLO_MS: f64 = 100.0;
const MODELS: u32 = 3;

/// How models share the GPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// One batch after another.
    Turns,
    /// Concurrently: with n of them busy each takes n times as long.
    Beside,
}

struct Case {
    key: &'static str,
    label: &'static str,
    policy: &'static str,
    sharing: Sharing,
    /// Pre-processing runs beside the GPU.
    is_overlapped: bool,
}

static CASES: [Case; 5] = [
    Case { key: "nexus", label: "nexus", policy: NEXUS_1.policy, sharing: Sharing::Turns, is_overlapped: true },
    Case {
        key: "nexus_parallel",
        label: "nexus-parallel",
        policy: EAGER.policy,
        sharing: Sharing::Beside,
        is_overlapped: true,
    },
    Case {
        key: "tf_serving",
        label: "like TF Serving",
        policy: NEXUS_LAZY,
        sharing: Sharing::Turns,
        is_overlapped: false,
    },
    Case {
        key: "clipper",
        label: "like Clipper",
        policy: CLIPPER.policy,
        sharing: Sharing::Beside,
        is_overlapped: false,
    },
    Case {
        key: "symphony",
        label: "symphony (auto)",
        policy: AUTO.policy,
        sharing: Sharing::Turns,
        is_overlapped: true,
    },
];
const NEXUS: usize = 0;
const TF_SERVING: usize = 2;
const CLIPPER_LIKE: usize = 3;

/// Beside each other all models are alike: one of them is simulated on a GPU that is as many times slower.
fn setup(lab: &Lab<'_>, case: &Case, models: u32, slo_ms: f64) -> Setup {
    let inception = data::model_1080ti("InceptionV3");
    let (count, slower) = match case.sharing {
        Sharing::Turns => (models, 1.0),
        Sharing::Beside => (1, f64::from(models)),
    };
    // Overlapped, pre-processing takes its part of the SLO, and none of the GPU; no model's slows down another's.
    let (left_ms, pre_ms) = if case.is_overlapped { (slo_ms - PRE_MS, 0.0) } else { (slo_ms, PRE_MS) };
    let line = Models::line("inception", slower * inception.alpha_ms, slower * inception.beta_ms + pre_ms);
    let models = vec![Models { count, slo_ms: left_ms, ..line }];
    let mut setup = lab.setup(&format!("{}, {slo_ms} ms", case.label), 1, models).with_policy(case.policy);
    setup.arrival = r#""uniform""#.to_owned();
    setup.duration_s = lab.pick(60.0, 20.0);
    setup
}

/// By case, the throughput at each point, of all models together.
fn sweep(lab: &Lab<'_>, points: &[(u32, f64)]) -> Result<Vec<Vec<f64>>> {
    let mut setups = Vec::new();
    for case in &CASES {
        setups.extend(points.iter().map(|&(models, slo_ms)| setup(lab, case, models, slo_ms)));
    }
    let goodputs = lab.goodputs(&setups)?;
    let all = CASES.iter().zip(goodputs.chunks(points.len())).map(|(case, found)| {
        let copies = |models: u32| if case.sharing == Sharing::Beside { f64::from(models) } else { 1.0 };
        points.iter().zip(found).map(|(&(models, _), goodput)| goodput * copies(models)).collect()
    });
    Ok(all.collect())
}

fn panel(title: &str, x: Axis, places: &[f64], found: &[Vec<f64>]) -> Panel {
    let mut lines = Lines::new(title, x, Axis::from_zero("throughput, r/s"));
    for (index, (case, found)) in CASES.iter().zip(found).enumerate() {
        let points = places.iter().copied().zip(found.iter().copied()).collect();
        lines.series.push(Series { style: Style::plain(case.label, index), draw: Draw::Points, points });
    }
    Panel::Lines(lines)
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let counts: Vec<u32> = lab.pick(vec![1, 2, 3, 4, 5], vec![2, 4]);
    let slos: Vec<f64> = lab.pick(vec![50.0, 100.0, 150.0, 200.0], vec![100.0, 200.0]);
    let by_count = sweep(lab, &counts.iter().map(|&models| (models, SLO_MS)).collect::<Vec<_>>())?;
    let by_slo = sweep(lab, &slos.iter().map(|&slo_ms| (MODELS, slo_ms)).collect::<Vec<_>>())?;
    let mut table = Table::new(&["panel", "case", "models", "slo_ms", "throughput_rps"]);
    for (case, (of_counts, of_slos)) in CASES.iter().zip(by_count.iter().zip(&by_slo)) {
        let a = counts.iter().map(|&models| (models, SLO_MS)).zip(of_counts).map(|point| ("a", point));
        let b = slos.iter().map(|&slo_ms| (MODELS, slo_ms)).zip(of_slos).map(|point| ("b", point));
        for (panel, ((models, slo_ms), &goodput)) in a.chain(b) {
            let cells = [panel.to_owned(), case.key.to_owned(), models.to_string(), cell(slo_ms, 0), cell(goodput, 1)];
            table.rows.push(cells.to_vec());
        }
    }
    // Of all points of panel (a), zeros left out.
    let ratios = |rival: usize| -> Vec<f64> {
        let pairs = by_count[NEXUS].iter().zip(&by_count[rival]).filter(|(_, rival)| **rival > 0.0);
        pairs.map(|(nexus, rival)| nexus / rival).collect()
    };
    let most = |rival: usize| ratios(rival).into_iter().reduce(f64::max);
    let over_tf_serving: Vec<String> = ratios(TF_SERVING).iter().map(|&ratio| cell(ratio, 1)).collect();
    let ticks: Vec<f64> = counts.iter().map(|&models| f64::from(models)).collect();
    let x = Axis { ticks: Some(ticks.clone()), ..Axis::between("models", 0.0, 6.0) };
    let words = |key, ours| Comparison::words("nexus-fig14", key, ours, "×");
    Ok(Report {
        plots: vec![Plot {
            suffix: "",
            figure: Figure {
                title: "Models that take turns on a GPU disturb each other least".to_owned(),
                subtitle: "Copies of Inception on one GPU: highest rate at which 99 % of the requests are in time".to_owned(),
                columns: 2,
                panels: vec![
                    panel(&format!("(a) SLO {SLO_MS} ms"), x, &ticks, &by_count),
                    panel(&format!("(b) {MODELS} models"), Axis::between("SLO, ms", 0.0, 250.0), &slos, &by_slo),
                ],
                theirs: String::new(),
                note: "The Nexus paper, Figure 14; Symphony is added.".to_owned(),
            },
        }],
        tables: vec![table],
        comparisons: vec![words("tf_serving", most(TF_SERVING)), words("clipper", most(CLIPPER_LIKE))],
        setup: format!(
            "One GPU, uniform arrivals, {:.0} s; InceptionV3 of the Symphony paper's Table 5, {PRE_MS} ms of pre-processing: off the SLO where it overlaps with the GPU, \
             in front of each batch where it does not. TF Serving: models in turn, lazy drop, no overlap. Clipper: a container for each, lazy drop, no overlap. \
             Nexus-parallel: early drop and overlap, models beside each other. The paper compares the most: 2.1 and 9.8 times.",
            lab.pick(60.0, 20.0)
        ),
        differences: vec![
            "A GPU that interleaves kernels of several models is not simulated: beside each other each of n models takes n times as long, always, which is the worst \
             that fair interleaving does, and no worse than that: caches and contexts are left out. The paper's Clipper falls further with each model."
                .to_owned(),
            "Inception's pre-processing the paper does not say; 10 ms is that of a frame of `game`.".to_owned(),
            format!(
                "Over TF Serving it is, by the number of models, {}. The most is at four: without overlap a round of batches and one more take at least 104 ms, so a \
                 request that comes when its model's batch has just begun is late wherever the GPU is always busy, which it is at 48 r/s. With 8 ms of pre-processing \
                 it would be 2.5 times ([runs]({RUNS})).",
                over_tf_serving.join(", ")
            ),
        ],
        missing: Vec::new(),
    })
}
