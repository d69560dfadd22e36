//! What a run found.

use std::fmt;

use serde::Serialize;

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// What was lost: vote, entry, snapshot, purge, order, open, record.
    pub what: &'static str,
    /// What was expected, and what was found.
    pub how: String,
}

impl Lost {
    pub(crate) fn new(what: &'static str, how: impl Into<String>) -> Self {
        Self { what, how: how.into() }
    }
}

/// The outcome of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The name of the suite that was run.
    pub run: &'static str,
    /// Over which engine.
    pub engine: &'static str,
    /// How often a disk was opened after something bad.
    pub cycles: u64,
    /// Promises that were made.
    pub acked: u64,
    /// Promises that were not kept, and disks that did not open though nothing was wrong with them.
    pub violations: u64,
    /// The first of them, with what reproduces it.
    pub examples: Vec<String>,
    /// The longest time to open a disk, milliseconds.
    pub slowest_open_ms: u64,
    /// Counts that only this run has.
    pub counts: std::collections::BTreeMap<String, u64>,
}

/// Examples kept of what went wrong.
const EXAMPLES_MAX: usize = 1000;

impl Report {
    pub(crate) fn new(run: &'static str, engine: &'static str) -> Self {
        Self { run, engine, ..Self::default() }
    }

    /// Whether everything was kept.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.violations == 0
    }

    pub(crate) fn count(&mut self, what: impl Into<String>) {
        self.add(what, 1);
    }

    pub(crate) fn add(&mut self, what: impl Into<String>, number: u64) {
        *self.counts.entry(what.into()).or_default() += number;
    }

    pub(crate) fn most(&mut self, what: impl Into<String>, number: u64) {
        let most = self.counts.entry(what.into()).or_default();
        *most = number.max(*most);
    }

    pub(crate) fn violated(&mut self, lost: &[Lost], whence: &dyn fmt::Display) {
        self.violations += lost.len() as u64;
        for lost in lost.iter().take(EXAMPLES_MAX.saturating_sub(self.examples.len())) {
            self.examples.push(format!("{}: {} ({whence})", lost.what, lost.how));
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed() { "kept" } else { "BROKEN" };
        write!(
            f,
            "{} {}: {verdict}; {} cycles, {} acknowledged, {} violations",
            self.run, self.engine, self.cycles, self.acked, self.violations
        )?;
        if self.slowest_open_ms > 0 {
            write!(f, ", slowest open {} ms", self.slowest_open_ms)?;
        }
        for (what, number) in &self.counts {
            write!(f, ", {what} {number}")?;
        }
        for example in &self.examples {
            write!(f, "\n  {example}")?;
        }
        Ok(())
    }
}
