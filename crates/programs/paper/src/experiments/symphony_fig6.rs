//! The Symphony paper, Figure 6 (section 5.1): goodput on the model zoo with 64 GPUs.

mod end_to_end;

use anyhow::Result;

use super::cell;
use crate::data::{self, ZooRow};
use crate::lab::Lab;
use crate::page::number;
use crate::plot::{Axis, Bar, Bars, Figure, Panel};
use crate::report::{Comparison, Plot, Report, Table};
use crate::setup::Models;
use crate::system::{self, System};

const GPUS: u32 = 64;

const SYSTEMS: [System; 7] = [
    system::SYMPHONY,
    system::AUTO,
    system::EAGER,
    system::CLOCKWORK,
    system::NEXUS_1,
    system::NEXUS_8,
    system::SHEPHERD,
];
/// The systems of the paper that Symphony is measured against.
const BASELINES: [System; 3] = [system::CLOCKWORK, system::NEXUS_1, system::NEXUS_8];
const SYSTEMS_QUICK: [System; 4] = [system::SYMPHONY, system::CLOCKWORK, system::NEXUS_1, system::NEXUS_8];

/// One of the six groups of bars.
struct Group {
    /// As in `data/claims.csv`.
    key: &'static str,
    title: String,
    models: Vec<Models>,
}

/// Which models of a zoo belong to a set.
type Holds = fn(&ZooRow) -> bool;

