//! What a stress run found.

use std::fmt;

use serde::Serialize;
use symphony_scheduler_runtime::WorkerKind;
use symphony_telemetry::DurationCounts;
use symphony_types::Nanos;

use super::StressPlan;
use super::run::Snapshot;

/// The figures of one run. Costs are the time that threads were busy over what they did, so they do not depend on how
/// much of its time a thread spins.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StressReport {
    /// As planned.
    pub models: u32,
    /// As planned.
    pub gpus: u32,
    /// As planned.
    pub model_threads: u32,
    /// As planned.
    pub rate_rps: f64,
    /// Requests sent.
    pub sent: u64,
    /// Requests per second that the scheduler took in.
    pub taken_in_rps: f64,
    /// Requests per second that each model thread took in.
    pub taken_in_rps_per_model_thread: f64,
    /// Requests dropped.
    pub dropped: u64,
    /// Requests whose batch ended within their deadline.
    pub met: u64,
    /// Requests whose batch ended after it.
    pub late_requests: u64,
    /// Plans that did not follow their predecessor on their GPU, in the warm-up too; above 0 is a bug.
    pub out_of_sequence: u64,
    /// Plans that arrived at their GPU after their start.
    pub late_plans: u64,
    /// What was not met over all: dropped, late, and never heard of again. GPUs that hang meet nothing: there only what
    /// was dropped or late is bad.
    pub bad_rate: f64,
    /// Items of a batch, on average.
    pub mean_batch: f64,
    /// Candidates ranked per second.
    pub offers_per_s: f64,
    /// GPUs granted per second.
    pub grants_per_s: f64,
    /// Busy time of the model threads per request.
    pub model_ns_per_request: f64,
    /// Busy time of the rank thread per request.
    pub rank_ns_per_request: f64,
    /// Busy time of the rank thread per candidate ranked.
    pub rank_ns_per_offer: f64,
    /// Busy time of the rank thread per grant.
    pub rank_ns_per_grant: f64,
    /// Share of their time that the model threads were busy.
    pub model_busy: f64,
    /// Share of its time that the rank thread was busy.
    pub rank_busy: f64,
    /// Turns of model threads.
    pub model_turn: Quantiles,
    /// Turns of the rank thread.
    pub rank_turn: Quantiles,
    /// How late timers of the rank thread rang.
    pub timer_late: Quantiles,
    /// From when a frame's oldest request was due until the frame was taken in.
    pub lag: Quantiles,
    /// Memory of the process at the end, the generator's included.
    pub resident_mb: Option<f64>,
    /// Violations of S1 and S2; above 0 is a bug.
    pub violations: u64,
    /// Why the run failed, if the scheduler did not keep up with its schedule.
    pub lagged: Option<String>,
    /// Why the run failed otherwise.
    pub failed: Option<String>,
}

/// Of a histogram, in microseconds: upper ends of its buckets.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Quantiles {
    /// Half are below.
    pub p50_us: f64,
    /// 99 of 100 are below.
    pub p99_us: f64,
    /// 999 of 1000 are below.
    pub p999_us: f64,
    /// The longest, warm-up included.
    pub max_us: f64,
}

impl Quantiles {
    fn of(counts: &DurationCounts) -> Self {
        let us = |nanos: Nanos| nanos.get() as f64 / 1e3;
        let at = |quantile| us(counts.quantile(quantile));
        Self { p50_us: at(0.5), p99_us: at(0.99), p999_us: at(0.999), max_us: us(counts.max()) }
    }
}

impl StressReport {
    pub(crate) fn new(plan: &StressPlan) -> Self {
        Self {
            models: plan.models,
            gpus: plan.gpus,
            model_threads: plan.model_threads,
            rate_rps: plan.rate_rps,
            ..Self::default()
        }
    }

