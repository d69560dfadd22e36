//! Azure LLM inference 2023: one row for each request with its tokens (Patel et al., *Splitwise*, ISCA '24;
//! `AzureLLMInferenceTrace_conv.csv`, `_code.csv`), as published or with milliseconds in place of timestamps.

use symphony_types::Nanos;

use super::lines::{Row, Rows};
use super::{RecordedArrival, RecordedArrivals, TRACE_S_MAX, Window, room_for};

const PUBLISHED: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";
const OFFSETS: &str = "offset_ms,context_tokens,generated_tokens";

impl RecordedArrivals {
    /// Reads requests of `window`; all have the source `source`, since a file is the trace of one service. The first
    /// request is at zero, or at its `offset_ms`.
    ///
    /// # Errors
    /// If the columns are others, times fall, or a field is negative or no number; the message names the line.
    pub fn from_azure_llm(text: &str, source: &str, window: Window) -> Result<Self, String> {
        let mut lines = Rows::of(text);
        let expected = || format!("the columns {PUBLISHED}, or {OFFSETS}");
        let header = lines.next()?.ok_or_else(|| format!("is empty; expected {}", expected()))?;
        let columns = match [PUBLISHED, OFFSETS].into_iter().find(|columns| header.fields().eq(columns.split(','))) {
            Some(columns) => columns,
            None => return header.refuse(&expected(), &header.fields().take(4).collect::<Vec<_>>().join(",")),
        };
        let (mut rows, mut first_ns, mut before_ns) = (Vec::new(), None, 0);
        while let Some(row) = lines.next()? {
            row.has_columns(columns)?;
            let ns = if columns == OFFSETS {
                i128::from(Nanos::from_millis_f64(row.number(0, "an offset_ms", TRACE_S_MAX * 1e3)?).get())
            } else {
                let ns = timestamp_ns(&row)?;
                ns - *first_ns.get_or_insert(ns)
            };
            if ns < before_ns {
                return row.refuse("times that do not fall from line to line", row.field(0));
            }
            if ns > (TRACE_S_MAX * 1e9) as i128 {
                return row
                    .refuse(&format!("at most {TRACE_S_MAX} s (TRACE_S_MAX) after the first line"), row.field(0));
            }
            before_ns = ns;
            let at = Nanos::new(ns as u64);
            row.count(1, "tokens of the context")?;
            row.count(2, "generated tokens")?;
            if window.holds(at) {
                room_for(rows.len() as u64, 1)?;
                rows.push(RecordedArrival { at, source: 0, items: None, slo: None });
            }
        }
        Ok(Self { sources: vec![source.to_owned()], rows })
    }
}

/// `2023-11-16 18:15:46.6805900`, perhaps with `T` in the middle or `Z` or `+00:00` at the end, in nanoseconds since
/// 1970.
fn timestamp_ns(row: &Row<'_>) -> Result<i128, String> {
    let text = row.field(0);
    parse_timestamp(text).map_or_else(|| row.refuse("a time as in 2023-11-16 18:15:46.6805900", text), Ok)
}

fn parse_timestamp(text: &str) -> Option<i128> {
    let text = text.strip_suffix("+00:00").or_else(|| text.strip_suffix('Z')).unwrap_or(text);
    let (date, time) = text.split_once([' ', 'T'])?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(clock, ':')?;
    let in_range = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (1970..=9999).contains(&year)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !in_range || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: i64 = format!("{fraction:0<9}").parse().ok()?;
    let seconds = ((days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(i128::from(seconds) * 1_000_000_000 + i128::from(nanos))
}

/// Three numbers of digits only.
fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let number = |part: &str| {
        let is_short = (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        is_short.then(|| part.parse().ok()).flatten()
    };
    let mut parts = text.split(between);
    let numbers = [number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?];
    parts.next().is_none().then_some(numbers)
}

/// Days of the Gregorian calendar; years begin in March, so that the leap day is the last one.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RecordedArrivals, String> {
        RecordedArrivals::from_azure_llm(text, "conv", Window::ALL)
    }

    #[test]
    fn both_forms_of_the_trace_say_the_same() {
        let published = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.5000000,374,44\n\
                         2023-11-17 00:00:00.2503000,396,109\n";
        let offsets = "offset_ms,context_tokens,generated_tokens\n0.0,374,44\n750.3,396,109\n";
        let read = [published, offsets].map(|text| read(text).unwrap());
        assert_eq!(read[0], read[1]);
        assert_eq!(read[0].rows[1].at, Nanos::from_micros(750_300));
        assert_eq!(read[0].sources, ["conv"]);
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        let days = |year, month, day| days_since_1970(year, month, day);
        assert_eq!([days(1970, 1, 1), days(2000, 3, 1), days(2023, 11, 16)], [0, 11_017, 19_677]);
        let ns = parse_timestamp("2024-05-10T00:00:00.009930+00:00").unwrap();
        assert_eq!(ns % 86_400_000_000_000, 9_930_000);
        for wrong in ["2023-13-01 00:00:00", "2023-11-16", "2023-11-16 24:00:00", "x", "2023-11-16 1:2:3.x", ""] {
            assert_eq!(parse_timestamp(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_such_file_is_refused_by_line() {
        let refused = |text: &str, words: &str| {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        let offsets = |rows: &str| format!("{OFFSETS}\n{rows}");
        let published = |rows: &str| format!("{PUBLISHED}\n{rows}");
        refused("time,x\n", "line 1: expected the columns TIMESTAMP,ContextTokens,GeneratedTokens, or offset_ms");
        refused(&offsets("5,1,1\n4,1,1\n"), "line 3: expected times that do not fall from line to line, got `4`");
        refused(&offsets("-5,1,1\n"), "line 2: expected an offset_ms from 0 to 2000000000, got `-5`");
        refused(&offsets("5,-1,1\n"), "line 2: expected tokens of the context, a whole number, got `-1`");
        refused(&published("then,1,1\n"), "line 2: expected a time as in 2023-11-16 18:15:46.6805900, got `then`");
        let back = "2023-11-16 00:00:01,1,1\n2023-11-16 00:00:00,1,1\n";
        refused(&published(back), "line 3: expected times that do not fall");
        let late = "2023-11-16 00:00:01,1,1\n2033-11-16 00:00:00,1,1\n";
        refused(&published(late), "line 3: expected at most 2000000 s (TRACE_S_MAX) after the first line");
    }
}
