//! The plan of a run: what to send, and how late the generator itself may be.

use std::sync::Arc;
use std::time::Duration;

use crate::arrivals::{ArrivalKind, Arrivals, DueRequest};
use crate::inputs::InputSet;

/// The most models in one run.
pub const MODELS_MAX: usize = 1024;
/// The highest rate of one model in requests per second: one process cannot pace more.
pub const RATE_RPS_MAX: f64 = 1e6;
/// The most requests in flight. Otherwise an open loop over a dead server would fill memory: at 20 000 requests per
/// second this is more than three seconds of them. A run that reaches it fails.
pub const IN_FLIGHT_MAX: usize = 1 << 16;
/// The longest run.
const DURATION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The seed of everything random.
    pub seed: u64,
    /// Time before counting begins; its requests are sent all the same.
    pub warmup: Duration,
    /// Time that counts: requests due in [warmup, warmup + duration).
    pub duration: Duration,
    /// How long to wait for answers after the last request; requests without an answer by then are lost.
    pub grace: Duration,
    /// How late the generator itself may be.
    pub lag: LagLimits,
    /// What is sent to each model.
    pub models: Vec<ModelLoad>,
}

/// One model's share of a run.
#[derive(Clone, Debug)]
pub struct ModelLoad {
    /// The name under which clients call it.
    pub model: Arc<str>,
    /// Requests per second.
    pub rate_rps: f64,
    /// The process that makes arrivals.
    pub arrival: ArrivalKind,
    /// Recorded requests in the order of time, which are sent in place of drawn ones: rate and process do not count
    /// then.
    pub recorded: Option<Arc<[DueRequest]>>,
    /// An answer is good if it comes within this time after its request was due, by this process's clock.
    pub slo: Duration,
    /// Allowance on top of the SLO for the network both ways and this process: the server counts the SLO from the first
    /// byte it reads. 0 is strict.
    pub slack: Duration,
    /// The deadline to send to the server; without one, the model's own SLO holds.
    pub timeout: Option<Duration>,
    /// What is sent.
    pub inputs: Arc<dyn InputSet>,
}

impl ModelLoad {
    /// The own time to the deadline of request `n`, if the recording has one. Frontends cut what is longer than the
    /// SLO.
    fn recorded_slo(&self, n: u64) -> Option<Duration> {
        Some(self.recorded.as_ref()?.get(n as usize)?.slo?.min(self.slo))
    }

    /// The time within which an answer to request `n` is good, without the slack.
    pub(super) fn slo_of(&self, n: u64) -> Duration {
        self.recorded_slo(n).unwrap_or(self.slo)
    }

    /// The deadline to send with request `n`.
    pub(super) fn timeout_of(&self, n: u64) -> Option<Duration> {
        self.recorded_slo(n).or(self.timeout)
    }
}

/// How late the generator itself may be: from the due time of a request to its hand-over to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LagLimits {
    /// For 99 % of requests.
    pub p99: Duration,
    /// For every request.
    pub max: Duration,
}

impl Default for LagLimits {
    /// 5 ms and 100 ms: a tenth of the SLOs for which batches are deferred, and a pause of a shared machine.
    fn default() -> Self {
        Self { p99: Duration::from_millis(5), max: Duration::from_millis(100) }
    }
}

/// Why a plan is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: expected {expected}")]
pub struct PlanError {
    /// Key of the plan that is wrong.
    pub key: String,
    /// What it has, as text.
    pub value: String,
    /// The expected value.
    pub expected: &'static str,
}

impl LoadPlan {
    /// One stream of arrivals per model.
    ///
    /// # Errors
    /// If a number is out of range.
    pub(super) fn arrivals(&self) -> Result<Vec<Arrivals>, PlanError> {
        let refuse = |key: String, value: String, expected| PlanError { key, value, expected };
        if !(1..=MODELS_MAX).contains(&self.models.len()) {
            return Err(refuse("models".into(), self.models.len().to_string(), "1 to 1024 models"));
        }
        for (key, value) in [("duration", self.duration), ("warmup", self.warmup), ("grace", self.grace)] {
            if value > DURATION_MAX || (key == "duration" && value.is_zero()) {
                return Err(refuse(key.into(), format!("{value:?}"), "a duration up to 7 days, not 0"));
            }
        }
        let stream = |(index, load): (usize, &ModelLoad)| {
            if let Some(requests) = &load.recorded {
                return Ok(Arrivals::recorded(Arc::clone(requests)));
            }
            if load.rate_rps > RATE_RPS_MAX {
                let key = format!("rate of {}", load.model);
                return Err(refuse(key, load.rate_rps.to_string(), "at most 1000000 requests per second"));
            }
            Arrivals::new(load.arrival, load.rate_rps, self.seed, index as u64).ok_or_else(|| PlanError {
                key: format!("rate and arrival of {}", load.model),
                value: format!("{}, {:?}", load.rate_rps, load.arrival),
                expected: "positive, finite numbers",
            })
        };
        self.models.iter().enumerate().map(stream).collect()
    }
}
