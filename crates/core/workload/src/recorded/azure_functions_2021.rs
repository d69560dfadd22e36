//! Azure Functions 2021: one row for each invocation with its end and its duration (Zhang et al., *Faster and Cheaper
//! Serverless Computing on Harvested Resources*, SOSP '21; `AzureFunctionsInvocationTraceForTwoWeeksJan2021`).

use symphony_types::Nanos;

use super::lines::Rows;
use super::{RecordedArrival, RecordedArrivals, Sources, TRACE_S_MAX, Window, room_for};

const COLUMNS: &str = "app,func,end_timestamp,duration";

impl RecordedArrivals {
    /// Reads invocations of `window`. The source is `app/func`, since a func is unique only within its app. An arrival
    /// is at `end_timestamp − duration`. Rows may be in any order. What began before the trace is left out.
    ///
    /// # Errors
    /// If the columns are others, or a time is negative or no number; the message names the line.
    pub fn from_azure_functions_2021(text: &str, window: Window) -> Result<Self, String> {
        let mut lines = Rows::of(text);
        let header = lines.next()?.ok_or_else(|| format!("is empty; expected the columns {COLUMNS}"))?;
        if !header.fields().eq(COLUMNS.split(',')) {
            let got: Vec<_> = header.fields().take(5).collect();
            return header.refuse(&format!("the columns {COLUMNS}"), &got.join(","));
        }
        let (mut sources, mut rows) = (Sources::default(), Vec::new());
        while let Some(row) = lines.next()? {
            row.has_columns(COLUMNS)?;
            let source = sources.position(&format!("{}/{}", row.name(0, "an app")?, row.name(1, "a func")?))?;
            let end_s = row.number(2, "an end_timestamp in seconds", TRACE_S_MAX)?;
            let duration_s = row.number(3, "a duration in seconds", TRACE_S_MAX)?;
            let at = Nanos::from_secs_f64(end_s - duration_s);
            if end_s < duration_s || !window.holds(at) {
                continue;
            }
            room_for(rows.len() as u64, 1)?;
            rows.push(RecordedArrival { at, source, items: None, slo: None });
        }
        let mut arrivals = Self { sources: sources.into_names(), rows };
        arrivals.sort();
        Ok(arrivals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rows: &str) -> Result<RecordedArrivals, String> {
        RecordedArrivals::from_azure_functions_2021(&format!("{COLUMNS}\n{rows}"), Window::ALL)
    }

    #[test]
    fn invocations_arrive_when_they_begin() {
        let read = read("a,f,3.5,0.5\na,g,3.25,2.25\na,f,1,5\nb,f,4.5,0.5\n").unwrap();
        let arrivals: Vec<_> = read.rows.iter().map(|row| (row.at.as_secs_f64(), row.source)).collect();
        assert_eq!(arrivals, [(1.0, 1), (3.0, 0), (4.0, 2)], "sorted, without what began before");
        assert_eq!(read.sources, ["a/f", "a/g", "b/f"], "a func is unique only within its app");
    }

    #[test]
    fn what_is_no_such_file_is_refused_by_line() {
        let refused = |rows: &str, words: &str| {
            let error = read(rows).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        refused("a,f,1,-1\n", "line 2: expected a duration in seconds from 0 to 2000000, got `-1`");
        refused("a,f,1,0\na,f,x,0\n", "line 3: expected an end_timestamp in seconds from 0 to 2000000, got `x`");
        refused("a,f,nan,0\n", "line 2: expected an end_timestamp");
        refused("a,f,1\n", "line 2: expected the 4 columns app,func,end_timestamp,duration, got `3 fields`");
        let error = RecordedArrivals::from_azure_functions_2021("a,b\n", Window::ALL).unwrap_err();
        assert!(error.contains("line 1: expected the columns app,func,end_timestamp,duration, got `a,b`"), "{error}");
    }
}
