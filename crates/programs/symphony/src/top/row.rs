//! A table of `top`: rows of cells that can be sorted.

use std::cmp::Ordering;
use std::fmt;

/// One of the three tables.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    pub(super) title: &'static str,
    pub(super) header: &'static [&'static str],
    pub(super) rows: Vec<Row>,
}

/// A row, with a key that is stable across screens.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) key: String,
    /// Name of its sub-cluster, or of itself.
    pub(super) subcluster: String,
    pub(super) cells: Vec<Cell>,
    /// Whether it needs attention.
    pub(super) alarming: bool,
}

/// A cell: numbers sort as numbers, unknown values last.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Text(String),
    Count(Option<u64>),
    /// Per second.
    Rate(Option<f64>),
    /// From 0 to 1.
    Share(Option<f64>),
    Mean(Option<f64>),
    Millis(Option<f64>),
    /// A number of GPUs out of all.
    GpusOf(Option<f64>, usize),
}

impl Cell {
    fn number(&self) -> Option<f64> {
        match self {
            Self::Text(_) => None,
            Self::Count(count) => count.map(|count| count as f64),
            Self::Rate(number)
            | Self::Share(number)
            | Self::Mean(number)
            | Self::Millis(number)
            | Self::GpusOf(number, _) => *number,
        }
    }

    pub(super) const fn is_number(&self) -> bool {
        !matches!(self, Self::Text(_))
    }

    /// Words alphabetically, numbers descending, unknown values last.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            _ => match (self.number(), other.number()) {
                (Some(one), Some(other)) => other.total_cmp(&one),
                (one, other) => other.is_some().cmp(&one.is_some()),
            },
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Count(Some(count)) => write!(f, "{count}"),
            Self::Rate(Some(rate)) => write!(f, "{rate:.1}"),
            Self::Share(Some(share)) => write!(f, "{:.1} %", share * 100.0),
            Self::Mean(Some(mean)) => write!(f, "{mean:.2}"),
            Self::Millis(Some(millis)) => write!(f, "{millis:.1}"),
            Self::GpusOf(Some(gpus), all) => write!(f, "{gpus:.1} of {all}"),
            Self::Count(None)
            | Self::Rate(None)
            | Self::Share(None)
            | Self::Mean(None)
            | Self::Millis(None)
            | Self::GpusOf(None, _) => f.write_str("-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_largest_first_and_what_is_unknown_last() {
        let mut cells = [Cell::Rate(None), Cell::Rate(Some(1.5)), Cell::Rate(Some(20.0)), Cell::Rate(Some(0.0))];
        cells.sort_by(Cell::order);
        assert_eq!(cells.map(|cell| cell.to_string()), ["20.0", "1.5", "0.0", "-"]);
        let mut words = [Cell::Text("b".into()), Cell::Text("a".into())];
        words.sort_by(Cell::order);
        assert_eq!(words.map(|cell| cell.to_string()), ["a", "b"]);
        let shown = [Cell::Count(Some(7)), Cell::Share(Some(0.123)), Cell::Mean(Some(2.0)), Cell::Count(None)];
        assert_eq!(shown.map(|cell| cell.to_string()), ["7", "12.3 %", "2.00", "-"]);
        let shown = [Cell::GpusOf(Some(3.42), 8), Cell::GpusOf(None, 8)];
        assert_eq!(shown.map(|cell| cell.to_string()), ["3.4 of 8", "-"]);
    }
}