fn groups() -> Vec<Group> {
    let mut groups = Vec::new();
    for (kind, zoo) in [("1080Ti", data::zoo_1080ti()), ("A100", data::zoo_a100())] {
        let of = |holds: Holds| zoo.iter().filter(|row| holds(row)).map(Models::of).collect::<Vec<_>>();
        let keys = if kind == "A100" {
            ["a100_all", "a100_gt2", "a100_lt2"]
        } else {
            ["1080ti_all", "1080ti_gt2", "1080ti_lt2"]
        };
        let sets: [(&str, Holds); 3] = [
            ("all", |_| true),
            ("β/α > 2", |row| row.beta_over_alpha > 2.0),
            ("β/α < 2", |row| row.beta_over_alpha < 2.0),
        ];
        for (key, (set, holds)) in keys.into_iter().zip(sets) {
            let models = of(holds);
            groups.push(Group { key, title: format!("{kind}, {set}: {} models", models.len()), models });
        }
    }
    groups
}

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let mut groups = groups();
    if lab.quick() {
        // Both kinds, and a set in which little is gained. Sets in which the most is gained serve so much that they
        // take the longest to simulate.
        groups.retain(|group| ["1080ti_all", "1080ti_lt2", "a100_all"].contains(&group.key));
    }
    let wanted = lab.pick::<&[System]>(&SYSTEMS, &SYSTEMS_QUICK);
    let systems = lab.known(wanted);
    let mut setups = Vec::new();
    for group in &groups {
        let mut setup = lab.setup(&format!("zoo, {}", group.title), GPUS, group.models.clone());
        setup.duration_s = lab.pick(30.0, 4.0);
        setups.extend(systems.iter().map(|system| setup.with_policy(system.policy)));
    }
    let goodputs = lab.goodputs(&setups)?;

    let mut table = Table::new(&["group", "models", "system", "goodput_rps", "symphony_over_this", "end_to_end_rps"]);
    let (mut panels, mut comparisons, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    for (group, found) in groups.iter().zip(goodputs.chunks(systems.len())) {
        let of = |system: &System| systems.iter().position(|known| known == system).map(|at| found[at]);
        let symphony = of(&system::SYMPHONY).unwrap_or(0.0);
        let bar = |system: &System| {
            let value = of(system);
            let text = value.map_or_else(|| "not in this build".to_owned(), number);
            Bar { style: system.style(), value, text, theirs: None }
        };
        for system in &systems {
            let goodput = of(system).unwrap_or(0.0);
            let end_to_end = (group.key == "1080ti_all" && *system == system::AUTO).then(end_to_end::goodput).flatten();
            let over = if goodput > 0.0 { cell(symphony / goodput, 3) } else { String::new() };
            table.rows.push(vec![
                group.key.to_owned(),
                group.models.len().to_string(),
                system.key.to_owned(),
                cell(goodput, 0),
                over,
                end_to_end.map_or_else(String::new, |goodput| cell(goodput, 0)),
            ]);
        }
        let best = BASELINES.iter().filter_map(of).reduce(f64::max);
        let claimed = if group.key.ends_with("_all") { "all" } else { group.key };
        let claim = data::claim("symphony-fig6", claimed);
        panels.push(Panel::Bars(Bars {
            title: group.title.clone(),
            axis: Axis::between("goodput, r/s", 0.0, 1.05 * found.iter().copied().fold(0.0, f64::max)),
            bars: wanted.iter().map(bar).collect(),
            rules: vec![(symphony / claim.low, format!("symphony ÷ {}", number(claim.low)))],
        }));
        let mut comparison = Comparison::words("symphony-fig6", claimed, best.map(|best| symphony / best), "×");
        if claimed == "all" {
            let kind = if group.key.starts_with("a100") { "A100" } else { "1080Ti" };
            comparison.what = format!("all models on {kind}: Symphony over the best baseline");
        }
        comparison.key = group.key.to_owned();
        comparisons.push(comparison);
        if let (Some(one), Some(eight)) = (of(&system::NEXUS_1), of(&system::NEXUS_8)) {
            losses.extend((one > 0.0).then(|| 1.0 - eight / one));
        }
    }
    let loss = (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64);
    let mut comparison = Comparison::words("symphony-fig6", "nexus_frontends_loss", loss, "");
    comparison.what += ", mean of the groups";
    comparisons.push(comparison);
    let figure = Figure {
        title: "Goodput on the model zoo with 64 GPUs".to_owned(),
        subtitle: "Equal popularity, Poisson arrivals, each model with its own SLO; every model must have at most 1 % bad requests".to_owned(),
        columns: 3,
        panels,
        theirs: String::new(),
        note: "Dashed: where the best of Clockwork and Nexus would stand by the paper's ratio. Profiles and SLOs of the Symphony paper, Tables 5 and 6; Figure 6 \
               is a plot only."
            .to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table, end_to_end::table()],
        comparisons,
        setup: format!("Models of Tables 5 (1080Ti) and 6 (A100) as printed, equally popular, Poisson, 64 GPUs, no network. {}.\n\n{}", lab.words(), end_to_end::section().trim_end()),
        differences: vec![
            "Table 5 lists 35 models and Table 6 lists 37; the text says 37 for both clusters. We use what is printed.".to_owned(),
            "Our `clockwork` and `nexus` are stronger than the paper's on 1080Ti, since they too pay nothing here for locks, networks and late \
             actions. An independent simulator of the published Clockwork controller finds the same ratios as ours (1.3, 1.5 and 1.1 on 1080Ti); \
             what else held it back in the paper is not in the text. On A100, with larger β/α, the ratios come out as in the paper."
                .to_owned(),
            "`eager` here has Symphony's ranking and drop rule and \
             lacks only the wait; against so strong a rival little is left to gain on a zoo of very different models, where some other \
             model's batch is nearly always ready to fill a gap."
                .to_owned(),
            "End to end the zoo reaches the simulated goodput but for the last step while threads get a core at once (runs 1 and 3, timers 0.2 ms late at p99), \
             and 0.80 of it beside builds (run 2, up to 8 ms), where batches end late by milliseconds and up to 70 ms come off deadlines for \
             that. What the processes themselves use is about half a core."
                .to_owned(),
            "With 35 models the worst one decides: a single model above 1 % ends the search, so goodput here is a few per cent below what \
             all requests together would allow."
                .to_owned(),
        ],
        missing: Report::missing(wanted, &systems),
    })
}
