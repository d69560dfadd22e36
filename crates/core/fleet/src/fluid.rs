//! Our bound: no schedule answers more, whatever it knows of the future. For several models, and for policies that
//! merge requests, which Kairos's bound leaves out. The README derives it.

use crate::classes::{Class, Merging, classes};
use crate::problem::FleetProblem;

/// Steps of the simplex method for one fleet: it takes some twenty, and for eight kinds at most about a hundred. The
/// bound holds after any number of them.
pub const SIMPLEX_STEPS_MAX: usize = 200;
/// The bound is within this share of the optimum of the linear program.
const TOLERANCE: f64 = 1e-9;

/// The bound for any fleet of a problem.
#[derive(Clone, Debug)]
pub struct FluidBound {
    classes: Vec<Class>,
}

/// Requests of all classes, each sent to its cheapest kind by some prices.
struct Column {
    /// GPU seconds of each kind per request.
    load: Vec<f64>,
    /// Their value by the prices; infinite if a class can be answered nowhere.
    value: f64,
}

impl FluidBound {
    /// For the problem's models and kinds.
    #[must_use]
    pub fn new(problem: &FleetProblem, merging: Merging) -> Self {
        Self { classes: classes(problem, merging) }
    }

    /// Classes of requests: sizes of models.
    #[must_use]
    pub fn class_count(&self) -> usize {
        self.classes.len()
    }

    /// GPUs of a kind that would be busy at this rate if it did whatever it can.
    pub(crate) fn busy_gpus(&self, kind: usize, rps: f64) -> f64 {
        let each = self.classes.iter().filter(|class| class.seconds[kind].is_finite());
        rps * each.map(|class| class.share * class.seconds[kind]).sum::<f64>()
    }

    /// The most requests per second that this fleet can answer within their SLOs, models in their shares.
    #[must_use]
    pub fn rps(&self, counts: &[u32]) -> f64 {
        let kinds: Vec<usize> = (0..counts.len()).filter(|&kind| counts[kind] > 0).collect();
        let gpus: Vec<f64> = kinds.iter().map(|&kind| f64::from(counts[kind])).collect();
        let mut simplex = Simplex::new(&gpus);
        let mut bound = f64::INFINITY;
        let mut prices = vec![1.0; kinds.len()];
        for _ in 0..SIMPLEX_STEPS_MAX {
            let column = self.cheapest(&kinds, &prices);
            if column.value == f64::INFINITY {
                return 0.0;
            }
            if column.value > 0.0 {
                let all: f64 = gpus.iter().zip(&prices).map(|(gpus, price)| gpus * price.max(0.0)).sum();
                bound = bound.min(all / column.value);
            }
            if simplex.rate() >= bound * (1.0 - TOLERANCE) || !simplex.improve(&column) {
                break;
            }
            prices = simplex.prices();
        }
        bound
    }

    /// The cheapest way to answer one request of the mix by these prices of a GPU second of each kind.
    fn cheapest(&self, kinds: &[usize], prices: &[f64]) -> Column {
        let (mut load, mut value) = (vec![0.0; kinds.len()], 0.0);
        for class in &self.classes {
            let mut best = (f64::INFINITY, f64::INFINITY, 0);
            for (at, &kind) in kinds.iter().enumerate() {
                let seconds = class.seconds[kind];
                // Nothing on a kind that cannot is for free, even at a price of zero.
                let cost = if seconds.is_finite() { seconds * prices[at].max(0.0) } else { f64::INFINITY };
                if (cost, seconds) < (best.0, best.1) {
                    best = (cost, seconds, at);
                }
            }
            value += class.share * best.0;
            if best.1.is_finite() {
                load[best.2] += class.share * best.1;
            }
        }
        Column { load, value }
    }
}

/// Maximises the rate of columns within the GPUs of each kind: a revised simplex method with as many rows as kinds.
struct Simplex {
    /// The inverse of the basis, by row.
    inverse: Vec<Vec<f64>>,
    /// How much of each row's column is used.
    used: Vec<f64>,
    /// Whether each row's column is a rate (counts one), or a kind's slack (counts nothing).
    is_rate: Vec<bool>,
}

impl Simplex {
    fn new(gpus: &[f64]) -> Self {
        let unit = |row: usize| (0..gpus.len()).map(|at| if at == row { 1.0 } else { 0.0 }).collect();
        Self { inverse: (0..gpus.len()).map(unit).collect(), used: gpus.to_vec(), is_rate: vec![false; gpus.len()] }
    }

