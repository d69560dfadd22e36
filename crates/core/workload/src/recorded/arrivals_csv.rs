//! The one form of recorded arrivals: `time_s,model,items,slo_ms`, as scenarios read it.

use symphony_types::Nanos;

use super::{RecordedArrival, RecordedArrivals, Sources, TRACE_S_MAX, room_for};
use crate::trace::each_row;

/// The first line of what is written.
const HEADER: &str = "time_s,model,items,slo_ms";

impl RecordedArrivals {
    /// Reads the form that scenarios read (`workload.arrival.trace_csv`). The source is the model.
    ///
    /// # Errors
    /// If a column is unknown, a number is negative or none, or there are no or too many arrivals; the message names
    /// the row.
    pub fn from_csv(text: &str) -> Result<Self, String> {
        let (mut sources, mut rows) = (Sources::default(), Vec::new());
        each_row(text, |number, row| {
            if row.time_s > TRACE_S_MAX {
                return Err(format!("row {number}: expected time_s of at most {TRACE_S_MAX}, got {}", row.time_s));
            }
            room_for(rows.len() as u64, 1)?;
            let source = sources.position(row.model.as_deref().unwrap_or_default())?;
            rows.push(RecordedArrival { at: Nanos::from_secs_f64(row.time_s), source, items: row.items, slo: row.slo });
            Ok(())
        })?;
        let mut arrivals = Self { sources: sources.into_names(), rows };
        arrivals.sort();
        Ok(arrivals)
    }

    /// The lines of that form, the header first, each with its line break. Read again they are the same arrivals.
    pub fn csv_lines(&self) -> impl Iterator<Item = String> {
        let names: Vec<String> = self.sources.iter().map(|name| quoted(name)).collect();
        let line = move |row: &RecordedArrival| {
            let items = row.items.map(|items| items.to_string()).unwrap_or_default();
            let slo_ms = row.slo.map(|slo| decimal(slo.get(), 6)).unwrap_or_default();
            format!("{},{},{items},{slo_ms}\n", decimal(row.at.get(), 9), names[row.source as usize])
        };
        std::iter::once(format!("{HEADER}\n")).chain(self.rows.iter().map(line))
    }
}

/// `number / 10^digits` in decimal, exactly.
fn decimal(number: u64, digits: usize) -> String {
    let one = 10_u64.pow(digits as u32);
    let (whole, part) = (number / one, number % one);
    if part == 0 {
        return whole.to_string();
    }
    let part = format!("{part:0digits$}");
    format!("{whole}.{}", part.trim_end_matches('0'))
}

/// A field of a CSV file, in quotes where it needs them.
fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_exactly_and_no_longer_than_they_are() {
        let written = [(0, 9), (1, 9), (1_500_000_000, 9), (25_000_000, 6), (1_234_567, 6)];
        let written = written.map(|(number, digits)| decimal(number, digits));
        assert_eq!(written, ["0", "0.000000001", "1.5", "25", "1.234567"]);
    }

    #[test]
    fn rows_are_read_in_any_order_and_written_in_that_of_time() {
        let read = RecordedArrivals::from_csv("time_s,model,items,slo_ms\n2,\"a,b\",,\n0.25,m,3,12.5\n").unwrap();
        let text: String = read.csv_lines().collect();
        assert_eq!(text, "time_s,model,items,slo_ms\n0.25,m,3,12.5\n2,\"a,b\",,\n");
        let error = RecordedArrivals::from_csv("time_s\n3e6\n").unwrap_err();
        assert!(error.contains("row 1: expected time_s of at most 2000000, got 3000000"), "{error}");
        assert!(
            RecordedArrivals::from_csv("time_s\n-1\n").unwrap_err().contains("row 1: expected time_s of at least 0")
        );
    }
}
