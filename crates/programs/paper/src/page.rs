//! Writes the CSV, SVG and Markdown files of each report, and an index of all.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::experiment::{Experiment, Paper};
use crate::report::{Comparison, Reading, Report, Table};

/// A report and its experiment.
pub struct Outcome {
    /// What was run.
    pub experiment: &'static Experiment,
    /// What came of it, beside the paper's numbers.
    pub report: Report,
}

/// Writes one report's files into `folder`, which must exist.
///
/// # Errors
/// If a file cannot be written.
pub fn write_report(folder: &Path, outcome: &Outcome) -> Result<()> {
    let name = outcome.experiment.name;
    for plot in &outcome.report.plots {
        write(&folder.join(format!("{name}{}.svg", plot.suffix)), &plot.figure.render())?;
    }
    for table in &outcome.report.tables {
        write(&folder.join(format!("{name}{}.csv", table.suffix)), &csv_text(table)?)?;
    }
    write(&folder.join(format!("{name}.md")), &page(outcome))
}

/// Writes `README.md`, which links to all reports. Sections of papers that are not among them stay as they are.
///
/// # Errors
/// If the file cannot be read or written.
pub fn write_index(folder: &Path, outcomes: &[Outcome]) -> Result<()> {
    let path = folder.join("README.md");
    let before = match fs::read_to_string(&path) {
        Ok(before) => before,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    write(&path, &index(&before, outcomes))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn csv_text(table: &Table) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&table.header)?;
    for row in &table.rows {
        writer.write_record(row)?;
    }
    Ok(String::from_utf8(writer.into_inner().map_err(|error| error.into_error())?)?)
}

fn page(outcome: &Outcome) -> String {
    let Outcome { experiment, report } = outcome;
    let Experiment { name, paper, figure, what, .. } = experiment;
    let mut text = format!("# {figure}: {what}\n\n{}.\n\n", paper.title());
    for plot in &report.plots {
        text += &format!("![{}]({name}{}.svg)\n\n", plot.figure.title, plot.suffix);
    }
    text += "## The paper's values and ours\n\n";
    text += "| what | paper | ours | ratio | paper's source |\n| --- | ---: | ---: | ---: | --- |\n";
    for comparison in &report.comparisons {
        text += &comparison_row(comparison);
    }
    if report.comparisons.iter().any(|comparison| comparison.reading == Reading::Words) {
        text += "\nValues marked ° are read from the text, since the paper gives the figure as a plot only. Against a range the ratio is 1 \
                 inside, and to the nearer end outside.\n";
    }
    if report.comparisons.iter().any(|comparison| comparison.reading == Reading::Aim) {
        text += "\nValues marked † are what we want of ourselves; the paper gives none.\n";
    }
    if !report.missing.is_empty() {
        text += &format!("\nNot in this build, so without values of ours: {}.\n", report.missing.join("; "));
    }
    text += &format!("\n## What was run\n\n{}\n\n## Differences\n\n", report.setup);
    for difference in &report.differences {
        text += &format!("- {difference}\n");
    }
    text += "\n## Data\n\n";
    for table in &report.tables {
        let measured = if table.measured { ", measured in real time: differs from run to run" } else { "" };
        text += &format!("- [{name}{0}.csv]({name}{0}.csv){measured}\n", table.suffix);
    }
    let data = if *paper == Paper::Kairos { " --data DIR" } else { "" };
    text += &format!("\nMade by `symphony paper {name}{data}`. Everything is in virtual time");
    text += if report.tables.iter().any(|table| table.measured) { " unless marked" } else { "" };
    text += ", so the same command gives the same bytes.\n\n[All tables and figures](README.md)\n";
    text
}

fn comparison_row(comparison: &Comparison) -> String {
    let Comparison { what, theirs: (low, high), unit, source, .. } = comparison;
    let mark = match comparison.reading {
        Reading::Printed => "",
        Reading::Words => "°",
        Reading::Aim => "†",
    };
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let theirs = range(*low, *high);
    let ours = comparison.ours.map_or_else(|| "–".to_owned(), |ours| format!("{}{unit}", number(ours)));
    let ratio = comparison.ratio().map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
    format!("| {what} | {theirs}{unit}{mark} | {ours} | {ratio} | {source} |\n")
}

