//! What all replicas may cost together.

use std::sync::{Arc, Mutex, PoisonError};

use crate::exit::bad_input;

/// Replicas of one template.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    /// Of one replica, per hour.
    price: f64,
    /// Replicas that are granted.
    replicas: u32,
    /// Replicas that are granted at any price.
    min: u32,
}

/// Money that several templates share. Each of them keeps what it has until it wants less itself.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    per_hour: f64,
    shares: Arc<Mutex<Vec<Share>>>,
}

impl Budget {
    /// For templates with these prices of a replica per hour, each with at least `min` replicas.
    ///
    /// # Errors
    /// If the budget does not pay for the fewest replicas.
    pub(crate) fn new(per_hour: f64, prices: &[f64], min: u32) -> anyhow::Result<Self> {
        let least: f64 = prices.iter().map(|price| price * f64::from(min)).sum();
        if least > per_hour * (1.0 + 1e-9) {
            let what = format!("expected at least {least}, what --min {min} replicas of each configuration cost");
            return Err(bad_input(format!("--budget-per-hour: {what}, got {per_hour}")));
        }
        let shares = prices.iter().map(|&price| Share { price, replicas: min, min }).collect();
        Ok(Self { per_hour, shares: Arc::new(Mutex::new(shares)) })
    }

    /// How many of the wanted replicas template number `at` may have, beside what the others have.
    pub(crate) fn grant(&self, at: usize, wanted: u32) -> u32 {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let cost =
            |(other, share): (usize, &Share)| if other == at { 0.0 } else { share.price * f64::from(share.replicas) };
        let others: f64 = shares.iter().enumerate().map(cost).sum();
        let Some(own) = shares.get_mut(at) else { return wanted };
        // A rounding error is no price. `as` saturates.
        let affordable = ((self.per_hour * (1.0 + 1e-9) - others) / own.price).floor().max(0.0) as u32;
        own.replicas = wanted.min(affordable).max(own.min);
        own.replicas
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_has_the_other_cannot_buy_until_it_is_given_back() {
        let budget = Budget::new(1.0, &[0.3, 0.1], 1).unwrap();
        assert_eq!(budget.grant(0, 9), 3, "0.9 beside the one that the other always has");
        assert_eq!(budget.grant(1, 9), 1);
        assert_eq!(budget.grant(0, 2), 2);
        assert_eq!(budget.grant(1, 9), 4);
        assert_eq!(budget.grant(0, 3), 2, "the other one has the money now");
        assert_eq!(budget.grant(1, 0), 1, "never below the fewest");
    }

    #[test]
    fn a_budget_that_does_not_pay_for_the_fewest_is_refused() {
        let error = Budget::new(0.35, &[0.3, 0.1], 1).unwrap_err().to_string();
        assert!(error.contains("--budget-per-hour: expected at least 0.4") && error.contains("got 0.35"), "{error}");
    }
}
