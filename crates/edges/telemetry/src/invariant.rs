//! Counts and logs broken invariants.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use symphony_types::Invariant;

use crate::names::INVARIANT_VIOLATIONS;

/// Violations of one invariant that are all logged; beyond them only every power of two is.
const LOGGED_ALL_MAX: u64 = 16;

static VIOLATIONS: [AtomicU64; Invariant::ALL.len()] = [const { AtomicU64::new(0) }; Invariant::ALL.len()];

/// Records a broken invariant: counts it, and logs it as an error with `detail`.
///
/// It never panics, in any build: a process with a bookkeeping mistake continues to serve, and a panic of a decision
/// thread would turn the mistake into an outage. Tests and chaos checkers read the count instead, with [`violations`]
/// in the same process or from `symphony_invariant_violations_total` of others, and fail if it is not 0. Many
/// violations do not flood the log: after 16 of an invariant only every power of two is logged.
pub fn violated(invariant: Invariant, detail: impl fmt::Display) {
    let count = slot(invariant).fetch_add(1, Ordering::Relaxed) + 1;
    if count <= LOGGED_ALL_MAX || count.is_power_of_two() {
        tracing::error!(invariant = invariant.id(), count, %detail, "invariant violated: {}", invariant.sentence());
    }
}

/// How often an invariant was seen broken in this process.
#[must_use]
pub fn violations(invariant: Invariant) -> u64 {
    slot(invariant).load(Ordering::Relaxed)
}

fn slot(invariant: Invariant) -> &'static AtomicU64 {
    let index = Invariant::ALL.iter().position(|&i| i == invariant).expect("ALL has every invariant");
    &VIOLATIONS[index]
}

/// Exports all counts, zeros included: an alert on a series that does not exist yet would never fire.
#[derive(Debug)]
pub(crate) struct ViolationCollector;

impl Collector for ViolationCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) = (INVARIANT_VIOLATIONS.bare(), INVARIANT_VIOLATIONS.help);
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for invariant in Invariant::ALL {
            let labels = [("invariant", invariant.id())];
            ConstCounter::new(violations(invariant)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;

    #[test]
    fn a_violation_is_counted_under_its_own_invariant_and_nothing_dies() {
        let before = (violations(Invariant::S4), violations(Invariant::C7));
        violated(Invariant::S4, format_args!("grant of {} neither used nor returned", "g7"));
        assert_eq!(violations(Invariant::S4), before.0 + 1);
        assert_eq!(violations(Invariant::C7), before.1);
        let text = Registry::new("test").encode();
        let line = format!("symphony_invariant_violations_total{{invariant=\"S4\"}} {}\n", before.0 + 1);
        assert!(text.contains(&line), "{text}");
        assert!(text.contains("symphony_invariant_violations_total{invariant=\"C7\"} 0\n"), "{text}");
    }
}
