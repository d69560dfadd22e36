//! The Nexus paper, Figure 15 (section 7.5): prefix batching of variants of ResNet-50 on one GPU.

use anyhow::{Result, anyhow};

use super::cell;
use crate::data;
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Rule, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};
use crate::setup::{Models, Setup};
use crate::system::{AUTO, NEXUS_1};

/// What ResNet-50 gives its last layer, and what that gives.
const FEATURES: f64 = 2048.0;
const CLASSES: f64 = 1000.0;
const FLOAT_BYTES: f64 = 4.0;
/// The GTX 1080 Ti: its memory, how fast that is read, and multiply-adds of single precision.
const GPU_MB: f64 = 11_264.0;
const BYTES_PER_S: f64 = 484e9;
const MULTIPLY_ADDS_PER_S: f64 = 5.65e12;
/// To start one layer on the GPU.
const LAUNCH_MS: f64 = 0.01;
const MIB: f64 = 1_048_576.0;
/// The paper does not say the SLO; the first is that of Figure 14 beside it.
const SLOS_MS: [f64; 2] = [100.0, 200.0];

/// How the variants are served.
struct Case {
    key: &'static str,
    label: &'static str,
    /// Fully connected layers that are not shared.
    layers: f64,
    shared: bool,
    policy: &'static str,
}

const CASES: [Case; 4] = [
    Case { key: "shared_1fc", label: "one batch, 1 FC each", layers: 1.0, shared: true, policy: AUTO.policy },
    Case { key: "shared_3fc", label: "one batch, 3 FC each", layers: 3.0, shared: true, policy: AUTO.policy },
    Case { key: "unshared", label: "each by itself", layers: 1.0, shared: false, policy: AUTO.policy },
    Case { key: "unshared_nexus", label: "each by itself, nexus", layers: 1.0, shared: false, policy: NEXUS_1.policy },
];
/// Places in [`CASES`].
const SHARED: usize = 0;
const UNSHARED: usize = 2;

/// Fully connected layers of a variant's own.
struct Suffix {
    alpha_ms: f64,
    beta_ms: f64,
    mb: f64,
}

/// All of them but the last keep the number of features. Each reads its weights once per batch.
fn suffix(layers: f64) -> Suffix {
    let weights = (layers - 1.0) * FEATURES * FEATURES + FEATURES * CLASSES;
    let bytes = FLOAT_BYTES * weights;
    Suffix {
        alpha_ms: 1e3 * weights / MULTIPLY_ADDS_PER_S,
        beta_ms: 1e3 * bytes / BYTES_PER_S + layers * LAUNCH_MS,
        mb: bytes / MIB,
    }
}

fn setup(lab: &Lab<'_>, case: &Case, variants: u32, slo_ms: f64) -> Setup {
    let whole = data::model_1080ti("ResNet50");
    // The table's profile has the one layer of its own.
    let (own, extra) = (suffix(1.0), suffix(case.layers));
    let more = format!(
        "variants = {{ count = {variants}, suffix_alpha_ms = {:?}, suffix_beta_ms = {:?}, shared = {} }}\n",
        extra.alpha_ms, extra.beta_ms, case.shared
    );
    let trunk = Models::line("resnet50", whole.alpha_ms - own.alpha_ms, whole.beta_ms - own.beta_ms);
    let models = vec![Models { slo_ms, more, ..trunk }];
    let mut setup = lab.setup(&format!("{variants} variants, {}", case.label), 1, models).with_policy(case.policy);
    // With many models and one GPU, one per cent of a model's few requests is noise.
    setup.duration_s = lab.pick(300.0, 30.0);
    setup
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let counts = lab.pick(vec![2, 5, 10, 20], vec![2, 20]);
    let mut setups = Vec::new();
    for slo_ms in SLOS_MS {
        for case in &CASES {
            setups.extend(counts.iter().map(|&variants| setup(lab, case, variants, slo_ms)));
        }
    }
    let goodputs = lab.goodputs(&setups)?;
    let mut table = Table::new(&["slo_ms", "case", "variants", "goodput_rps", "over_unshared"]);
    let mut panels = Vec::new();
    let mut most: f64 = 0.0;
    for (slo_ms, of_slo) in SLOS_MS.into_iter().zip(goodputs.chunks(CASES.len() * counts.len())) {
        let mut lines = lines(&format!("(a) SLO {slo_ms} ms"), "throughput, r/s", &counts);
        let unshared = &of_slo[UNSHARED * counts.len()..(UNSHARED + 1) * counts.len()];
        for (index, (case, found)) in CASES.iter().zip(of_slo.chunks(counts.len())).enumerate() {
            for ((&variants, &goodput), &alone) in counts.iter().zip(found).zip(unshared) {
                let over = goodput / alone.max(1.0);
                if index == SHARED && slo_ms == SLOS_MS[0] {
                    most = most.max(over);
                }
                let cells =
                    [cell(slo_ms, 0), case.key.to_owned(), variants.to_string(), cell(goodput, 1), cell(over, 3)];
                table.rows.push(cells.to_vec());
            }
            let points = counts.iter().map(|&variants| f64::from(variants)).zip(found.iter().copied()).collect();
            lines.series.push(Series { style: Style::plain(case.label, index), draw: Draw::Points, points });
        }
        panels.push(Panel::Lines(lines));
    }
    let (memory_panel, memory_table) = memory(&counts)?;
    panels.push(Panel::Lines(memory_panel));
    let figure = Figure {
        title: "Models that differ in their last layers are one model until there".to_owned(),
        subtitle:
            "Variants of ResNet-50 on one GPU: highest rate at which 99 % of the requests are in time, and memory"
                .to_owned(),
        columns: 2,
        panels,
        theirs: String::new(),
        note: "The Nexus paper, Figure 15.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table, memory_table],
        comparisons: vec![Comparison::words("nexus-fig15", "most", Some(most), "×")],
        setup: setup_words(lab),
        differences: differences(),
        missing: Vec::new(),
    })
}

