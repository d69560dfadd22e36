//! What was measured.

use std::fmt;

use serde::Serialize;

/// As many requests as go through.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateRow {
    /// How the two are connected.
    pub way: &'static str,
    /// Most requests in one frame.
    pub frame_max: usize,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests in one frame, on average.
    pub requests_per_frame: f64,
    /// Requests per second of real time.
    pub requests_per_second: f64,
    /// Processor time of the frontend's process for one request, in nanoseconds.
    pub frontend_ns: f64,
    /// Processor time of the scheduler's process for one request, in nanoseconds.
    pub scheduler_ns: f64,
}

/// How long one request takes while hardly any others do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyRow {
    /// How the two are connected.
    pub way: &'static str,
    /// Requests that counted.
    pub requests: u64,
    /// Half of them were faster; microseconds, as all of these.
    pub p50_us: f64,
    /// 99 of 100 were.
    pub p99_us: f64,
    /// 9999 of 10 000 were.
    pub p9999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Both tables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The measured rates, one row for each run.
    pub rates: Vec<RateRow>,
    /// Latencies one way.
    pub latencies: Vec<LatencyRow>,
}

impl RateRow {
    /// Requests per second that a core of its own carries: bounded by the process that needs more of it.
    #[must_use]
    pub fn per_core(&self) -> f64 {
        1e9 / self.frontend_ns.max(self.scheduler_ns)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "requests from one process to another, as many as go through")?;
        writeln!(
            f,
            "{:14}{:>14}{:>14}{:>16}{:>18}{:>18}{:>18}",
            "", "frames up to", "mean frame", "requests/s", "frontend ns each", "scheduler ns each", "req/s of a core"
        )?;
        for row in &self.rates {
            writeln!(
                f,
                "{:14}{:>14}{:>14.1}{:>16.0}{:>18.0}{:>18.0}{:>18.0}",
                row.way,
                row.frame_max,
                row.requests_per_frame,
                row.requests_per_second,
                row.frontend_ns,
                row.scheduler_ns,
                row.per_core()
            )?;
        }
        writeln!(f, "one request at a time, one way; µs")?;
        writeln!(f, "{:14}{:>12}{:>10}{:>10}{:>10}{:>10}", "", "requests", "p50", "p99", "p99.99", "max")?;
        for row in &self.latencies {
            let LatencyRow { way, requests, p50_us, p99_us, p9999_us, max_us } = row;
            writeln!(f, "{way:14}{requests:>12}{p50_us:>10.1}{p99_us:>10.1}{p9999_us:>10.1}{max_us:>10.1}")?;
        }
        Ok(())
    }
}
