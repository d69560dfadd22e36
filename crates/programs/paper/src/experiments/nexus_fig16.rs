//! The Nexus paper, Figure 16 (section 7.5): squishy packing against allocation that knows nothing of batches.

use anyhow::{Result, ensure};
use symphony_packing::{Session, squishy_bin_packing};

use super::cell;
use super::zoo_jobs::Job;
use crate::data::{self, ZooRow};
use crate::lab::Lab;
use crate::plot::{Axis, Bar, Bars, Figure, Panel, Style};
use crate::report::{Comparison, Plot, Report, Table};

/// Section 7.5: 16 sessions on 8 GPUs.
const SESSIONS: usize = 16;
const GPUS: usize = 8;
/// The SLO where the paper mixes rates, and names none.
const SLO_MS: f64 = 100.0;
/// The largest total is found to a part in 2^30.
const HALVINGS: usize = 30;
/// Rounding in shares of GPUs.
const ROUNDING: f64 = 1e-9;

/// A mix of the figure: its letter, words, and jobs whose rates are relative.
type Mix = (&'static str, String, Vec<Job>);

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let mixes = mixes()?;
    let found = lab.map(&mixes, |(_, _, jobs)| {
        let shares = oblivious(jobs);
        (largest(jobs, |factor| squishy_fits(jobs, factor)), largest(jobs, |factor| shares_fit(jobs, &shares, factor)))
    });
    let mut table = Table::new(&["mix", "what", "squishy_rps", "oblivious_rps", "squishy_over_oblivious"]);
    let mut bars = Bars {
        title: format!("{SESSIONS} sessions on {GPUS} GPUs"),
        axis: Axis::from_zero("throughput of squishy packing over batch-oblivious allocation"),
        bars: Vec::new(),
        rules: vec![(1.0, "equal".to_owned())],
    };
    let mut ratios = Vec::new();
    for (index, ((letter, words, _), (squishy, oblivious))) in mixes.iter().zip(&found).enumerate() {
        ensure!(*oblivious > 0.0, "mix {letter}: no rate fits");
        let ratio = squishy / oblivious;
        let cells = [(*letter).to_owned(), words.clone(), cell(*squishy, 0), cell(*oblivious, 0), cell(ratio, 3)];
        table.rows.push(cells.to_vec());
        let style = Style::plain(&format!("({letter}) {words}"), index);
        bars.bars.push(Bar { style, value: Some(ratio), text: format!("{ratio:.2} ({squishy:.0} r/s)"), theirs: None });
        ratios.push(ratio);
    }
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let figure = Figure {
        title: "What it is worth to pack with batches in mind".to_owned(),
        subtitle: "The largest total rate whose nodes keep all SLOs".to_owned(),
        columns: 1,
        panels: vec![Panel::Bars(bars)],
        theirs: String::new(),
        note: "The Nexus paper, Figure 16.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons: vec![
            Comparison::words("nexus-fig16", "most", Some(most), "×"),
            Comparison::words("nexus-fig16", "least", Some(least), "×"),
        ],
        setup: format!(
            "{SESSIONS} sessions on {GPUS} GPUs; profiles of the Symphony paper's Table 5 (1080Ti): InceptionV3, ResNet50, and for (e) the eight models with \
             the smallest latency for one item. (a), (b): SLOs evenly from 50 to 200 ms, equal rates; (c), (d): rates by Zipf-0.9, SLO {SLO_MS} ms; (e): SLOs of \
             50 and 100 ms, equal rates. Batch-oblivious: each session has a share of the GPUs in proportion to its rate over what one GPU does of it alone \
             (section 7.2), largest first, cut where a GPU is full; its GPUs run it in proportion. The rate is what fits: no simulation."
        ),
        differences: vec![
            "The paper measures 99 % good requests on GPUs, which run whatever waits; ours asks that each GPU has a duty cycle that keeps all its SLOs. A GPU \
             that the oblivious allocation fills with many small sessions fails that first, and one such GPU limits the whole mix. So gains are larger where \
             rates or SLOs differ most."
                .to_owned(),
            "The paper's profiles are its own, with pre- and post-processing on the CPU; ours are those of the Symphony paper on the same kind of GPU, and \
             the paper does not name the SLO of (c) and (d), nor the models of (e)."
                .to_owned(),
        ],
        missing: Vec::new(),
    })
}

