//! What all policies do with the keys of their tables: refuse those of others, check values, write them again.

use std::borrow::Cow;
use std::fmt;

use symphony_types::Nanos;

use crate::choices::parse_word;
use crate::error::Refused;
use crate::text::PolicyTable;

/// The longest time that a policy may contain.
pub(crate) const SPAN_MAX: Nanos = Nanos::from_millis(1_000_000_000);
pub(crate) const SPANS: &str = "milliseconds, 0 to 1e9";

/// Rejects keys that the policy does not have.
pub(crate) fn only(table: &PolicyTable, known: &[&str], expected: &'static str) -> Result<(), Refused> {
    let given = [
        (".trigger", table.trigger.is_some()),
        (".drop", table.drop.is_some()),
        (".ready_order", table.ready_order.is_some()),
        (".gpu_choice", table.gpu_choice.is_some()),
        (".shed", table.shed.is_some()),
        (".share", table.share.is_some()),
        (".commit_ms", table.commit_ms.is_some()),
        (".early_ms", table.early_ms.is_some()),
        (".frontends", table.frontends.is_some()),
        (".preempt_factor", table.preempt_factor.is_some()),
        (".threshold", table.threshold.is_some()),
        (".learn", table.learn.is_some()),
    ];
    if let Some((key, _)) = given.into_iter().find(|(key, given)| *given && !known.contains(key)) {
        return refuse(key, expected, "a key of another policy".to_owned());
    }
    match table.unknown.keys().next() {
        Some(key) => refuse(format!(".{key}"), expected, "a key that no policy has".to_owned()),
        None => Ok(()),
    }
}

pub(crate) fn span(key: &'static str, ms: f64) -> Result<Nanos, Refused> {
    if (0.0..=SPAN_MAX.as_millis_f64()).contains(&ms) {
        return Ok(Nanos::from_millis_f64(ms));
    }
    refuse(key, SPANS, ms.to_string())
}

pub(crate) fn refuse<T>(
    below: impl Into<Cow<'static, str>>,
    expected: impl Into<Cow<'static, str>>,
    got: String,
) -> Result<T, Refused> {
    Err(Refused { below: below.into(), expected: expected.into(), got })
}

pub(crate) fn chosen_word<T: Copy>(
    below: &'static str,
    expected: &'static str,
    words: &[(&'static str, T)],
    got: &str,
) -> Result<T, Refused> {
    parse_word(words, got).map_or_else(|| refuse(below, expected, format!("\"{got}\"")), Ok)
}

/// The name alone, or a table with the differing options.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, name: &str, options: &[String]) -> fmt::Result {
    if options.is_empty() { f.write_str(name) } else { write!(f, "{{ name = \"{name}\", {} }}", options.join(", ")) }
}
