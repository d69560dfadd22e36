//! Recorded arrivals: traces of others and our own, read into one form and written as one CSV
//! (`time_s,model,items,slo_ms`).

mod arrivals_csv;
mod azure_functions_2019;
mod azure_functions_2021;
mod azure_llm;
mod blox;
mod lines;
mod model_map;
mod spread;
mod window;

pub use model_map::{ModelMap, Rest};
pub use spread::{Spread, SpreadSeed};
pub use window::Window;

use symphony_types::Nanos;

/// Arrivals of one conversion: at 40 bytes each, 800 MB in memory. A day of Azure Functions 2019 has a thousand
/// million: take a window of it.
pub const ARRIVALS_MAX: usize = 20_000_000;
/// Functions or models of one trace; Azure Functions 2019 has 83 000 functions.
pub const SOURCES_MAX: usize = 1 << 20;
/// The last second of a trace, 23 days: up to there a number of seconds with 64 bits is exact to the nanosecond. Azure
/// Functions 2019 and 2021 last 14 days.
pub const TRACE_S_MAX: f64 = 2e6;

/// A request of a recorded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedArrival {
    /// Time since the start of the trace.
    pub at: Nanos,
    /// The position of its source in [`RecordedArrivals::sources`].
    pub source: u32,
    /// Items in the request, if recorded.
    pub items: Option<u32>,
    /// Time from arrival to the deadline, if recorded.
    pub slo: Option<Nanos>,
}

/// The arrivals of a trace. What they are addressed to, a function or a model, is a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedArrivals {
    /// Names of sources, each once. An empty name is that of arrivals that name no model.
    pub sources: Vec<String>,
    /// The arrivals; in the order of time once they are read or cut.
    pub rows: Vec<RecordedArrival>,
}

impl RecordedArrivals {
    /// Sorts by time; equal times keep their order.
    pub(crate) fn sort(&mut self) {
        self.rows.sort_by_key(|row| row.at);
    }

    /// Adds another trace on the same clock, with its sources by name.
    ///
    /// # Errors
    /// If both together have more than [`ARRIVALS_MAX`] arrivals or [`SOURCES_MAX`] sources.
    pub fn merge(&mut self, other: Self) -> Result<(), String> {
        let mut known = Sources::of(std::mem::take(&mut self.sources));
        let merged: Result<Vec<u32>, String> = other.sources.iter().map(|name| known.position(name)).collect();
        self.sources = known.into_names();
        let positions = merged?;
        room_for(self.rows.len() as u64, other.rows.len() as u64)?;
        let renamed = |row: RecordedArrival| RecordedArrival { source: positions[row.source as usize], ..row };
        self.rows.extend(other.rows.into_iter().map(renamed));
        self.sort();
        Ok(())
    }
}

/// Whether `more` arrivals fit behind `count`.
pub(crate) fn room_for(count: u64, more: u64) -> Result<(), String> {
    if count.saturating_add(more) > ARRIVALS_MAX as u64 {
        return Err(format!(
            "expected at most {ARRIVALS_MAX} arrivals (ARRIVALS_MAX), got {} and more; take a window of the trace",
            count.saturating_add(more)
        ));
    }
    Ok(())
}

/// Sources by name while a trace is read.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    positions: std::collections::HashMap<String, u32>,
    names: Vec<String>,
}

impl Sources {
    fn of(names: Vec<String>) -> Self {
        Self { positions: names.iter().cloned().zip(0..).collect(), names }
    }

    /// The position of the source of this name, which is added if it is new.
    pub(crate) fn position(&mut self, name: &str) -> Result<u32, String> {
        if let Some(&known) = self.positions.get(name) {
            return Ok(known);
        }
        if self.names.len() == SOURCES_MAX {
            return Err(format!("expected at most {SOURCES_MAX} functions or models (SOURCES_MAX), got more"));
        }
        let position = self.names.len() as u32;
        self.positions.insert(name.to_owned(), position);
        self.names.push(name.to_owned());
        Ok(position)
    }

    pub(crate) fn into_names(self) -> Vec<String> {
        self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_on_one_clock_are_merged_by_names_in_order() {
        let mut one = RecordedArrivals::from_csv("time_s,model\n1,a\n3,b\n").unwrap();
        let other = RecordedArrivals::from_csv("time_s,model\n2,b\n0.5,c\n").unwrap();
        one.merge(other).unwrap();
        let names: Vec<_> = one.rows.iter().map(|row| one.sources[row.source as usize].as_str()).collect();
        assert_eq!(names, ["c", "a", "b", "b"]);
        assert_eq!(one.sources, ["a", "b", "c"]);
    }

    #[test]
    fn more_arrivals_than_fit_are_refused_before_they_are_made() {
        assert!(room_for(0, ARRIVALS_MAX as u64).is_ok());
        let message = room_for(1, ARRIVALS_MAX as u64).unwrap_err();
        assert!(message.contains("at most 20000000 arrivals (ARRIVALS_MAX), got 20000001"), "{message}");
        assert!(room_for(1, u64::MAX).is_err());
    }
}
