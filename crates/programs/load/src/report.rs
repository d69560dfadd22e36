//! The results of a run, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::load_plan::{LagLimits, LoadPlan};
use crate::tally::Tally;

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// With the same plan, repeats the run.
    pub seed: u64,
    /// Length of the counted time in seconds.
    pub duration_s: f64,
    /// Whether the numbers are valid.
    pub verdict: Verdict,
    /// How late the generator itself was.
    pub lag: LagReport,
    /// Each model.
    pub models: Vec<ModelReport>,
    /// All models together.
    pub total: ModelReport,
    /// The tallies behind the reports, in the order of the models; for gaps in windows, and to add up runs.
    #[serde(skip)]
    pub tallies: Vec<Tally>,
}

/// Whether the numbers are valid.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Verdict {
    /// The load was sent as planned.
    Passed,
    /// The generator was later than the plan allows: the numbers measure the generator, not the server.
    Lagged {
        /// 99th percentile of its lag in milliseconds.
        p99_ms: f64,
        /// The allowed lag.
        p99_allowed_ms: f64,
        /// Its largest lag in milliseconds.
        max_ms: f64,
        /// The allowed lag.
        max_allowed_ms: f64,
    },
    /// Too many requests were in flight, so further ones were withheld: the loop was no longer open.
    Overran {
        /// Requests withheld.
        withheld: u64,
    },
}

/// How late the generator itself was, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LagReport {
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Largest.
    pub max_ms: f64,
}

/// One model, or all of them.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// The model; `total` for all.
    pub name: String,
    /// Requests due in the counted time.
    pub offered: u64,
    /// Offered requests per second.
    pub offered_rps: f64,
    /// Requests sent, warm-up included.
    pub sent: u64,
    /// Answered in time.
    pub good: u64,
    /// Good answers per second.
    pub good_rps: f64,
    /// Answered late.
    pub late: u64,
    /// Refused before they were taken in, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Failed, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Sent, warm-up included, and never answered.
    pub lost: u64,
    /// Answers to requests that had been answered.
    pub answered_twice: u64,
    /// Answers that belong to another request.
    pub foreign: u64,
    /// Share of offered requests that were not good.
    pub bad_rate: f64,
    /// Share of judged answers, or of their parts, that were right; none if nothing was judged.
    pub accuracy: Option<f64>,
    /// Median latency of answers, good and late, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Largest.
    pub max_ms: f64,
    /// Mean items of the batch that an answer came from; none if the server does not report it.
    pub mean_batch: Option<f64>,
    /// Bytes of outputs.
    pub bytes: u64,
    /// The longest time without a good answer, in milliseconds; none if there were too many answers to keep.
    pub longest_gap_ms: Option<f64>,
    /// When that began, in seconds since the start of the run.
    pub longest_gap_at_s: Option<f64>,
    /// Good answers per second of the run, warm-up included as zeros.
    pub good_per_second: Vec<u64>,
}

impl Verdict {
    pub(super) fn of(lag_us: &Histogram<u64>, allowed: LagLimits, withheld: u64) -> Self {
        let lag = LagReport::of(lag_us);
        let millis = |limit: Duration| limit.as_secs_f64() * 1e3;
        if withheld > 0 {
            return Self::Overran { withheld };
        }
        if lag.p99_ms > millis(allowed.p99) || lag.max_ms > millis(allowed.max) {
            return Self::Lagged {
                p99_ms: lag.p99_ms,
                p99_allowed_ms: millis(allowed.p99),
                max_ms: lag.max_ms,
                max_allowed_ms: millis(allowed.max),
            };
        }
        Self::Passed
    }

    /// Whether the load was sent as planned.
    #[must_use]
    pub fn passed(&self) -> bool {
        *self == Self::Passed
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("the load was sent as planned"),
            Self::Lagged { p99_ms, p99_allowed_ms, max_ms, max_allowed_ms } => write!(
                f,
                "the generator lagged: p99 {p99_ms:.1} ms (allowed {p99_allowed_ms:.1}), max {max_ms:.1} ms (allowed \
                 {max_allowed_ms:.1}); the numbers measure it and not the server: lower the rate, or give it a core"
            ),
            Self::Overran { withheld } => write!(
                f,
                "{withheld} requests were withheld because {} were in flight; the server answers too slowly for this \
                 rate: lower the rate, or give it a core",
                super::load_plan::IN_FLIGHT_MAX
            ),
        }
    }
}

impl LagReport {
    fn of(lag_us: &Histogram<u64>) -> Self {
        let [p50_ms, p99_ms, max_ms] = quantiles_ms(lag_us);
        Self { p50_ms, p99_ms, max_ms }
    }
}

