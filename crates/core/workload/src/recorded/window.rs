//! The part of a trace that is taken, and how fast it is played.

use symphony_types::Nanos;

use super::{RecordedArrivals, TRACE_S_MAX};

/// A part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its beginning, since the start of the trace.
    pub from: Nanos,
    /// Its length; to the end of the trace if `None`.
    pub span: Option<Nanos>,
}

impl Window {
    /// The whole trace.
    pub const ALL: Self = Self { from: Nanos::ZERO, span: None };

    /// The first moment after it.
    fn end(self) -> Nanos {
        self.span.map_or(Nanos::MAX, |span| Nanos::new(self.from.get().saturating_add(span.get())))
    }

    /// Whether it holds this moment.
    #[must_use]
    pub fn holds(self, at: Nanos) -> bool {
        at >= self.from && at < self.end()
    }

    /// Whether it holds any moment of a span.
    pub(super) fn meets(self, from: Nanos, span: Nanos) -> bool {
        from < self.end() && from.get().saturating_add(span.get()) > self.from.get()
    }
}

impl RecordedArrivals {
    /// Keeps the arrivals of `window`, which then begins at zero, and plays them `speed` times as fast: at 2 the trace
    /// takes half of its time.
    ///
    /// # Errors
    /// If the speed is not a positive number, nothing is left, or more than [`TRACE_S_MAX`] would be.
    pub fn cut(&mut self, window: Window, speed: f64) -> Result<(), String> {
        if !(speed.is_finite() && speed > 0.0) {
            return Err(format!("expected a speed above 0, got {speed}"));
        }
        self.rows.retain(|row| window.holds(row.at));
        if self.rows.is_empty() {
            let from = window.from.as_secs_f64();
            let part = window.span.map_or_else(String::new, |span| format!(" for {} s", span.as_secs_f64()));
            return Err(format!("no arrivals are left; expected some in the part of the trace from {from} s on{part}"));
        }
        for row in &mut self.rows {
            let since = row.at.saturating_sub(window.from);
            // At its own speed every nanosecond stays what it was.
            row.at = if speed == 1.0 { since } else { Nanos::from_secs_f64(since.as_secs_f64() / speed) };
        }
        self.sort();
        let lasts_s = self.rows.last().map_or(0.0, |row| row.at.as_secs_f64());
        if lasts_s > TRACE_S_MAX {
            return Err(format!(
                "expected arrivals within {TRACE_S_MAX} s (TRACE_S_MAX), got one at {lasts_s} s; play them faster, or \
                 take a part of the trace"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_begins_at_zero_and_is_played_faster() {
        let mut read = RecordedArrivals::from_csv("time_s\n1\n2\n3\n4\n").unwrap();
        let window = Window { from: Nanos::from_millis(2000), span: Some(Nanos::from_millis(2000)) };
        read.cut(window, 2.0).unwrap();
        assert_eq!(read.rows.iter().map(|row| row.at.as_secs_f64()).collect::<Vec<_>>(), [0.0, 0.5]);
    }

    #[test]
    fn senseless_speeds_empty_windows_and_what_becomes_too_long_are_refused() {
        let mut read = RecordedArrivals::from_csv("time_s\n1\n").unwrap();
        for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(read.clone().cut(Window::ALL, speed).unwrap_err().contains("a speed above 0"), "{speed}");
        }
        let late = Window { from: Nanos::from_millis(5000), span: None };
        let error = read.clone().cut(late, 1.0).unwrap_err();
        assert!(error.contains("no arrivals are left") && error.ends_with("from 5 s on"), "{error}");
        let error = read.cut(Window::ALL, 1.0 / 4_194_304.0).unwrap_err();
        assert!(error.contains("within 2000000 s (TRACE_S_MAX), got one at 4194304 s"), "{error}");
    }
}