fn mixes() -> Result<Vec<Mix>> {
    let slo_ms = |at: usize| 50.0 + 150.0 * at as f64 / (SESSIONS - 1) as f64;
    let mut mixes = Vec::new();
    for (letter, name) in [("a", "InceptionV3"), ("b", "ResNet50")] {
        let row = data::model_1080ti(name);
        let jobs = (0..SESSIONS).map(|at| job(&row, slo_ms(at), 1.0)).collect::<Result<Vec<_>>>()?;
        mixes.push((letter, format!("{name}, SLOs of 50 to 200 ms"), jobs));
    }
    for (letter, name) in [("c", "InceptionV3"), ("d", "ResNet50")] {
        let row = data::model_1080ti(name);
        let zipf = |at: usize| ((at + 1) as f64).powf(-0.9);
        let jobs = (0..SESSIONS).map(|at| job(&row, SLO_MS, zipf(at))).collect::<Result<Vec<_>>>()?;
        mixes.push((letter, format!("{name}, rates by Zipf-0.9"), jobs));
    }
    let mut zoo = data::zoo_1080ti();
    zoo.sort_by(|a, b| (a.alpha_ms + a.beta_ms).total_cmp(&(b.alpha_ms + b.beta_ms)));
    zoo.truncate(SESSIONS / 2);
    let jobs =
        zoo.iter().flat_map(|row| [50.0, 100.0].map(|slo_ms| job(row, slo_ms, 1.0))).collect::<Result<Vec<_>>>()?;
    mixes.push(("e", format!("{} models, SLOs of 50 and 100 ms", zoo.len()), jobs));
    Ok(mixes)
}

fn job(row: &ZooRow, slo_ms: f64, rate_rps: f64) -> Result<Job> {
    Ok(Job { rate_rps, ..Job::new(row, slo_ms)? })
}

/// The largest total rate that fits, by a factor on all rates.
fn largest(jobs: &[Job], fits: impl Fn(f64) -> bool) -> f64 {
    let total: f64 = jobs.iter().map(|job| job.rate_rps).sum();
    // No session does more than fill all GPUs alone.
    let most = jobs.iter().map(|job| GPUS as f64 * job.alone_rps / job.rate_rps).fold(0.0, f64::max);
    let (mut good, mut bad) = (0.0, most);
    for _ in 0..HALVINGS {
        let factor = f64::midpoint(good, bad);
        if fits(factor) { good = factor } else { bad = factor }
    }
    good * total
}

fn squishy_fits(jobs: &[Job], factor: f64) -> bool {
    let sessions: Vec<_> = jobs.iter().map(|job| job.session(factor)).collect();
    squishy_bin_packing(&sessions).len() <= GPUS
}

/// Of each GPU: sessions, and the share of the session's requests that it has.
fn oblivious(jobs: &[Job]) -> Vec<Vec<(usize, f64)>> {
    let need: Vec<f64> = jobs.iter().map(|job| job.rate_rps / job.alone_rps).collect();
    let all: f64 = need.iter().sum();
    let mut order: Vec<_> = (0..jobs.len()).collect();
    order.sort_by(|&a, &b| need[b].total_cmp(&need[a]));
    let mut gpus = vec![Vec::new(); GPUS];
    let (mut gpu, mut used) = (0, 0.0);
    for session in order {
        let whole = need[session] / all * GPUS as f64;
        let mut left = whole;
        while left > ROUNDING {
            if 1.0 - used <= ROUNDING && gpu + 1 < GPUS {
                (gpu, used) = (gpu + 1, 0.0);
            }
            // The last GPU takes what rounding leaves over.
            let part = if gpu + 1 < GPUS { left.min(1.0 - used) } else { left };
            gpus[gpu].push((session, part / whole));
            (used, left) = (used + part, left - part);
        }
    }
    gpus
}

/// Whether some duty cycle of each GPU keeps all SLOs.
fn shares_fit(jobs: &[Job], gpus: &[Vec<(usize, f64)>], factor: f64) -> bool {
    gpus.iter().all(|shares| {
        let sessions: Vec<Session<'_>> = shares.iter().map(|&(at, share)| jobs[at].session(factor * share)).collect();
        squishy_bin_packing(&sessions).len() <= 1
    })
}
