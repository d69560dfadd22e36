//! The throughput bound of Kairos (section 5.2, equations 9 to 15), for one model whose requests do not share batches.

use crate::problem::{FleetModel, FleetProblem};

/// A kind beside the base.
#[derive(Clone, Debug, PartialEq)]
pub struct Auxiliary {
    /// The largest request that it answers within the SLO, s in the paper.
    pub cutoff: u32,
    /// The share of requests up to this size, f.
    pub small_share: f64,
    /// The share of a base's time that these requests take.
    pub base_time_share: f64,
    /// Requests per second that one of the kind serves if all are up to a cutoff, Qₐ, by cutoff: its own and those of
    /// the kinds that answer larger ones.
    pub rates: Vec<(u32, f64)>,
}

/// What the bound needs to know of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct KairosBound {
    /// The base kind.
    pub base: usize,
    /// Requests per second that one base serves, Q_b.
    pub base_rps: f64,
    /// By kind; `None` for the base and for kinds that answer no request within the SLO.
    pub auxiliaries: Vec<Option<Auxiliary>>,
}

impl KairosBound {
    /// From latencies and sizes; `None` if no kind answers every request within the SLO.
    #[must_use]
    pub fn of(problem: &FleetProblem, model: &FleetModel) -> Option<Self> {
        let base = problem.base()?;
        let items_max = model.items_max();
        let (base_mean_s, _) = model.mean_s(base, items_max);
        let smallest = model.sizes.first().map_or(1, |size| size.0);
        let cutoffs: Vec<u32> = (0..problem.kinds.len()).map(|kind| model.items_within(kind).min(items_max)).collect();
        let auxiliary = |kind: usize| {
            let cutoff = cutoffs[kind];
            if kind == base || cutoff < smallest {
                return None;
            }
            let (small_mean_s, small_share) = model.mean_s(base, cutoff);
            let of_larger = cutoffs.iter().filter(|&&other| other >= cutoff);
            let rates = of_larger.map(|&other| (other, 1.0 / model.mean_s(kind, other).0)).collect();
            let base_time_share = small_share * small_mean_s / base_mean_s;
            Some(Auxiliary { cutoff, small_share, base_time_share, rates })
        };
        let auxiliaries = (0..problem.kinds.len()).map(auxiliary).collect();
        Some(Self { base, base_rps: 1.0 / base_mean_s, auxiliaries })
    }

    /// Whether each kind can serve anything.
    #[must_use]
    pub fn useful(&self) -> Vec<bool> {
        let known = self.auxiliaries.iter().enumerate();
        known.map(|(kind, auxiliary)| kind == self.base || auxiliary.is_some()).collect()
    }

    /// The bound of a fleet in requests per second: equation 15. All kinds beside the base are taken to answer what the
    /// best of them answers.
    #[must_use]
    pub fn rps(&self, counts: &[u32]) -> f64 {
        let bases = f64::from(counts.get(self.base).copied().unwrap_or(0));
        let of_bases = bases * self.base_rps;
        let here = || {
            let known = self.auxiliaries.iter().zip(counts).filter(|(_, count)| **count > 0);
            known.filter_map(|(auxiliary, &count)| Some((auxiliary.as_ref()?, f64::from(count))))
        };
        let Some((best, _)) = here().max_by_key(|(auxiliary, _)| auxiliary.cutoff) else { return of_bases };
        let rate_of = |auxiliary: &Auxiliary| {
            let found = auxiliary.rates.iter().find(|rate| rate.0 == best.cutoff);
            found.map_or(0.0, |rate| rate.1)
        };
        let of_others: f64 = here().map(|(auxiliary, count)| count * rate_of(auxiliary)).sum();
        let (small, large) = (best.small_share, 1.0 - best.small_share);
        // A best kind that answers everything leaves no large requests: whatever serves adds up.
        if large <= 1e-12 || best.base_time_share >= 1.0 {
            return of_bases + of_others;
        }
        // One base serves large requests at this rate, Q_b of s+.
        let of_bases_large = of_bases * large / (1.0 - best.base_time_share);
        // Large requests that arrive while the others are fully occupied by small ones: equation 14.
        let large_beside = of_others * large / small;
        if of_bases_large <= large_beside {
            of_bases_large / large
        } else {
            of_others / small + (of_bases_large - large_beside) / of_bases_large * of_bases
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand. Two of three requests are small. One base serves 10 r/s, half of its time small ones; so it serves
    /// 10 · ⅓ ÷ ½ = 6⅔ large ones a second, if it serves nothing else. An auxiliary serves 8 small ones a second.
    fn by_hand() -> KairosBound {
        let auxiliary = Auxiliary {
            cutoff: 100,
            small_share: 2.0 / 3.0,
            base_time_share: 0.5,
            rates: vec![(100, 8.0), (200, 6.0)],
        };
        let better = Auxiliary { cutoff: 200, small_share: 0.8, base_time_share: 0.7, rates: vec![(200, 9.0)] };
        KairosBound { base: 0, base_rps: 10.0, auxiliaries: vec![None, Some(auxiliary), Some(better), None] }
    }

    #[track_caller]
    fn is(counts: [u32; 4], expected: f64) {
        let found = by_hand().rps(&counts);
        assert!((found - expected).abs() < 1e-9, "{counts:?}: {found}, expected {expected}");
    }

    #[test]
    fn bases_alone_and_kinds_that_serve_nothing_add_nothing() {
        is([3, 0, 0, 0], 30.0);
        is([3, 0, 0, 5], 30.0);
        assert_eq!(by_hand().useful(), [true, true, true, false]);
    }

    #[test]
    fn while_the_auxiliaries_are_the_bottleneck_bases_have_slack() {
        // One auxiliary: 12 r/s in all, 4 of them large, of the 6⅔ that the base can serve; its slack serves 10 · 0.4.
        is([1, 1, 0, 0], 12.0 + 4.0);
    }

    #[test]
    fn while_the_bases_are_the_bottleneck_more_auxiliaries_add_nothing() {
        // Two: 8 large ones a second are more than 6⅔, which are a third of 20.
        is([1, 2, 0, 0], 20.0);
        is([1, 9, 0, 0], 20.0);
        is([2, 9, 0, 0], 40.0);
    }

    #[test]
    fn the_region_of_the_best_kind_counts_for_all() {
        // 9 + 6 small ones a second, with 15 / 4 large ones of the 20 · 0.2 / 0.3 that two bases serve.
        let large = 20.0 * 0.2 / 0.3;
        is([2, 1, 1, 0], 15.0 / 0.8 + (large - 3.75) / large * 20.0);
    }

    #[test]
    fn kinds_that_answer_everything_add_up() {
        let all = Auxiliary { cutoff: 300, small_share: 1.0, base_time_share: 1.0, rates: vec![(300, 4.0)] };
        let bound = KairosBound { base: 0, base_rps: 10.0, auxiliaries: vec![None, Some(all)] };
        assert!((bound.rps(&[1, 3]) - 22.0).abs() < 1e-9);
    }
}