    /// The rate so far.
    fn rate(&self) -> f64 {
        self.used.iter().zip(&self.is_rate).filter(|(_, is_rate)| **is_rate).map(|(used, _)| used).sum()
    }

    /// Prices of a GPU second of each kind by the current basis.
    fn prices(&self) -> Vec<f64> {
        let mut prices = vec![0.0; self.used.len()];
        for (row, _) in self.inverse.iter().zip(&self.is_rate).filter(|(_, is_rate)| **is_rate) {
            prices.iter_mut().zip(row).for_each(|(price, value)| *price += value);
        }
        prices
    }

    /// Brings the column in, or the slack of a kind whose price has become negative; false if neither can.
    fn improve(&mut self, column: &Column) -> bool {
        let prices = self.prices();
        let lowest = (0..prices.len()).min_by(|&a, &b| prices[a].total_cmp(&prices[b]));
        match lowest.filter(|&kind| prices[kind] < -TOLERANCE) {
            Some(kind) => {
                let entering: Vec<f64> = self.inverse.iter().map(|row| row[kind]).collect();
                self.pivot(&entering, false)
            }
            None => {
                let dot = |row: &Vec<f64>| row.iter().zip(&column.load).map(|(a, b)| a * b).sum::<f64>();
                let entering: Vec<f64> = self.inverse.iter().map(dot).collect();
                self.pivot(&entering, true)
            }
        }
    }

    fn pivot(&mut self, entering: &[f64], is_rate: bool) -> bool {
        let limit = |row: &usize| self.used[*row] / entering[*row];
        let rows = (0..entering.len()).filter(|&row| entering[row] > 1e-15);
        let Some(leaving) = rows.min_by(|a, b| limit(a).total_cmp(&limit(b))) else { return false };
        let amount = self.used[leaving] / entering[leaving];
        let pivot_row: Vec<f64> = self.inverse[leaving].iter().map(|value| value / entering[leaving]).collect();
        for (row, &factor) in entering.iter().enumerate().filter(|&(row, _)| row != leaving) {
            self.used[row] = (self.used[row] - factor * amount).max(0.0);
            self.inverse[row].iter_mut().zip(&pivot_row).for_each(|(value, pivot)| *value -= factor * pivot);
        }
        self.used[leaving] = amount;
        self.inverse[leaving] = pivot_row;
        self.is_rate[leaving] = is_rate;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(classes: &[(f64, &[f64])], counts: &[u32]) -> f64 {
        let class = |&(share, seconds): &(f64, &[f64])| Class { share, seconds: seconds.to_vec() };
        FluidBound { classes: classes.iter().map(class).collect() }.rps(counts)
    }

    #[track_caller]
    fn is(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{found}, expected {expected}");
    }

    #[test]
    fn one_kind_serves_the_inverse_of_its_mean_time() {
        let mix: [(f64, &[f64]); 2] = [(0.5, &[0.1]), (0.5, &[0.3])];
        is(bound(&mix, &[4]), 20.0);
    }

    #[test]
    fn kinds_share_the_work_by_hand() {
        // Small requests take 0.1 s on either kind, large ones 0.2 s on the first alone: of λ, half are large, and the
        // first kind's two GPUs spend 0.1 λ on them. Three GPUs in all have 0.05 λ + 0.1 λ to do: 20 r/s, which leaves
        // the second kind no more than its own.
        let mix: [(f64, &[f64]); 2] = [(0.5, &[0.1, 0.1]), (0.5, &[0.2, f64::INFINITY])];
        is(bound(&mix, &[2, 1]), 20.0);
        // With many of the second kind the large ones are the limit.
        is(bound(&mix, &[2, 50]), 20.0);
        is(bound(&mix, &[3, 1]), 80.0 / 3.0);
    }

    #[test]
    fn each_kind_takes_what_it_is_comparatively_good_at() {
        // The first kind is faster at both, by 10 and by 2: it serves the first class.
        let mix: [(f64, &[f64]); 2] = [(0.5, &[0.1, 1.0]), (0.5, &[0.1, 0.2])];
        // With x of the second class there as well, 0.05 λ + 0.1 x = 1 and 0.2 (λ/2 − x) = 1: λ = 15 and x = 2.5.
        is(bound(&mix, &[1, 1]), 15.0);
    }

    #[test]
    fn a_request_that_no_kind_here_answers_makes_it_nothing() {
        let mix: [(f64, &[f64]); 2] = [(0.5, &[0.1, 0.1]), (0.5, &[0.2, f64::INFINITY])];
        assert_eq!(bound(&mix, &[0, 5]), 0.0);
        assert_eq!(bound(&mix, &[0, 0]), 0.0);
    }
}
