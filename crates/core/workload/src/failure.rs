//! GPUs that fail during a run.

use symphony_types::{GpuId, Time};

use crate::check::Check;
use crate::error::ScenarioError;
use crate::limits::DURATION_S_MAX;
use crate::text::FailureText;

/// Failures of one scenario.
pub const FAILURES_MAX: usize = 100_000;

/// A GPU is down for some time: its running batch is lost, and its waiting requests come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The GPU that fails.
    pub gpu: GpuId,
    /// Start.
    pub at: Time,
    /// End; [`Time::NEVER`] if it stays down.
    pub until: Time,
}

impl Failure {
    /// The failures in the order of time.
    pub(crate) fn check(check: &Check<'_>, texts: &[FailureText], gpus: u32) -> Result<Vec<Self>, ScenarioError> {
        if texts.len() > FAILURES_MAX {
            return check.refuse("failure", &format!("at most {FAILURES_MAX} entries"), texts.len());
        }
        let mut failures = Vec::with_capacity(texts.len());
        for (position, text) in texts.iter().enumerate() {
            let key = |name: &str| format!("failure.{position}.{name}");
            if text.gpu >= gpus {
                return check.refuse(key("gpu"), &format!("a GPU from 0 to {}", gpus - 1), text.gpu);
            }
            let at_s = check.number(&key("at_s"), text.at_s, 0.0, 2.0 * DURATION_S_MAX)?;
            let at = Time::ZERO + symphony_types::Nanos::from_secs_f64(at_s);
            let until = match text.for_s {
                None => Time::NEVER,
                Some(for_s) => {
                    let for_s = check.positive(&key("for_s"), for_s, 2.0 * DURATION_S_MAX)?;
                    at + symphony_types::Nanos::from_secs_f64(for_s)
                }
            };
            failures.push(Self { gpu: GpuId::new(text.gpu), at, until });
        }
        failures.sort_by_key(|failure| (failure.gpu, failure.at));
        if let Some(pair) = failures.windows(2).find(|pair| pair[0].gpu == pair[1].gpu && pair[1].at <= pair[0].until) {
            let got = format!("another one of GPU {} at {}", pair[1].gpu.get(), pair[1].at);
            return check.refuse("failure", "failures of one GPU that do not overlap", got);
        }
        failures.sort_by_key(|failure| (failure.at, failure.gpu));
        Ok(failures)
    }
}
