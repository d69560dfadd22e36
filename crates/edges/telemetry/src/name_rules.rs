//! The rules for metric names, and their check, which each crate's tests run over its own list.

use std::collections::BTreeSet;

/// How many labels one metric may have: each multiplies the number of time series.
pub const LABELS_MAX: usize = 4;

/// A metric as people see it. Each crate lists its own, most of them in `names.rs` or `metrics.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricName {
    /// The whole name, as scraped: prefix `symphony_`, unit, and `_total` if it is a counter.
    pub name: &'static str,
    /// Its description: one sentence without a full stop.
    pub help: &'static str,
    /// What sort of metric it is.
    pub kind: Kind,
    /// What it is measured in; the end of its name says so.
    pub unit: Unit,
    /// Its labels; the values of each are a bounded set.
    pub labels: &'static [&'static str],
}

/// What sort of metric it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution; buckets of equal bounds can be added across nodes.
    Histogram,
    /// Facts as labels; its value is always 1.
    Info,
}

/// What a metric is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds, never milliseconds.
    Seconds,
    /// Bytes, never multiples of them.
    Bytes,
    /// A share between 0 and 1.
    Ratio,
    /// Things that the name names: requests, batches, GPUs.
    Count,
    /// Nothing at all: facts, identities.
    None,
}

impl MetricName {
    /// The name without what the encoder appends by itself.
    #[must_use]
    pub fn bare(&self) -> &'static str {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }
}

/// Suffixes of units that are not the base unit.
const DERIVED_UNITS: [&str; 11] =
    ["_ns", "_us", "_ms", "_milliseconds", "_microseconds", "_minutes", "_kb", "_mb", "_gb", "_percent", "_percentage"];

fn snake(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// The names of metrics that are written in the source of a file, above its tests.
fn written(source: &str) -> impl Iterator<Item = &str> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let literals = code.match_indices("\"symphony_").filter_map(|(at, _)| code[at + 1..].split('"').next());
    literals.filter(|name| snake(name) && !name.ends_with('_'))
}

/// Everything in `names` that breaks the law, and what `source`, the text of the file that has them, names besides: a
/// name that is on no list is held to no law. Empty if nothing is wrong. Each crate calls it in a test.
#[must_use]
pub fn check_names(names: &[MetricName], source: &str) -> Vec<String> {
    let unlisted = written(source).filter(|name| names.iter().all(|metric| metric.name != *name));
    let mut broken: Vec<_> = unlisted.map(|name| format!("{name}: it is not on the list of all")).collect();
    let mut seen = BTreeSet::new();
    for metric in names {
        let mut say = |problem: &str| broken.push(format!("{}: {problem}", metric.name));
        if !seen.insert(metric.name) {
            say("the name is given twice");
        }
        if !metric.name.starts_with("symphony_") || !snake(metric.name) {
            say("expected the prefix symphony_ and a–z, 0–9, _ only");
        }
        if metric.name.ends_with("_total") != (metric.kind == Kind::Counter) {
            say("`_total` belongs on counters, on all of them and on nothing else");
        }
        if metric.name.ends_with("_info") != (metric.kind == Kind::Info) {
            say("`_info` belongs on info metrics, on all of them and on nothing else");
        }
        let suffix = match metric.unit {
            Unit::Seconds => Some("_seconds"),
            Unit::Bytes => Some("_bytes"),
            Unit::Ratio => Some("_ratio"),
            Unit::Count | Unit::None => None,
        };
        let base_units = ["_seconds", "_bytes", "_ratio"];
        match suffix {
            Some(suffix) if !metric.bare().ends_with(suffix) => say("the name does not end in its unit"),
            None if base_units.iter().any(|u| metric.bare().ends_with(u)) => say("the name ends in a unit it lacks"),
            _ => {}
        }
        if DERIVED_UNITS.iter().any(|unit| metric.bare().ends_with(unit)) {
            say("expected seconds, bytes or ratios, not a multiple or fraction of them");
        }
        if (metric.unit == Unit::None) != (metric.kind == Kind::Info) {
            say("only info metrics have no unit");
        }
        if metric.help.is_empty() || metric.help.ends_with('.') {
            say("expected a sentence of help without a full stop");
        }
        if metric.labels.len() > LABELS_MAX || metric.labels.iter().any(|label| !snake(label)) {
            say("expected at most 4 labels of a–z, 0–9, _");
        }
        if metric.labels.iter().collect::<BTreeSet<_>>().len() != metric.labels.len() {
            say("a label is given twice");
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: MetricName = MetricName {
        name: "symphony_queueing_seconds",
        help: "Time between arrival and dispatch",
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        labels: &["model"],
    };

    #[test]
    fn each_breach_is_found() {
        assert_eq!(check_names(&[GOOD], ""), Vec::<String>::new());
        let breaches = [
            (MetricName { name: "queueing_seconds", ..GOOD }, "prefix"),
            (MetricName { name: "symphony_Queueing_seconds", ..GOOD }, "prefix"),
            (MetricName { name: "symphony_queueing_total", ..GOOD }, "_total"),
            (MetricName { kind: Kind::Counter, ..GOOD }, "_total"),
            (MetricName { name: "symphony_queueing_info", ..GOOD }, "_info"),
            (MetricName { name: "symphony_queueing", ..GOOD }, "does not end in its unit"),
            (MetricName { unit: Unit::Count, ..GOOD }, "ends in a unit it lacks"),
            (MetricName { name: "symphony_queueing_ms", unit: Unit::Count, ..GOOD }, "not a multiple"),
            (MetricName { unit: Unit::None, ..GOOD }, "only info metrics"),
            (MetricName { help: "", ..GOOD }, "sentence"),
            (MetricName { help: "Time.", ..GOOD }, "sentence"),
            (MetricName { labels: &["a", "b", "c", "d", "e"], ..GOOD }, "at most 4"),
            (MetricName { labels: &["Model"], ..GOOD }, "at most 4"),
            (MetricName { labels: &["a", "a"], ..GOOD }, "a label is given twice"),
        ];
        for (metric, expected) in breaches {
            let broken = check_names(&[metric], "");
            assert!(broken.iter().any(|b| b.contains(expected)), "{metric:?}: {broken:?}");
        }
        assert_eq!(check_names(&[GOOD, GOOD], ""), ["symphony_queueing_seconds: the name is given twice"]);
    }

    #[test]
    fn a_name_that_is_written_and_not_listed_is_found() {
        let file = r#"
            const LISTED: MetricName = MetricName { name: "symphony_queueing_seconds", ..GOOD };
            const FORGOTTEN: MetricName = counter("symphony_drops_total", "Drops");
            fn of(part: &str) -> String { format!("symphony_queueing_{part}") + "symphony_" }
            #[cfg(test)]
            mod tests { const SHOWN: &str = "symphony_only_in_tests 0"; const NAME: &str = "symphony_only_in_tests"; }
        "#;
        assert_eq!(check_names(&[GOOD], file), ["symphony_drops_total: it is not on the list of all"]);
    }
}
