//! The Symphony paper, Table 4 (section 5.2.2): goodput of two models on 8 GPUs against the analytic bounds.

use anyhow::Result;

use super::{cell, two_models};
use crate::data::{self, Table4Row};
use crate::lab::Lab;
use crate::page::number;
use crate::plot::{Axis, Bar, Bars, Figure, Panel};
use crate::report::{Comparison, Plot, Report, Table};
use crate::system::{self, CLOCKWORK, NEXUS_1, SYMPHONY, System};

const SYSTEMS: [System; 10] = [
    system::SYMPHONY,
    system::AUTO,
    system::SYMPHONY_PRUNE,
    system::EAGER,
    system::CLIPPER,
    system::TIMEOUT,
    system::CLOCKWORK,
    system::NEXUS_1,
    system::NEXUS_8,
    system::SHEPHERD,
];

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let rows = data::table4();
    let systems = lab.known(&SYSTEMS);
    let mut setups = Vec::new();
    for row in &rows {
        let setup = two_models::setup(lab, row);
        setups.extend(systems.iter().map(|system| setup.with_policy(system.policy)));
    }
    let goodputs = lab.goodputs(&setups)?;

    let mut table = Table::new(&["model", "system", "goodput_rps", "paper_rps", "share_of_staggered_bound"]);
    let (mut panels, mut comparisons) = (Vec::new(), Vec::new());
    for (row, found) in rows.iter().zip(goodputs.chunks(systems.len())) {
        let mut bars = Vec::new();
        for system in SYSTEMS {
            let ours = systems.iter().position(|known| *known == system).map(|at| found[at]);
            let theirs = theirs(row, &system);
            bars.push(bar(row, system.style(), ours, theirs));
            if ours.is_some() || theirs.is_some() {
                table.rows.push(csv_row(row, system.key, ours, theirs));
            }
            if let Some(theirs) = theirs {
                let key = format!("{}_{}", row.model.to_lowercase(), system.key);
                let what = format!("goodput of {}, {}", row.model, system.label);
                comparisons.push(Comparison::printed(key, what, theirs, ours, "r/s", "Table 4"));
            }
        }
        panels.push(Panel::Bars(Bars {
            title: format!("{}, SLO {:.0} ms", row.model, row.slo_ms),
            axis: Axis::between("goodput, r/s", 0.0, 1.02 * row.stagger_rps),
            bars,
            rules: vec![(row.nocoord_rps, "uncoordinated".to_owned()), (row.stagger_rps, "staggered".to_owned())],
        }));
    }
    let figure = Figure {
        title: "Goodput on 8 GPUs against what staggered execution could reach".to_owned(),
        subtitle: "One model, Poisson arrivals, no network. Dashed: the paper's analytic throughput without and with coordination"
            .to_owned(),
        columns: 2,
        panels,
        theirs: "the paper's measurement".to_owned(),
        note: "In brackets: share of the staggered bound. The Symphony paper, Table 4.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table],
        comparisons,
        setup: format!(
            "One model on 8 GPUs, ℓ(b) = α·b + β exactly, no delays. Goodput: highest rate with at most 1 % bad requests, found to \
             within 0.5 %. {}. `timeout` waits a quarter of the SLO. `clipper` gives up a request only when it cannot be met even \
             alone. `clockwork` keeps 5 ms of work committed on each GPU and aims 5 ms early.",
            lab.words()
        ),
        differences: vec![
            "The paper measures a running system: control, transfer and reply take time there, and profiles are measured tables. Here \
             time passes only on GPUs, so `symphony` comes out higher."
                .to_owned(),
            "The text prunes a batch as Clipper does. That alone would cost 5 to 10 %. `symphony` gives up requests that would force \
             batches far below the staggered size, as the authors' published code does."
                .to_owned(),
            "`eager` shares everything with `symphony` but the wait. It is a stronger rival than Clockwork, which ranks by deadlines \
             and takes whatever batch that gives."
                .to_owned(),
        ],
        missing: Report::missing(&SYSTEMS, &systems),
    })
}

fn theirs(row: &Table4Row, system: &System) -> Option<f64> {
    match *system {
        SYMPHONY => Some(row.symphony_rps),
        CLOCKWORK => Some(row.clockwork_rps),
        // The paper does not say with how many frontends; its Figure 6 shows both.
        NEXUS_1 => Some(row.nexus_rps),
        _ => None,
    }
}

fn bar(row: &Table4Row, style: crate::plot::Style, value: Option<f64>, theirs: Option<f64>) -> Bar {
    let text = match value {
        Some(value) => format!("{} ({:.0} %)", number(value), 100.0 * value / row.stagger_rps),
        None => "not in this build".to_owned(),
    };
    Bar { style, value, text, theirs: theirs.map(|value| (value, value)) }
}

fn csv_row(row: &Table4Row, system: &str, ours: Option<f64>, theirs: Option<f64>) -> Vec<String> {
    let text = |value: Option<f64>, decimals| value.map_or_else(String::new, |value| cell(value, decimals));
    let share = ours.map(|ours| ours / row.stagger_rps);
    vec![row.model.clone(), system.to_owned(), text(ours, 0), text(theirs, 0), text(share, 3)]
}