/// A value, both ends of a range, or its only end.
pub(crate) fn range(low: f64, high: f64) -> String {
    if low == high {
        number(low)
    } else if high.is_infinite() {
        format!("above {}", number(low))
    } else {
        format!("{} to {}", number(low), number(high))
    }
}

/// Three or more significant digits.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    let text = if magnitude >= 100.0 || value == value.trunc() {
        format!("{value:.0}")
    } else if magnitude >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// In the order of the index.
const PAPERS: [Paper; 4] = [Paper::Symphony, Paper::Nexus, Paper::Kairos, Paper::Blox];

/// The index; papers of which nothing was made keep their sections of the index before.
fn index(before: &str, outcomes: &[Outcome]) -> String {
    let mut text = "# The papers, reproduced\n\n\
        Tables and figures of the papers that Symphony builds on, made again with this repository's policies in virtual time, beside what \
        the papers say. Each page has the plot, the data and the reasons for differences. All of it is made again by\n\n\
        ```sh\nsymphony paper all --out docs/papers --data DIR\n```\n\n\
        and `symphony paper NAME` makes one of them, or those of one paper (`kairos`). DIR has what others measured and published, which is \
        not part of the repository; what needs it is left out without. `--quick` takes about a minute for all and is what the tests run.\n"
        .to_owned();
    for paper in PAPERS {
        match section(paper, outcomes) {
            Some(section) => text += &section,
            None => text += section_of(before, paper).unwrap_or_default(),
        }
    }
    text
}

/// The pages of a paper, if any were made.
fn section(paper: Paper, outcomes: &[Outcome]) -> Option<String> {
    let mut of_paper = outcomes.iter().filter(|outcome| outcome.experiment.paper == paper).peekable();
    of_paper.peek()?;
    let mut text = format!(
        "\n## {}\n\n| | what it shows | a value of the paper, and ours |\n| --- | --- | --- |\n",
        paper.title()
    );
    for Outcome { experiment, report } in of_paper {
        let Experiment { name, figure, what, .. } = experiment;
        // The first comparison with a value of ours represents the page.
        let chosen = report.comparisons.iter().find(|comparison| comparison.ours.is_some());
        let value = chosen.map_or_else(String::new, |comparison| {
            let theirs = range(comparison.theirs.0, comparison.theirs.1);
            let ours = comparison.ours.map(number).unwrap_or_default();
            format!("{}: paper {theirs}, ours {ours} {}", comparison.what, comparison.unit).trim_end().to_owned()
        });
        text += &format!("| [{figure}]({name}.md) | {what} | {value} |\n");
    }
    Some(text)
}

fn section_of(index: &str, paper: Paper) -> Option<&str> {
    let begin = index.find(&format!("\n## {}\n", paper.title()))?;
    let end = index[begin + 1..].find("\n## ").map_or(index.len(), |at| begin + 1 + at);
    Some(&index[begin..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let texts = [5169.4, 12.54, 0.7532, 2.0, 0.05, 1.10, 90.0].map(number);
        assert_eq!(texts, ["5169", "12.5", "0.753", "2", "0.05", "1.1", "90"]);
    }

    #[test]
    fn papers_of_which_nothing_was_made_keep_their_sections() {
        let part = |paper: Paper| format!("\n## {}\n\n| of {paper:?} |\n", paper.title());
        let before = format!("# Old\n{}{}", part(Paper::Nexus), part(Paper::Blox));
        for paper in [Paper::Nexus, Paper::Blox] {
            assert_eq!(section_of(&before, paper), Some(&*part(paper)));
        }
        assert_eq!(section_of(&before, Paper::Kairos), None);
        let merged = index(&before, &[]);
        assert!(merged.starts_with("# The papers") && !merged.contains("# Old"), "{merged}");
        assert!(merged.ends_with(&(part(Paper::Nexus) + &part(Paper::Blox))), "{merged}");
        assert_eq!(index(&merged, &[]), merged);
    }

    #[test]
    fn a_row_names_source_and_reading() {
        let row = comparison_row(&Comparison::words("symphony-fig6", "a100_gt2", None, ""));
        assert!(row.contains("| 5.7° | – | – | section 5.1 |"), "{row}");
    }
}
