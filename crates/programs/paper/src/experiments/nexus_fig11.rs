//! The Nexus paper, Figure 11 (section 7.3.2): what each technique is worth in traffic monitoring, and what deferred
//! queues make of the same pipeline.

use anyhow::Result;
use symphony_pipeline::Cost;

use super::nexus_apps::{
    ALL, Case, DAY, FIRST_LESS, NO_ED, NO_OL, OF_TRAFFIC, PRE_MS, RUNS, SYMPHONY, bars, differences, even_bound,
    figure, gpus, rows, share, split_bound, traffic,
};
use super::nexus_clipper::ablation_beside_clipper;
use crate::lab::Lab;
use crate::report::{Comparison, Plot, Report, Table};

/// The paper's throughputs in its text.
pub(crate) const THEIRS: [Option<f64>; 7] = [Some(534.0), Some(433.0), None, Some(326.0), Some(216.0), None, None];

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let setup = |case: &Case| traffic(lab, case, &DAY);
    let found = ablation_beside_clipper(lab, &OF_TRAFFIC, |_| 1.0, setup, &DAY.services())?;
    let mut table = Table::new(&["scene", "case", "frames_per_s", "over_first"]);
    rows(&mut table, DAY.key, &OF_TRAFFIC, &found);
    let words = |key, ours, unit| Comparison::words("nexus-fig11", key, ours, unit);
    let lost = share(found[FIRST_LESS], found[ALL]).map(|left| 1.0 - left);
    let over_nexus = found[SYMPHONY] / found[ALL].max(f64::MIN_POSITIVE);
    let what = "deferred stages (Symphony) over Nexus's own policy, same pipeline and GPUs";
    let [waiting_rps, deferred_rps] = [Cost::Waiting, Cost::Deferred].map(|cost| split_bound(lab, &DAY, cost));
    let (waiting_rps, deferred_rps) = (waiting_rps?, deferred_rps?);
    let even_rps = even_bound(lab, &DAY, Cost::Waiting)?;
    Ok(Report {
        plots: vec![Plot {
            suffix: "",
            figure: figure(
                "Traffic monitoring, one technique less at a time",
                "Frames per second of which 99 % are answered in time",
                vec![bars("Non-rush hour", &OF_TRAFFIC, &found, &THEIRS)],
                "The Nexus paper, Figure 11; Symphony is added.",
            ),
        }],
        tables: vec![table],
        comparisons: vec![
            words("qa", lost, ""),
            words("others_off", share(found[NO_ED], found[ALL]), ""),
            words("ol", share(found[NO_OL], found[NO_ED]), ""),
            Comparison::aim("deferred_over_nexus", what, (1.2, f64::INFINITY), over_nexus, "×"),
        ],
        setup: setup_words(lab),
        differences: [
            differences(),
            vec![
                format!(
                    "Deferred stages have no more to gain: the best split keeps all GPUs busy at {deferred_rps:.0} frames/s with ℓ(b) + b/R of the budget for each \
                     batch, of which `auto` serves {:.0}, and at {waiting_rps:.0} with Nexus's 2·ℓ(b), of which `nexus` serves {:.0}.",
                    found[SYMPHONY], found[ALL]
                ),
                format!(
                    "How many objects a frame has the paper does not say; ours are guesses. By the split alone, query analysis is worth {:.3} of the throughput with \
                     them, and more with fewer, since only SSD gains by it. The rest is whole GPUs: Nexus's batches of SSD take half of its budget of 330 ms, and \
                     no other model fits in between. With four times the GPUs and frames 0.149 is lost ([runs]({RUNS})).",
                    1.0 - even_rps / waiting_rps
                ),
                format!(
                    "Squishy packing has only three sessions to pack, since the twenty streams are one here. What overlap is worth depends on the 10 ms: without it, \
                     and with all the rest, Nexus loses 11 % of the frames; if it were 20 ms, 20 %, and 40 ms, 48 % ([runs]({RUNS}))."
                ),
            ],
        ]
        .concat(),
        missing: Vec::new(),
    })
}

/// What this page and that of Figure 12 run.
pub(crate) fn setup_words(lab: &Lab<'_>) -> String {
    format!(
        "{} GPUs, frames at uniform intervals, SLO 400 ms: SSD (47 ms alone) on each frame; per frame {} cars (GoogleNet, 4.2 ms alone) and {} faces (VGG-16) in \
         the mean, Poisson; {PRE_MS} ms of pre-processing before each frame and each crop. `[[pipeline]]` in the simulator: Nexus splits the budget with \
         2·ℓ(b) per batch, Symphony with ℓ(b) + b/R, without query analysis in halves. {}.",
        gpus(lab),
        DAY.cars,
        DAY.faces,
        lab.words()
    )
}
