//! Advice as a metric for external autoscalers.

use crate::advice::Advice;

/// A level for a horizontal autoscaler, which sets the number of replicas to ⌈`value / per_replica`⌉.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScalerMetric {
    /// The advised number of GPUs, of all kinds or of one.
    pub value: i64,
    /// GPUs per replica: the target value per replica.
    pub per_replica: i64,
    /// Whether any replica is advised.
    pub active: bool,
}

/// The metric for an autoscaler whose replicas have `gpus_per_replica` GPUs (at least one) of the kind at this index in
/// the settings; `None` if there is no such kind. It is a level, so reading it twice orders nothing twice. The GPUs to
/// release are in [`KindAdvice::release`](crate::KindAdvice::release), but an autoscaler that only counts does not read
/// that: it must remove replicas from the highest ids down, as stateful sets do. And it must follow the level closely:
/// a horizontal autoscaler of Kubernetes ignores differences below its tolerance, by default a tenth.
#[must_use]
pub fn scaler_metric(advice: &Advice, kind: usize, gpus_per_replica: u32) -> Option<ScalerMetric> {
    let target = i64::from(advice.kinds.get(kind)?.target);
    Some(ScalerMetric { value: target, per_replica: i64::from(gpus_per_replica.max(1)), active: target > 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::{KindAdvice, Reason};

    #[test]
    fn the_metric_is_the_target_and_nothing_is_wanted_of_an_unknown_kind() {
        let kind = |target| KindAdvice { target, add: 3, ..KindAdvice::default() };
        let advice = Advice {
            reason: Reason::BadRate,
            kinds: vec![kind(12), kind(0)],
            bad_rate: 0.1,
            idle_fraction: 0.0,
            pressure: 3.0,
        };
        let metric = |kind, gpus| scaler_metric(&advice, kind, gpus);
        assert_eq!(metric(0, 4), Some(ScalerMetric { value: 12, per_replica: 4, active: true }));
        assert_eq!(metric(1, 0), Some(ScalerMetric { value: 0, per_replica: 1, active: false }));
        assert_eq!(metric(2, 1), None);
    }
}
