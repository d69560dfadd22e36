//! `symphony paper`: reproduces tables and figures of the papers.

use std::time::Instant;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use symphony_paper::{EXPERIMENTS, Experiment, Lab, NoData, Outcome, Size, Step, find, write_index, write_report};

use crate::cli::PaperArgs;
use crate::exit::bad_input;
use crate::inspect::table;

pub(crate) fn run(args: &PaperArgs) -> anyhow::Result<()> {
    let chosen: Vec<&'static Experiment> = match args.name.as_str() {
        name if name.eq_ignore_ascii_case("list") => {
            list();
            return Ok(());
        }
        "all" => EXPERIMENTS.iter().collect(),
        name => match of_paper(name) {
            all if all.is_empty() => vec![find(name).ok_or_else(|| unknown(name))?],
            all => all,
        },
    };
    let several = chosen.len() > 1;
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;

    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::with_template("{prefix} [{elapsed}] {msg}")?);
    let tell = |Step { done, of, what }: Step<'_>| {
        bar.set_message(format!("{done}/{of} {what}"));
        bar.tick();
    };
    let lab =
        Lab::new(if args.quick { Size::Quick } else { Size::Full }, args.threads, &tell).with_data(args.data.clone());
    let began = Instant::now();
    let mut outcomes = Vec::new();
    for experiment in chosen {
        bar.set_prefix(experiment.name);
        let begun = Instant::now();
        let report = match (experiment.run)(&lab) {
            Ok(report) => report,
            // An experiment that needs the data of others is left out of `all`, with a message.
            Err(error) if error.is::<NoData>() && args.name == "all" => {
                bar.suspend(|| eprintln!("{} left out: {error}", experiment.name));
                continue;
            }
            Err(error) if error.is::<NoData>() => return Err(bad_input(error)),
            Err(error) => return Err(error),
        };
        let outcome = Outcome { experiment, report };
        write_report(&args.out, &outcome)?;
        let page = args.out.join(format!("{}.md", experiment.name));
        bar.suspend(|| eprintln!("{} in {:.1} s", page.display(), begun.elapsed().as_secs_f64()));
        outcomes.push(outcome);
    }
    bar.finish_and_clear();
    if several {
        write_index(&args.out, &outcomes)?;
        eprintln!("{} in {:.0} s", args.out.join("README.md").display(), began.elapsed().as_secs_f64());
    }
    outcomes.iter().for_each(show);
    Ok(())
}

fn list() {
    let rows: Vec<_> =
        EXPERIMENTS.iter().map(|e| vec![e.name.to_owned(), e.figure.to_owned(), e.what.to_owned()]).collect();
    table::print(&["NAME", "IN THE PAPER", "WHAT"], &rows);
}

/// Everything of one paper. Its figures share searches, which are made once.
fn of_paper(name: &str) -> Vec<&'static Experiment> {
    let is_of = |experiment: &&Experiment| experiment.name.split_once('-').is_some_and(|(paper, _)| paper == name);
    EXPERIMENTS.iter().filter(is_of).collect()
}

fn unknown(name: &str) -> anyhow::Error {
    let names: Vec<_> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
    bad_input(format!(
        "there is no table or figure `{name}`; expected list, all, a paper (symphony, nexus, kairos, blox), or one of {}",
        names.join(", ")
    ))
}

/// The comparisons, for people.
fn show(outcome: &Outcome) {
    println!("{}: {}", outcome.experiment.name, outcome.experiment.what);
    let number = |value: f64| if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") };
    let rows: Vec<_> = outcome
        .report
        .comparisons
        .iter()
        .map(|comparison| {
            let (low, high) = comparison.theirs;
            let theirs = if low == high { number(low) } else { format!("{}…{}", number(low), number(high)) };
            let or_dash = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
            vec![comparison.what.clone(), theirs, or_dash(comparison.ours), or_dash(comparison.ratio())]
        })
        .collect();
    table::print(&["WHAT", "PAPER", "OURS", "RATIO"], &rows);
    println!();
}
