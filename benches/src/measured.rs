//! What a program found, with where and of what: all of it (`--out`), and the figures of performance.md (`--figures`),
//! as `measured.py` for scripts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

/// Values by what the tables of performance.md call them, both as the page shows them.
pub type Figures = Vec<(String, String)>;

/// Where results go.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Measured {
    /// Write everything, as JSON.
    #[arg(long, value_name = "FILE", requires = "machine")]
    out: Option<PathBuf>,
    /// Write the figures of performance.md, for `cargo xtask figures --measured`.
    #[arg(long, value_name = "FILE", requires = "machine")]
    figures: Option<PathBuf>,
    /// The machine, as performance.md calls it.
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
}

impl Measured {
    /// Writes what is asked for.
    ///
    /// # Errors
    /// If a file cannot be written, or git does not name the commit that was measured.
    pub fn write(&self, results: &impl Serialize, figures: &[(String, String)]) -> Result<()> {
        if self.out.is_none() && self.figures.is_none() {
            return Ok(());
        }
        let origin = Origin {
            machine: self.machine.clone().unwrap_or_default(),
            commit: commit()?,
            date: output_of("date", &["+%F"])?,
        };
        if let Some(path) = &self.out {
            to_file(path, &Whole { origin: &origin, results })?;
        }
        if let Some(path) = &self.figures {
            to_file(path, &rows(figures, &origin))?;
        }
        Ok(())
    }
}

/// A value that is to be no higher than a bound: in bold, as on the page, if it is.
#[must_use]
pub fn at_most(value: f64, digits: usize, bound: f64) -> String {
    if value > bound { format!("**{value:.digits$}**") } else { format!("{value:.digits$}") }
}

/// Where, of what and when something was measured.
#[derive(Serialize)]
struct Origin {
    machine: String,
    commit: String,
    date: String,
}

#[derive(Serialize)]
struct Whole<'a, R> {
    #[serde(flatten)]
    origin: &'a Origin,
    results: &'a R,
}

/// As `cargo xtask figures` takes it.
#[derive(Serialize)]
struct Row<'a> {
    what: &'a str,
    value: &'a str,
    #[serde(flatten)]
    origin: &'a Origin,
}

fn rows<'a>(figures: &'a [(String, String)], origin: &'a Origin) -> Vec<Row<'a>> {
    figures.iter().map(|(what, value)| Row { what, value, origin }).collect()
}

fn to_file(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The last commit of this tree; `-dirty` behind it if more than pages and figures was changed since, and no figure may
/// come of that.
fn commit() -> Result<String> {
    let changed = output_of("git", &["status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)docs"])?;
    let commit = output_of("git", &["rev-parse", "--short=10", "HEAD"])?;
    Ok(if changed.is_empty() { commit } else { format!("{commit}-dirty") })
}

fn output_of(program: &str, words: &[&str]) -> Result<String> {
    let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output = Command::new(program).args(words).current_dir(tree).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    let error = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(output.status.success(), "{program} {}: {}", words.join(" "), error());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_figure_is_what_xtask_takes() {
        let origin = Origin { machine: "E2".into(), commit: "25c74e3".into(), date: "2026-12-01".into() };
        let figures = vec![("TCP, p50".to_owned(), at_most(58.4, 0, 60.0))];
        let expected = json!([
            { "what": "TCP, p50", "value": "58", "machine": "E2", "commit": "25c74e3", "date": "2026-12-01" }
        ]);
        assert_eq!(serde_json::to_value(rows(&figures, &origin)).unwrap(), expected);
        assert_eq!(at_most(2.44, 1, 2.0), "**2.4**");
    }
}
