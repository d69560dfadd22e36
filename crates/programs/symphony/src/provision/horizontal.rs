//! The desired number of replicas, computed like a horizontal autoscaler of Kubernetes does from an external metric.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Remembered recommendations: one per second for an hour.
const REMEMBERED_MAX: usize = 3600;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HorizontalSettings {
    /// Fewest replicas.
    pub(crate) min: u32,
    /// Most replicas.
    pub(crate) max: u32,
    /// The tolerance: a metric within this share of its target changes nothing. Kubernetes has a tenth.
    pub(crate) tolerance: f64,
    /// The stabilisation window: scale down at most to its largest recommendation. Kubernetes has 300 s.
    pub(crate) down_stabilization: Duration,
}

/// A metric from an external scaler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    /// Its present value, over all replicas.
    pub(crate) value: f64,
    /// Its target per replica.
    pub(crate) target: f64,
}

/// Decides the number of replicas.
#[derive(Debug)]
pub(crate) struct Horizontal {
    settings: HorizontalSettings,
    recommended: VecDeque<(Instant, u32)>,
}

impl Horizontal {
    pub(crate) const fn new(settings: HorizontalSettings) -> Self {
        Self { settings, recommended: VecDeque::new() }
    }

    /// The number of replicas when the scaler is inactive.
    pub(crate) const fn none(&self) -> u32 {
        self.settings.min
    }

    /// The desired number, given `current` replicas. Without a metric only the limits apply.
    ///
    /// The law of an average value: ⌈metric / target⌉, and no change while metric / (target · current) is within the
    /// tolerance of one (Kubernetes, "Horizontal Pod Autoscaling", algorithm details).
    pub(crate) fn desired(&mut self, now: Instant, current: u32, measured: Option<Measured>) -> u32 {
        let HorizontalSettings { min, max, tolerance, down_stabilization } = self.settings;
        let Some(Measured { value, target }) = measured.filter(|m| m.value.is_finite() && m.target > 0.0) else {
            return current.clamp(min, max);
        };
        let near = current > 0 && (value / (target * f64::from(current)) - 1.0).abs() <= tolerance;
        // A negative metric counts as zero; `as` saturates.
        let wanted = if near { current } else { (value / target).ceil() as u32 };
        let wanted = wanted.clamp(min, max);
        self.recommended.push_back((now, wanted));
        let old = |at: Instant| now.saturating_duration_since(at) > down_stabilization;
        while self.recommended.front().is_some_and(|&(at, _)| old(at)) || self.recommended.len() > REMEMBERED_MAX {
            self.recommended.pop_front();
        }
        let highest = self.recommended.iter().map(|&(_, wanted)| wanted).max().unwrap_or(wanted);
        // Up at once; down at most to the recent recommendations.
        if wanted < current { highest.min(current).max(wanted) } else { wanted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn horizontal(tolerance: f64, down_s: u64) -> Horizontal {
        let down_stabilization = Duration::from_secs(down_s);
        Horizontal::new(HorizontalSettings { min: 1, max: 8, tolerance, down_stabilization })
    }

    const fn gpus(value: f64, target: f64) -> Option<Measured> {
        Some(Measured { value, target })
    }

    #[test]
    fn the_quotient_is_rounded_up_and_kept_within_bounds() {
        let now = Instant::now();
        for (current, measured, expected) in [
            (1, gpus(3.0, 1.0), 3),
            (1, gpus(3.0, 2.0), 2),
            (1, gpus(100.0, 1.0), 8),
            (4, gpus(0.0, 1.0), 1),
            (4, gpus(-3.0, 1.0), 1),
            (4, gpus(f64::NAN, 1.0), 4),
            (4, gpus(2.0, 0.0), 4),
            (0, None, 1),
            (12, None, 8),
        ] {
            assert_eq!(horizontal(0.0, 0).desired(now, current, measured), expected, "{current} {measured:?}");
        }
    }

    #[test]
    fn little_off_the_target_nothing_changes() {
        let now = Instant::now();
        assert_eq!(horizontal(0.1, 0).desired(now, 5, gpus(5.4, 1.0)), 5);
        assert_eq!(horizontal(0.1, 0).desired(now, 5, gpus(5.6, 1.0)), 6);
        assert_eq!(horizontal(0.0, 0).desired(now, 5, gpus(5.4, 1.0)), 6);
    }

    #[test]
    fn down_waits_for_the_largest_wish_of_the_window_to_pass_and_up_does_not() {
        let (mut horizontal, start) = (horizontal(0.0, 10), Instant::now());
        let mut at = |s, current, value| horizontal.desired(start + Duration::from_secs(s), current, gpus(value, 1.0));
        assert_eq!(at(0, 2, 6.0), 6);
        assert_eq!(at(5, 6, 4.0), 6);
        assert_eq!(at(9, 6, 2.0), 6);
        assert_eq!(at(11, 6, 2.0), 4, "the six is forgotten, the four is not");
        assert_eq!(at(20, 4, 2.0), 2);
        assert_eq!(at(21, 2, 7.0), 7);
    }
}
