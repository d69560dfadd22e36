//! The Nexus paper, Figure 12 (section 7.3.2): traffic monitoring in rush hour and outside.

use anyhow::Result;
use symphony_pipeline::Cost;

use super::nexus_apps::{
    ALL, CLIPPER_IN_TRAFFIC, Case, DAY, NO_OL, OF_TRAFFIC, RUNS, RUSH, SYMPHONY, Scene, bars, differences, figure,
    rows, share, split_bound, traffic,
};
use super::nexus_clipper::ablation_beside_clipper;
use super::nexus_fig11::{THEIRS, setup_words};
use crate::lab::Lab;
use crate::report::{Comparison, Plot, Report, Table};

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let of = |scene: Scene| {
        let setup = |case: &Case| traffic(lab, case, &scene);
        ablation_beside_clipper(lab, &OF_TRAFFIC, |_| 1.0, setup, &scene.services())
    };
    let [day, rush] = [DAY, RUSH].map(of);
    let (day, rush) = (day?, rush?);
    let mut table = Table::new(&["scene", "case", "frames_per_s", "over_first"]);
    rows(&mut table, DAY.key, &OF_TRAFFIC, &day);
    rows(&mut table, RUSH.key, &OF_TRAFFIC, &rush);
    let words = |key, ours, unit| Comparison::words("nexus-fig12", key, ours, unit);
    let over_clipper = [&day, &rush].map(|found| share(found[ALL], found[CLIPPER_IN_TRAFFIC]));
    let over_nexus = rush[SYMPHONY] / rush[ALL].max(f64::MIN_POSITIVE);
    let what = "rush hour: deferred stages (Symphony) over Nexus's own policy";
    let theirs = [Some(264.0), None, None, None, None, None, None];
    let [waiting_rps, deferred_rps] = [Cost::Waiting, Cost::Deferred].map(|cost| split_bound(lab, &RUSH, cost));
    let (waiting_rps, deferred_rps) = (waiting_rps?, deferred_rps?);
    Ok(Report {
        plots: vec![Plot {
            suffix: "",
            figure: figure(
                "More objects, fewer frames",
                "Frames per second of which 99 % are answered in time, outside of rush hour and in it",
                vec![bars(DAY.label, &OF_TRAFFIC, &day, &THEIRS), bars(RUSH.label, &OF_TRAFFIC, &rush, &theirs)],
                "The Nexus paper, Figure 12; Symphony is added.",
            ),
        }],
        tables: vec![table],
        comparisons: vec![
            words("rush", share(rush[ALL], day[ALL]), ""),
            words("benefit_day", share(day[ALL], day[NO_OL]), "×"),
            words("benefit_rush", share(rush[ALL], rush[NO_OL]), "×"),
            words("clipper", over_clipper.into_iter().flatten().reduce(f64::max), "×"),
            Comparison::aim("deferred_over_nexus", what, (1.2, f64::INFINITY), over_nexus, "×"),
        ],
        setup: format!("{} In rush hour {} cars and {} faces.", setup_words(lab), RUSH.cars, RUSH.faces),
        differences: [
            differences(),
            vec![
                "How many objects a frame has the paper does not say; here five times as many in rush hour, which sets how far throughput falls."
                    .to_owned(),
                "Without all techniques the paper's text has TF Serving's throughput only (227 and 146); ours is Nexus without any of them, which Figure 11 puts at 216. The benefits are smaller than the paper's, since query analysis and overlap are worth less here, for the reasons on that page of ours."
                    .to_owned(),
                format!(
                    "Deferred stages have no more to gain: in rush hour the best split keeps all GPUs busy at {deferred_rps:.0} frames/s with ℓ(b) + b/R of the budget for \
                     each batch, of which `auto` serves {:.0}, and at {waiting_rps:.0} with Nexus's 2·ℓ(b), of which `nexus` serves {:.0}. What whole GPUs cost \
                     Nexus is less than outside ([runs]({RUNS})).",
                    rush[SYMPHONY], rush[ALL]
                ),
            ],
        ]
        .concat(),
        missing: Vec::new(),
    })
}