/// Median, 99th percentile and maximum in milliseconds.
fn quantiles_ms(micros: &Histogram<u64>) -> [f64; 3] {
    [micros.value_at_quantile(0.5), micros.value_at_quantile(0.99), micros.max()].map(|us| us as f64 / 1e3)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl ModelReport {
    fn new(name: &str, tally: &Tally, plan: &LoadPlan, until: Duration) -> Self {
        let seconds = until.saturating_sub(plan.warmup).as_secs_f64();
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let [p50_ms, p99_ms, max_ms] = quantiles_ms(&tally.latency_us);
        let gap = tally.longest_gap(plan.warmup.min(until), until);
        let reasons = |map: &BTreeMap<std::borrow::Cow<'static, str>, u64>| {
            map.iter().map(|(reason, times)| (reason.to_string(), *times)).collect()
        };
        Self {
            name: name.to_owned(),
            offered: tally.offered,
            offered_rps: per_second(tally.offered),
            sent: tally.sent,
            good: tally.good,
            good_rps: per_second(tally.good),
            late: tally.late,
            refused: reasons(&tally.refused),
            dropped: reasons(&tally.dropped),
            failed: reasons(&tally.failed),
            lost: tally.lost,
            answered_twice: tally.answered_twice,
            foreign: tally.foreign,
            bad_rate: share(tally.offered.saturating_sub(tally.good), tally.offered).unwrap_or(0.0),
            accuracy: share(tally.right, tally.judged),
            p50_ms,
            p99_ms,
            max_ms,
            mean_batch: share(tally.batch_items, tally.batches_reported),
            bytes: tally.bytes,
            longest_gap_ms: gap.map(|gap| gap.length.as_secs_f64() * 1e3),
            longest_gap_at_s: gap.map(|gap| gap.begin.as_secs_f64()),
            good_per_second: tally.good_per_second(until.as_secs_f64().ceil() as usize),
        }
    }
}

impl Report {
    pub(super) fn new(
        plan: &LoadPlan,
        tallies: Vec<Tally>,
        strays: u64,
        until: Duration,
        verdict: impl FnOnce(&Histogram<u64>) -> Verdict,
    ) -> Self {
        let mut all = Tally::new();
        for tally in &tallies {
            all.merge(tally);
        }
        // Which requests they answer is unknown, only that some have two answers.
        all.answered_twice += strays;
        let models = plan.models.iter().zip(&tallies);
        Self {
            seed: plan.seed,
            duration_s: until.saturating_sub(plan.warmup).as_secs_f64(),
            verdict: verdict(&all.lag_us),
            lag: LagReport::of(&all.lag_us),
            models: models.map(|(load, tally)| ModelReport::new(&load.model, tally, plan, until)).collect(),
            total: ModelReport::new("total", &all, plan, until),
            tallies,
        }
    }

    /// A table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        let mut line = |cells: [&str; 13]| {
            let name = cells[0];
            let rest: String = cells[1..].iter().map(|cell| format!(" {cell:>9}")).collect();
            out.push_str(format!("{name:<20}{rest}").trim_end());
            out.push('\n');
        };
        line([
            "model",
            "offered/s",
            "good/s",
            "bad %",
            "late",
            "refused",
            "dropped",
            "failed",
            "lost",
            "p50 ms",
            "p99 ms",
            "batch",
            "right %",
        ]);
        let total = (self.models.len() > 1).then_some(&self.total);
        for model in self.models.iter().chain(total) {
            let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
            line([
                &model.name,
                &format!("{:.1}", model.offered_rps),
                &format!("{:.1}", model.good_rps),
                &format!("{:.2}", 100.0 * model.bad_rate),
                &model.late.to_string(),
                &model.refused.values().sum::<u64>().to_string(),
                &model.dropped.values().sum::<u64>().to_string(),
                &model.failed.values().sum::<u64>().to_string(),
                &model.lost.to_string(),
                &format!("{:.1}", model.p50_ms),
                &format!("{:.1}", model.p99_ms),
                &optional(model.mean_batch),
                &optional(model.accuracy.map(|share| 100.0 * share)),
            ]);
        }
        let ModelReport { refused, dropped, failed, .. } = &self.total;
        for (what, reasons) in [("refused", refused), ("dropped", dropped), ("failed", failed)] {
            for (reason, times) in reasons {
                let _ = writeln!(out, "{what}: {reason}: {times}");
            }
        }
        if self.total.foreign + self.total.answered_twice > 0 {
            let (foreign, twice) = (self.total.foreign, self.total.answered_twice);
            let _ =
                writeln!(out, "WRONG: {foreign} answers belonged to other requests, {twice} requests had two answers");
        }
        let LagReport { p50_ms, p99_ms, max_ms } = self.lag;
        let _ = writeln!(out, "generator lag: p50 {p50_ms:.2} ms, p99 {p99_ms:.2} ms, max {max_ms:.2} ms");
        // A run that was not sent as planned is an error of its own.
        if self.verdict.passed() {
            let _ = writeln!(out, "{}", self.verdict);
        }
        out
    }
}
