//! The Kairos paper, Figure 14 (section 8.5): RM2's configurations with the highest bounds under other query
//! distribution mechanisms; and our policy over the artifact's distributor.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::cell;
use super::kairos::{ALL_SYSTEMS, SYSTEMS, auto_below_kairos, differences_with_oracle, setup, studies, words};
use crate::lab::Lab;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Rule, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{AUTO, KAIROS, ORACLE};

/// Fleets that the figure shows.
const SHOWN: (usize, usize) = (10, 3);

/// A run of the artifact's distributor in virtual time, two seeds.
#[derive(Deserialize)]
struct ReferenceRow {
    model: String,
    n_g4dn_xlarge: u32,
    n_c5n_2xlarge: u32,
    n_r5n_large: u32,
    n_t3_xlarge: u32,
    kairos_qps_seed1: f64,
    kairos_qps_seed2: f64,
}

/// Ours beside the artifact's distributor, each configuration.
struct BesideArtifact {
    table: Table,
    /// `kairos` over the artifact, the least of the fleets.
    least: Option<f64>,
    /// `auto` over `kairos`, of each fleet, by model.
    of_auto: BTreeMap<&'static str, Vec<f64>>,
}

fn beside_artifact(lab: &Lab<'_>) -> Result<BesideArtifact> {
    const FILE: &str = "kairos_reference_throughput.csv";
    let text = lab.data_file(FILE)?;
    let mut rows: Vec<ReferenceRow> = Vec::new();
    for row in csv::Reader::from_reader(text.as_bytes()).into_deserialize::<ReferenceRow>() {
        rows.push(row.context(FILE)?);
    }
    rows.truncate(lab.pick(rows.len(), 2));
    let mut table = Table {
        suffix: "-artifact",
        ..Table::new(&["model", "fleet", "policy", "goodput_rps", "artifact_rps", "ratio"])
    };
    let (mut least, mut of_auto) = (None::<f64>, BTreeMap::<_, Vec<f64>>::new());
    let studies = studies(lab)?;
    for row in &rows {
        let Some(study) = studies.iter().find(|study| study.name == row.model) else { continue };
        let counts = vec![row.n_g4dn_xlarge, row.n_c5n_2xlarge, row.n_r5n_large, row.n_t3_xlarge];
        let artifact_rps = f64::midpoint(row.kairos_qps_seed1, row.kairos_qps_seed2);
        let [kairos_rps, auto_rps] = [KAIROS, AUTO].map(|system| study.goodput(lab, &counts, &system));
        let (kairos_rps, auto_rps) = (kairos_rps?, auto_rps?);
        let of_kairos = kairos_rps / artifact_rps.max(1e-9);
        least = Some(least.map_or(of_kairos, |least| least.min(of_kairos)));
        of_auto.entry(study.label).or_default().push(auto_rps / kairos_rps.max(1e-9));
        for (system, rate_rps) in [(KAIROS, kairos_rps), (AUTO, auto_rps)] {
            let ratio = rate_rps / artifact_rps.max(1e-9);
            table.rows.push(vec![
                row.model.clone(),
                words(&counts),
                system.key.to_owned(),
                cell(rate_rps, 2),
                cell(artifact_rps, 2),
                cell(ratio, 3),
            ]);
        }
    }
    Ok(BesideArtifact { table, least, of_auto })
}

/// The least and the most of some ratios, and what they are of.
fn range((label, ratios): (&&'static str, &Vec<f64>)) -> String {
    let (least, most) =
        ratios.iter().fold((f64::INFINITY, 0.0), |(least, most), &ratio| (ratio.min(least), ratio.max(most)));
    format!("{} to {} with {label}", cell(least, 2), cell(most, 2))
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let study = super::kairos::only(studies(lab)?, "rm2")?;
    let systems = lab.known(&SYSTEMS);
    let shown = &study.ranking.fleets[..study.ranking.fleets.len().min(lab.pick(SHOWN.0, SHOWN.1))];
    let place = |at: usize| f64::from(u32::try_from(at + 1).unwrap_or(u32::MAX));
    let mut table = Table::new(&["place", "fleet", "bound_rps", "policy", "goodput_rps"]);
    let mut lines = Lines::new("RM2", Axis::from_zero("place by upper bound"), Axis::from_zero("r/s"));
    let points = shown.iter().enumerate().map(|(at, fleet)| (place(at), fleet.bound_rps)).collect();
    lines.series.push(Series { style: Style::ideal("upper bound (equation 15)"), draw: Draw::Points, points });
    for system in &systems {
        let fleets: Vec<_> = shown.iter().map(|fleet| (fleet.counts.clone(), *system)).collect();
        let found = study.goodputs(lab, &fleets)?;
        for (at, (fleet, rate_rps)) in shown.iter().zip(&found).enumerate() {
            table.rows.push(vec![
                (at + 1).to_string(),
                words(&fleet.counts),
                cell(fleet.bound_rps, 2),
                system.key.to_owned(),
                cell(*rate_rps, 2),
            ]);
        }
        let points = found.iter().enumerate().map(|(at, rate_rps)| (place(at), *rate_rps)).collect();
        lines.series.push(Series { style: system.style(), draw: Draw::Points, points });
    }
    let (oracle_rps, _) = study.best_rps(lab, &ORACLE)?;
    lines.rules.push(Rule::Level(oracle_rps, "oracle".to_owned()));
    let figure = Figure {
        title: "A bound is worth what the policy makes of it".to_owned(),
        subtitle:
            "RM2's fleets with the highest upper bounds, each policy on each; dashed: the oracle on its best fleet"
                .to_owned(),
        columns: 1,
        panels: vec![Panel::Lines(lines)],
        theirs: String::new(),
        note: "The Kairos paper, Figure 14; auto is added.".to_owned(),
    };
    let highest = shown.first().map_or(0.0, |fleet| fleet.bound_rps);
    let mut comparisons = vec![Comparison::words("kairos-fig14", "bound", Some(highest / oracle_rps.max(1e-9)), "")];
    let BesideArtifact { table: of_artifact, least, of_auto } = beside_artifact(lab)?;
    if let Some(least) = least {
        let what = "kairos over the artifact's distributor in virtual time, the least of the fleets";
        comparisons.push(Comparison::aim("artifact", what, (0.97, f64::INFINITY), least, "×"));
    }
    if let Some(least) = of_auto.values().flatten().copied().reduce(f64::min) {
        let what = "`auto` over `kairos` on the same fleets, the least of them";
        comparisons.push(Comparison::aim("auto_over_kairos", what, (1.0, f64::INFINITY), least, "×"));
    }
    let of_auto: Vec<String> = of_auto.iter().map(range).collect();
    let mut differences = differences_with_oracle();
    differences.push(format!("On the same fleets `auto` serves, of what `kairos` does, {}.", of_auto.join(", ")));
    differences.push(auto_below_kairos());
    differences.push(
        "The artifact's distributor was run in virtual time on its own samples (`kairos_reference_throughput.csv`); ours draws its own \
         requests by the same law."
            .to_owned(),
    );
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table, of_artifact],
        comparisons,
        setup: setup(lab),
        differences,
        missing: Report::missing(&ALL_SYSTEMS, &lab.known(&ALL_SYSTEMS)),
    })
}
