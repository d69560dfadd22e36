//! The evenness of a division: equations 4, 7 and 8, and the imbalance factor of section A.2.

use serde::{Deserialize, Serialize};

/// The balance of a plan. All numbers are relative to the parts' targets, so they have no units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Balance {
    /// ΔR/R̄: the largest distance of a part's rate from its target (equation 7).
    pub rate_deviation: f64,
    /// ΔS/S̄: the same for static memory (equation 8).
    pub memory_deviation: f64,
    /// ΔR/R̄ + w·ΔS/S̄ (equation 4, divided by R̄).
    pub objective: f64,
    /// (max − min)/avg of the parts' rates.
    pub rate_imbalance: f64,
    /// (max − min)/avg of the parts' static memory.
    pub memory_imbalance: f64,
}

impl Balance {
    /// From the ratios of actual to target; 1 is ideal.
    pub(crate) fn of(rate: &[f64], memory: &[f64], memory_weight: f64) -> Self {
        let (rate_deviation, rate_imbalance) = spread(rate);
        let (memory_deviation, memory_imbalance) = spread(memory);
        let objective = rate_deviation + memory_weight * memory_deviation;
        Self { rate_deviation, memory_deviation, objective, rate_imbalance, memory_imbalance }
    }
}

/// The largest distance from 1, and (max − min)/avg with an average of 1.
fn spread(filled: &[f64]) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for &part in filled {
        (low, high) = (low.min(part), high.max(part));
    }
    if high < low { (0.0, 0.0) } else { ((high - 1.0).max(1.0 - low), high - low) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_and_factors_are_those_of_the_appendix() {
        let balance = Balance::of(&[1.1, 0.8, 1.1], &[1.0, 1.0, 1.0], 2.0);
        assert!((balance.rate_deviation - 0.2).abs() < 1e-12 && (balance.rate_imbalance - 0.3).abs() < 1e-12);
        assert_eq!((balance.memory_deviation, balance.memory_imbalance), (0.0, 0.0));
        assert_eq!(balance.objective, balance.rate_deviation);
        assert_eq!(Balance::of(&[1.0], &[1.5], 2.0).objective, 1.0);
    }
}
