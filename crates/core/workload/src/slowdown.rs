//! GPUs that are slow during a part of a run.

use symphony_types::{GpuId, Nanos, Time};

use crate::check::Check;
use crate::error::ScenarioError;
use crate::limits::DURATION_S_MAX;
use crate::text::SlowText;

/// Slowdowns of one scenario.
pub const SLOWDOWNS_MAX: usize = 100_000;
/// The largest slowdown factor; its inverse is the largest speed-up.
const FACTOR_MAX: f64 = 100.0;

/// A GPU is slower by a factor for some time: applies to batches that start within it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown {
    /// The GPU that becomes slower, or faster.
    pub gpu: GpuId,
    /// The factor, relative to its profile.
    pub factor: f64,
    /// Start.
    pub at: Time,
    /// End; [`Time::NEVER`] if it stays slow.
    pub until: Time,
}

impl Slowdown {
    /// The slowdowns by GPU, in the order of time.
    pub(crate) fn check(check: &Check<'_>, texts: &[SlowText], gpus: u32) -> Result<Vec<Self>, ScenarioError> {
        if texts.len() > SLOWDOWNS_MAX {
            return check.refuse("slow", &format!("at most {SLOWDOWNS_MAX} entries"), texts.len());
        }
        let mut slow = Vec::with_capacity(texts.len());
        for (position, text) in texts.iter().enumerate() {
            let key = |name: &str| format!("slow.{position}.{name}");
            if text.gpu >= gpus {
                return check.refuse(key("gpu"), &format!("a GPU from 0 to {}", gpus - 1), text.gpu);
            }
            let factor = check.number(&key("factor"), text.factor, 1.0 / FACTOR_MAX, FACTOR_MAX)?;
            let at_s = check.number(&key("at_s"), text.at_s, 0.0, 2.0 * DURATION_S_MAX)?;
            let at = Time::ZERO + Nanos::from_secs_f64(at_s);
            let until = match text.for_s {
                None => Time::NEVER,
                Some(for_s) => at + Nanos::from_secs_f64(check.positive(&key("for_s"), for_s, 2.0 * DURATION_S_MAX)?),
            };
            slow.push(Self { gpu: GpuId::new(text.gpu), factor, at, until });
        }
        slow.sort_by_key(|slow| (slow.gpu, slow.at));
        if let Some(pair) = slow.windows(2).find(|pair| pair[0].gpu == pair[1].gpu && pair[1].at < pair[0].until) {
            let got = format!("another one of GPU {} at {}", pair[1].gpu.get(), pair[1].at);
            return check.refuse("slow", "slow times of one GPU that do not overlap", got);
        }
        Ok(slow)
    }
}