    /// Whether the scheduler kept up, and did its work.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.lagged.is_none() && self.failed.is_none()
    }

    pub(crate) fn conclude(
        &mut self,
        plan: &StressPlan,
        before: &Snapshot,
        after: &Snapshot,
        lasted: Nanos,
        lags: &DurationCounts,
    ) {
        let count = |snapshot: &Snapshot, name: &str| {
            snapshot.counters.iter().find(|(counter, _)| *counter == name).map_or(0, |(_, value)| *value)
        };
        let grew = |name: &str| (count(after, name) - count(before, name)) as f64;
        let of = |snapshot: &Snapshot, kind: WorkerKind| snapshot.durations.iter().find(|d| d.worker == kind).copied();
        let turns = |kind| match (of(before, kind), of(after, kind)) {
            (Some(before), Some(after)) => after.turns.since(&before.turns),
            _ => DurationCounts::default(),
        };
        let timers = match (of(before, WorkerKind::Rank), of(after, WorkerKind::Rank)) {
            (Some(before), Some(after)) => after.timers_late.since(&before.timers_late),
            _ => DurationCounts::default(),
        };
        let seconds = lasted.as_secs_f64().max(1e-9);
        let per = |time: Nanos, number: f64| time.get() as f64 / number.max(1.0);
        let (model, rank) = (turns(WorkerKind::Model), turns(WorkerKind::Rank));
        let threads = f64::from(plan.model_threads.max(1));
        self.taken_in_rps = grew("requests") / seconds;
        self.taken_in_rps_per_model_thread = self.taken_in_rps / threads;
        let bad = if plan.hang { self.dropped + self.late_requests } else { self.sent.saturating_sub(self.met) };
        self.bad_rate = bad as f64 / (self.sent as f64).max(1.0);
        self.mean_batch = grew("planned_requests") / grew("plans").max(1.0);
        self.offers_per_s = grew("offers") / seconds;
        self.grants_per_s = grew("grants") / seconds;
        self.model_ns_per_request = per(model.sum(), grew("requests"));
        self.rank_ns_per_request = per(rank.sum(), grew("requests"));
        self.rank_ns_per_offer = per(rank.sum(), grew("offers"));
        self.rank_ns_per_grant = per(rank.sum(), grew("grants"));
        self.model_busy = model.sum().as_secs_f64() / seconds / threads;
        self.rank_busy = rank.sum().as_secs_f64() / seconds;
        (self.model_turn, self.rank_turn) = (Quantiles::of(&model), Quantiles::of(&rank));
        (self.timer_late, self.lag) = (Quantiles::of(&timers), Quantiles::of(lags));
        self.violations = count(after, "violations");
        if self.violations > 0 {
            self.failed = Some(format!("{} plans violated S1 or S2", self.violations));
        } else if self.out_of_sequence > 0 {
            self.failed = Some(format!("{} plans were out of sequence", self.out_of_sequence));
        } else if self.bad_rate > plan.bad_max {
            self.failed = Some(format!("{:.2} % of the requests were bad", 100.0 * self.bad_rate));
        }
    }
}

impl fmt::Display for StressReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantiles = |q: &Quantiles| {
            format!("p50 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1} us", q.p50_us, q.p99_us, q.p999_us, q.max_us)
        };
        writeln!(
            f,
            "{} models, {} GPUs, {} model threads, {:.0} requests/s planned",
            self.models, self.gpus, self.model_threads, self.rate_rps
        )?;
        writeln!(
            f,
            "taken in:  {:.0} requests/s, {:.0} per model thread; bad {:.3} % ({} dropped, {} late); mean batch {:.1}",
            self.taken_in_rps,
            self.taken_in_rps_per_model_thread,
            100.0 * self.bad_rate,
            self.dropped,
            self.late_requests,
            self.mean_batch
        )?;
        writeln!(
            f,
            "ranked:    {:.0} candidates/s, {:.0} grants/s; {} plans after their start",
            self.offers_per_s, self.grants_per_s, self.late_plans
        )?;
        writeln!(
            f,
            "cost:      {:.0} ns per request on the model thread, {:.0} on the rank thread; {:.0} ns per candidate, {:.0} per grant",
            self.model_ns_per_request, self.rank_ns_per_request, self.rank_ns_per_offer, self.rank_ns_per_grant
        )?;
        writeln!(
            f,
            "busy:      model threads {:.0} %, rank thread {:.0} %",
            100.0 * self.model_busy,
            100.0 * self.rank_busy
        )?;
        writeln!(f, "turns:     model {}", quantiles(&self.model_turn))?;
        writeln!(f, "           rank  {}", quantiles(&self.rank_turn))?;
        writeln!(f, "timers:    {} late", quantiles(&self.timer_late))?;
        writeln!(f, "lag:       {}", quantiles(&self.lag))?;
        if let Some(resident_mb) = self.resident_mb {
            writeln!(f, "memory:    {resident_mb:.0} MB resident, the generator's included")?;
        }
        match self.lagged.as_ref().or(self.failed.as_ref()) {
            None => write!(f, "kept its schedule"),
            Some(why) => write!(f, "FAILED: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use symphony_scheduler::Delays;

    use super::*;

    fn concluded(report: StressReport, hang: bool) -> StressReport {
        let plan = StressPlan {
            models: 1,
            gpus: 1,
            model_threads: 1,
            rate_rps: 100.0,
            duration: Duration::from_secs(1),
            warmup: Duration::ZERO,
            alpha_ms: 1.0,
            beta_ms: 1.0,
            batch_max: 1,
            slo: Nanos::from_millis(100),
            delays: Delays::default(),
            frame: Nanos::ZERO,
            lag_max: Nanos::MAX,
            bad_max: 0.1,
            hang,
            no_recorder: true,
            spin: false,
            first_core: None,
            seed: 1,
        };
        let nothing = Snapshot { counters: Vec::new(), durations: Vec::new() };
        let mut report = report;
        report.conclude(&plan, &nothing, &nothing, Nanos::from_millis(1_000), &DurationCounts::default());
        report
    }

    #[test]
    fn requests_never_heard_of_again_and_gaps_in_the_sequence_fail_the_run() {
        let good = StressReport { sent: 100, met: 95, ..StressReport::default() };
        assert!(concluded(good.clone(), false).passed());
        let unheard = concluded(StressReport { met: 40, ..good.clone() }, false);
        assert!(!unheard.passed() && (unheard.bad_rate - 0.6).abs() < 1e-9, "{unheard}");
        assert!(concluded(StressReport { met: 0, ..good.clone() }, true).passed(), "GPUs that hang meet nothing");
        assert!(!concluded(StressReport { out_of_sequence: 1, ..good }, false).passed());
    }
}
