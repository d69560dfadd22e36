//! The result of an experiment.

use crate::plot::Figure;
use crate::system::System;

/// A figure or table, reproduced.
#[derive(Clone, Debug)]
pub struct Report {
    pub(crate) plots: Vec<Plot>,
    pub(crate) tables: Vec<Table>,
    /// The paper's values beside ours.
    pub comparisons: Vec<Comparison>,
    /// What was run, in Markdown.
    pub(crate) setup: String,
    /// Why ours differ, one reason each, in Markdown.
    pub(crate) differences: Vec<String>,
    /// Systems of the figure that this build does not have.
    pub(crate) missing: Vec<&'static str>,
}

/// A plot and the suffix of its file's name: empty for the main one.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) suffix: &'static str,
    pub(crate) figure: Figure,
}

/// Data for a CSV file.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The suffix of the file's name: empty for the main one.
    pub(crate) suffix: &'static str,
    pub(crate) header: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Measured in real time on some machine: differs from run to run, unlike everything else.
    pub(crate) measured: bool,
}

impl Table {
    pub(crate) fn new(header: &[&'static str]) -> Self {
        Self { suffix: "", header: header.to_vec(), rows: Vec::new(), measured: false }
    }
}

/// How a paper gives a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As a number in a table, or in an equation of the text.
    Printed,
    /// In words, or rounded in the text, because the figure is a plot.
    Words,
    /// Not at all: our own target.
    Aim,
}

/// One value of a paper beside ours.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Its name in tests.
    pub key: String,
    /// The quantity, in words.
    pub what: String,
    /// The paper's value, or both ends of the range that it gives.
    pub theirs: (f64, f64),
    /// Ours; `None` if this build does not have it.
    pub ours: Option<f64>,
    /// The unit of both; empty for ratios.
    pub unit: &'static str,
    /// How the paper gives it.
    pub reading: Reading,
    /// The paper's section or table.
    pub source: String,
}

impl Comparison {
    /// A printed value.
    pub(crate) fn printed(
        key: impl Into<String>,
        what: impl Into<String>,
        theirs: f64,
        ours: Option<f64>,
        unit: &'static str,
        source: &str,
    ) -> Self {
        let (key, what, source) = (key.into(), what.into(), source.to_owned());
        Self { key, what, theirs: (theirs, theirs), ours, unit, reading: Reading::Printed, source }
    }

    /// A statement of the text about a figure.
    pub(crate) fn words(figure: &str, key: &str, ours: Option<f64>, unit: &'static str) -> Self {
        let claim = crate::data::claim(figure, key);
        Self {
            key: key.to_owned(),
            what: claim.words,
            theirs: (claim.low, claim.high),
            ours,
            unit,
            reading: Reading::Words,
            source: format!("section {}", claim.section),
        }
    }

    /// Our own target where the paper gives nothing: a value between both ends.
    pub(crate) fn aim(key: &str, what: &str, theirs: (f64, f64), ours: f64, unit: &'static str) -> Self {
        let (key, what, source) = (key.to_owned(), what.to_owned(), "our aim".to_owned());
        Self { key, what, theirs, ours: Some(ours), unit, reading: Reading::Aim, source }
    }

    /// Ours over the paper's. With a range: 1 inside it, and over the nearer end outside. `None` without ours.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let ours = self.ours?;
        let (low, high) = self.theirs;
        let nearest = ours.clamp(low, high);
        Some(if nearest == ours { 1.0 } else { ours / nearest })
    }
}

impl Report {
    /// The comparison with this key.
    #[must_use]
    pub fn comparison(&self, key: &str) -> Option<&Comparison> {
        self.comparisons.iter().find(|comparison| comparison.key == key)
    }

    /// The names of those wanted systems that are not known.
    pub(crate) fn missing(wanted: &[System], known: &[System]) -> Vec<&'static str> {
        wanted.iter().filter(|system| !known.contains(system)).map(|system| system.label).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_one_inside_of_a_range_and_over_the_nearer_end_outside() {
        let with = |ours| Comparison { theirs: (2.0, 4.0), ..Comparison::printed("k", "w", 0.0, ours, "", "s") };
        assert_eq!(with(None).ratio(), None);
        assert_eq!(with(Some(3.0)).ratio(), Some(1.0));
        assert_eq!(with(Some(1.0)).ratio(), Some(0.5));
        assert_eq!(with(Some(8.0)).ratio(), Some(2.0));
    }
}
