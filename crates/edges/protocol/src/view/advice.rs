//! Advice on numbers of GPUs, slow GPUs, and drifting profiles.

use std::fmt;

use symphony_types::{GpuId, ModelId};

use crate::control as pb;

/// How many GPUs a sub-cluster should have.
#[derive(Clone, Debug, PartialEq)]
pub struct AdviceView {
    /// Why, as a stable label.
    pub reason: String,
    /// Share of the requests that are given up.
    pub bad_rate: f64,
    /// Share of the GPU time that the demand leaves; as measured where the demand is not known.
    pub idle_fraction: f64,
    /// GPUs that ran batches, in the mean between the lead's last two reports; those that are set aside left out.
    pub busy_gpus: f64,
    /// GPUs that deferred batches of all that was asked would have kept busy in that time; more than there are under
    /// overload. None if the lead does not measure it.
    pub demand_gpus: Option<f64>,
    /// The advice for each GPU kind.
    pub kinds: Vec<KindAdviceView>,
    /// GPUs that are set aside: slower than their peers, failing where these do not, or lost.
    pub slow: Vec<SlowGpuView>,
    /// Models whose batches take longer, or less long, than their profiles say.
    pub drifts: Vec<DriftView>,
    /// The choice of kinds, where there is a budget.
    pub fleet: Option<FleetAdviceView>,
}

/// Which kinds are best within the budget.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetAdviceView {
    /// The most that the fleet may cost per hour, in the unit of the prices.
    pub budget_per_hour: f64,
    /// What was chosen; none before enough was measured.
    pub chosen: Option<FleetChoiceView>,
    /// Why the last choice was none; empty if it was one.
    pub refused: String,
}

/// A choice of GPU kinds, and what it was chosen for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetChoiceView {
    /// What it costs per hour.
    pub price_per_hour: f64,
    /// No more requests per second can be answered in time by it.
    pub bound_rps: f64,
    /// What was asked of the bound.
    pub needed_rps: f64,
    /// Requests per second that came when it was chosen.
    pub rate_rps: f64,
}

impl fmt::Display for FleetAdviceView {
    /// What it costs, of what, and why it is this one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(FleetChoiceView { price_per_hour, bound_rps, needed_rps, rate_rps }) = self.chosen {
            write!(f, "{price_per_hour:.2} of {:.2} per hour for {bound_rps:.0} r/s at most", self.budget_per_hour)?;
            // Equal but for rounding.
            let judged = if bound_rps < needed_rps * (1.0 - 1e-9) { "not enough" } else { "enough" };
            write!(f, ", {judged} for {rate_rps:.0} r/s by the need of {needed_rps:.0}")?;
        } else if self.refused.is_empty() {
            f.write_str("too few requests to choose a fleet by")?;
        }
        if !self.refused.is_empty() {
            let separator = if self.chosen.is_some() { "; " } else { "" };
            write!(f, "{separator}no fleet is chosen: {}", self.refused)?;
        }
        Ok(())
    }
}

/// How many GPUs of a kind there should be.
#[derive(Clone, Debug, PartialEq)]
pub struct KindAdviceView {
    /// Name of the kind.
    pub kind: String,
    /// The advised number.
    pub target: u32,
    /// The GPUs that may go now, the highest ids.
    pub release: Vec<GpuId>,
    /// What one costs, where there is a budget and it has a price.
    pub price_per_hour: Option<f64>,
}

/// A GPU that gets no batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowGpuView {
    /// The GPU that is set aside.
    pub gpu: GpuId,
    /// Duration of its batches relative to the expected one, without failed batches.
    pub slowdown: f64,
    /// How many of the last failed.
    pub failed: u32,
    /// Remaining quarantine in milliseconds; none if the GPU is lost until its backend restarts.
    pub quarantined_ms: Option<u64>,
}

impl fmt::Display for SlowGpuView {
    /// Why, and for how long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slowdown, failed, .. } = *self;
        let Some(left_ms) = self.quarantined_ms else {
            return f.write_str("lost: it fails whatever comes until its backend is restarted");
        };
        let left_s = left_ms.div_ceil(1000);
        if failed > 0 {
            return write!(f, "set aside for {left_s} s: {failed} of its batches failed, those of its peers do not");
        }
        write!(f, "set aside for {left_s} s: {slowdown:.2} times slower than its peers")
    }
}

/// What batches of a model really take.
#[derive(Clone, Debug, PartialEq)]
pub struct DriftView {
    /// The model that drifts.
    pub model: ModelId,
    /// On GPUs of this kind.
    pub kind: String,
    /// Median ratio of measured to profiled latency.
    pub factor: f64,
}

