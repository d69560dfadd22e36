//! Azure Functions 2019: invocations per minute, a row for each function, a column for each minute, a file for each day
//! (Shahrad et al., *Serverless in the Wild*, USENIX ATC '20; `AzureFunctionsDataset2019`).

use symphony_types::Nanos;

use super::lines::{Row, Rows};
use super::{RecordedArrival, RecordedArrivals, Sources, SpreadSeed, TRACE_S_MAX, Window, room_for};

/// The columns before the minutes.
const NAMES: [&str; 4] = ["HashOwner", "HashApp", "HashFunction", "Trigger"];
const FUNCTION: usize = 2;
const MINUTE: Nanos = Nanos::from_millis(60_000);
const EXPECTED: &str = "the columns HashOwner,HashApp,HashFunction,Trigger,1,2,3,…";

impl RecordedArrivals {
    /// Reads one day, which begins `begin` after the start of the trace, and returns it with its length. The source is
    /// `HashFunction`. Within its minute an arrival lies where `spread` puts it; outside of `window` there are none.
    ///
    /// # Errors
    /// If the columns are others, a count is no whole number, or there are too many arrivals; the message names the
    /// line.
    pub fn from_azure_functions_2019(
        text: &str,
        begin: Nanos,
        spread: SpreadSeed,
        window: Window,
    ) -> Result<(Self, Nanos), String> {
        let mut lines = Rows::of(text);
        let header = lines.next()?.ok_or_else(|| format!("is empty; expected {EXPECTED}"))?;
        let minutes = minutes(&header)?;
        let length = MINUTE.saturating_mul(minutes);
        if begin.as_secs_f64() + length.as_secs_f64() > TRACE_S_MAX {
            return header.refuse(&format!("days of at most {TRACE_S_MAX} s in all (TRACE_S_MAX)"), "more");
        }
        let (mut sources, mut rows, mut made) = (Sources::default(), Vec::new(), 0);
        while let Some(row) = lines.next()? {
            if row.len() != NAMES.len() + minutes as usize {
                let expected = format!("{} fields, as in the first line", NAMES.len() + minutes as usize);
                return row.refuse(&expected, &format!("{} fields", row.len()));
            }
            let source = sources.position(row.name(FUNCTION, "a HashFunction")?)?;
            // Days have streams of their own, too.
            let mut spreading = spread.of_source(u64::from(source) + ((begin.get() / MINUTE.get()) << 32));
            for minute in 0..minutes {
                let count = row.count(NAMES.len() + minute as usize, "invocations of a minute")?;
                let from = begin + MINUTE.saturating_mul(minute);
                if count == 0 || !window.meets(from, MINUTE) {
                    continue;
                }
                room_for(made, count).map_err(|error| format!("line {}: {error}", row.line))?;
                made += count;
                spreading.each(count, from, MINUTE, |at| {
                    if window.holds(at) {
                        rows.push(RecordedArrival { at, source, items: None, slo: None });
                    }
                });
            }
        }
        let mut arrivals = Self { sources: sources.into_names(), rows };
        arrivals.sort();
        Ok((arrivals, length))
    }
}

/// The number of minutes that the header names: 1, 2, 3 and so on.
fn minutes(header: &Row<'_>) -> Result<u64, String> {
    let named = NAMES.iter().zip(header.fields()).all(|(name, field)| field.eq_ignore_ascii_case(name));
    if !named || header.len() <= NAMES.len() {
        return header.refuse(EXPECTED, &header.fields().take(5).collect::<Vec<_>>().join(","));
    }
    for (minute, field) in (1_u64..).zip(header.fields().skip(NAMES.len())) {
        if field.parse::<u64>().ok() != Some(minute) {
            return header.refuse(&format!("minute {minute} in its column"), field);
        }
    }
    Ok((header.len() - NAMES.len()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spread;

    const TEXT: &str = "HashOwner,HashApp,HashFunction,Trigger,1,2,3\no,a,f1,http,0,2,1\no,a,f2,queue,3,0,0\n";

    fn read(text: &str, window: Window) -> Result<(RecordedArrivals, Nanos), String> {
        RecordedArrivals::from_azure_functions_2019(text, Nanos::ZERO, SpreadSeed::default(), window)
    }

    #[test]
    fn each_count_is_so_many_arrivals_in_its_minute() {
        let (read, length) = read(TEXT, Window::ALL).unwrap();
        assert_eq!((read.sources.as_slice(), length.as_secs_f64()), (&["f1".to_owned(), "f2".to_owned()][..], 180.0));
        let minutes: Vec<_> = read.rows.iter().map(|row| (row.at.get() / MINUTE.get(), row.source)).collect();
        assert_eq!(minutes, [(0, 1), (0, 1), (0, 1), (1, 0), (1, 0), (2, 0)]);
        assert!(read.rows.is_sorted_by_key(|row| row.at));
    }

    #[test]
    fn the_next_day_follows_and_a_window_cuts() {
        let spread = SpreadSeed { spread: Spread::Uniform, seed: 1 };
        let day = Nanos::from_millis(180_000);
        let (next, _) = RecordedArrivals::from_azure_functions_2019(TEXT, day, spread, Window::ALL).unwrap();
        assert!(next.rows.iter().all(|row| row.at >= day) && next.rows.len() == 6);
        let window = Window { from: MINUTE, span: Some(MINUTE) };
        let (cut, _) = read(TEXT, window).unwrap();
        assert_eq!(cut.rows.len(), 2);
    }

    #[test]
    fn what_is_no_such_file_is_refused_by_line() {
        let refused = |text: &str, words: &str| {
            let error = read(text, Window::ALL).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        refused("", "is empty; expected the columns HashOwner");
        refused("app,func\n", "line 1: expected the columns HashOwner,HashApp,HashFunction,Trigger,1,2,3,…");
        refused(&TEXT.replace(",2,3\n", ",2,4\n"), "line 1: expected minute 3 in its column, got `4`");
        refused(&TEXT.replace("0,2,1", "0,-2,1"), "line 2: expected invocations of a minute, a whole number, got `-2`");
        refused(&TEXT.replace("3,0,0", "3,0"), "line 3: expected 7 fields, as in the first line, got `6 fields`");
        refused(
            &TEXT.replace("3,0,0", "3,0,999999999999"),
            "line 3: expected at most 20000000 arrivals (ARRIVALS_MAX)",
        );
        refused(&TEXT.replace("f2", ""), "line 3: expected a HashFunction, got `nothing`");
    }
}