fn lines(title: &str, y: &str, counts: &[u32]) -> Lines {
    let ticks: Vec<f64> = counts.iter().map(|&variants| f64::from(variants)).collect();
    let x = Axis { ticks: Some(ticks), ..Axis::between("variants", 0.0, 20.0) };
    Lines::new(title, x, Axis::from_zero(y))
}

/// Memory in the GPU, in MB, by the number of variants.
fn memory(counts: &[u32]) -> Result<(Lines, Table)> {
    let row = data::table1().into_iter().find(|row| row.model == "ResNet50");
    let row = row.ok_or_else(|| anyhow!("Table 1 has no ResNet50"))?;
    let (loaded, batch) = (row.static_mem_mb, row.dynamic_mem_mb);
    // The shared part, and what each variant adds.
    let once = loaded - suffix(1.0).mb + batch;
    let series = [
        ("shared_1fc", CASES[SHARED].label, once, suffix(1.0).mb),
        ("shared_2fc", "one batch, 2 FC each", once, suffix(2.0).mb),
        ("shared_3fc", CASES[SHARED + 1].label, once, suffix(3.0).mb),
        ("unshared_common", "each by itself, batches take turns with memory", batch, loaded),
        ("unshared", CASES[UNSHARED].label, 0.0, loaded + batch),
    ];
    let mut table = Table { suffix: "-memory", ..Table::new(&["case", "variants", "memory_mb", "fits"]) };
    let mut panel = lines("(b) memory of one GPU", "memory, MB", counts);
    panel.y.range.1 = Some(1.2 * GPU_MB);
    panel.rules.push(Rule::Level(GPU_MB, "GTX 1080 Ti".to_owned()));
    for (index, (key, label, once, each)) in series.into_iter().enumerate() {
        let mb = |variants: u32| once + f64::from(variants) * each;
        let points: Vec<_> = counts.iter().map(|&variants| (f64::from(variants), mb(variants))).collect();
        for &(variants, mb) in &points {
            let fits = if mb <= GPU_MB { "yes" } else { "no" };
            table.rows.push(vec![key.to_owned(), cell(variants, 0), cell(mb, 0), fits.to_owned()]);
        }
        panel.series.push(Series { style: Style::plain(label, index), draw: Draw::Points, points });
    }
    Ok((panel, table))
}

fn setup_words(lab: &Lab<'_>) -> String {
    let (one, three) = (suffix(1.0), suffix(3.0));
    format!(
        "One GPU, Poisson, requests call the variants alike, {}; here {:.0} s. The whole model with one layer of its own has the profile of the Symphony paper's \
         Table 5 (ResNet50, 1080Ti) and the memory of its Table 1. A suffix is 1 to 3 fully connected layers on {FEATURES} features, {CLASSES} classes: it reads its \
         weights once a batch at {:.0} GB/s and starts each layer in {LAUNCH_MS} ms, so 1 FC takes {:.4}·b + {:.3} ms and has {:.0} MB, and 3 FC take {:.4}·b + {:.3} ms \
         and have {:.0} MB. One batch: `[[model]] variants`; each by itself: the same with `shared = false`.",
        lab.words(),
        lab.pick(300.0, 30.0),
        BYTES_PER_S / 1e9,
        one.alpha_ms,
        one.beta_ms,
        one.mb,
        three.alpha_ms,
        three.beta_ms,
        three.mb,
    )
}

fn differences() -> Vec<String> {
    vec![
        "The paper names no SLO, and the gain depends on it: the tighter it is, the sooner the fixed costs of the variants' own batches fill the cycle. With 100 ms, as in \
         Figure 14, those of twenty batches alone take longer than the SLO; with 200 ms half of it."
            .to_owned(),
        "Goodput by themselves asks that each variant keeps its p99; in one batch it is asked of the family, whose variants are treated alike."
            .to_owned(),
        "The paper measured memory; ours adds up Table 1 and weights. Models by themselves that each keep the memory of their batches, as sessions of one framework \
         do, do not fit four times; where batches take turns with one memory, twenty fit."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_is_small_beside_the_model_and_grows_with_its_layers() {
        let (one, two, three) = (suffix(1.0), suffix(2.0), suffix(3.0));
        assert!((one.mb - 7.8).abs() < 0.1 && (two.mb - 23.8).abs() < 0.1 && (three.mb - 39.8).abs() < 0.1);
        let whole = data::model_1080ti("ResNet50");
        assert!(three.beta_ms < 0.05 * whole.beta_ms && three.alpha_ms < 0.01 * whole.alpha_ms);
        let (_, table) = memory(&[2, 20]).unwrap();
        let fits: Vec<_> = table.rows.iter().map(|row| row[3].as_str()).collect();
        assert_eq!(fits, ["yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes", "no"]);
    }
}