impl From<pb::ScaleAdvice> for AdviceView {
    fn from(advice: pb::ScaleAdvice) -> Self {
        let kinds = advice.kinds.into_iter().map(|kind| KindAdviceView {
            kind: kind.gpu_kind,
            target: kind.target,
            release: kind.release.into_iter().map(GpuId::new).collect(),
            price_per_hour: kind.price_per_hour,
        });
        let slow = advice.slow.into_iter().map(|slow| SlowGpuView {
            gpu: GpuId::new(slow.gpu),
            slowdown: slow.slowdown,
            failed: slow.failed,
            quarantined_ms: (!slow.lost).then_some(slow.quarantined_ms),
        });
        let drifts = advice.drifts.into_iter().map(|drift| DriftView {
            model: ModelId::new(drift.model),
            kind: drift.gpu_kind,
            factor: drift.factor,
        });
        let fleet = advice.fleet.map(|fleet| FleetAdviceView {
            budget_per_hour: fleet.budget_per_hour,
            chosen: fleet.chosen.map(|chosen| FleetChoiceView {
                price_per_hour: chosen.price_per_hour,
                bound_rps: chosen.bound_rps,
                needed_rps: chosen.needed_rps,
                rate_rps: chosen.rate_rps,
            }),
            refused: fleet.refused,
        });
        let pb::ScaleAdvice { reason, bad_rate, idle_fraction, busy_gpus, demand_gpus, .. } = advice;
        let (kinds, slow, drifts) = (kinds.collect(), slow.collect(), drifts.collect());
        Self { reason, bad_rate, idle_fraction, busy_gpus, demand_gpus, kinds, slow, drifts, fleet }
    }
}

impl From<&AdviceView> for pb::ScaleAdvice {
    fn from(advice: &AdviceView) -> Self {
        let kinds = advice.kinds.iter().map(|kind| pb::KindAdvice {
            gpu_kind: kind.kind.clone(),
            target: kind.target,
            release: kind.release.iter().map(|gpu| gpu.get()).collect(),
            price_per_hour: kind.price_per_hour,
        });
        let slow = advice.slow.iter().map(|slow| pb::SlowGpu {
            gpu: slow.gpu.get(),
            slowdown: slow.slowdown,
            quarantined_ms: slow.quarantined_ms.unwrap_or_default(),
            failed: slow.failed,
            lost: slow.quarantined_ms.is_none(),
        });
        let drifts = advice.drifts.iter().map(|drift| pb::Drift {
            model: drift.model.get(),
            gpu_kind: drift.kind.clone(),
            factor: drift.factor,
        });
        Self {
            reason: advice.reason.clone(),
            bad_rate: advice.bad_rate,
            idle_fraction: advice.idle_fraction,
            busy_gpus: advice.busy_gpus,
            demand_gpus: advice.demand_gpus,
            kinds: kinds.collect(),
            slow: slow.collect(),
            drifts: drifts.collect(),
            fleet: advice.fleet.as_ref().map(|fleet| pb::FleetAdvice {
                budget_per_hour: fleet.budget_per_hour,
                chosen: fleet.chosen.map(|chosen| pb::FleetChoice {
                    price_per_hour: chosen.price_per_hour,
                    bound_rps: chosen.bound_rps,
                    needed_rps: chosen.needed_rps,
                    rate_rps: chosen.rate_rps,
                }),
                refused: fleet.refused.clone(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_says_what_it_costs_and_why_it_is_this_one() {
        let choice = FleetChoiceView { price_per_hour: 3.1, bound_rps: 130.0, needed_rps: 118.0, rate_rps: 100.2 };
        let shown = |chosen, refused: &str| {
            FleetAdviceView { budget_per_hour: 4.0, chosen, refused: refused.to_owned() }.to_string()
        };
        let enough = "3.10 of 4.00 per hour for 130 r/s at most, enough for 100 r/s by the need of 118";
        assert_eq!(shown(Some(choice), ""), enough);
        let short = FleetChoiceView { needed_rps: 200.0, ..choice };
        assert!(shown(Some(short), "").contains("not enough for 100 r/s by the need of 200"));
        assert_eq!(shown(None, ""), "too few requests to choose a fleet by");
        assert_eq!(shown(None, "expected x, got y"), "no fleet is chosen: expected x, got y");
        assert_eq!(shown(Some(choice), "expected x"), format!("{enough}; no fleet is chosen: expected x"));
    }
}
