//! All fleets ranked by a bound, and the one that is chosen without trying any (Kairos, section 5.2).

use crate::candidates::candidates;
use crate::classes::Merging;
use crate::fluid::FluidBound;
use crate::kairos_bound::KairosBound;
use crate::problem::FleetProblem;

/// Fleets times classes of requests of a fluid bound: with twenty steps for each, some ten seconds.
pub const FLUID_WORK_MAX: usize = 100_000_000;
/// Fleets that must agree on the number of bases for the first to be chosen.
const AGREEING: usize = 3;
/// Otherwise the most central one of this many fleets is chosen.
const CENTRAL: usize = 10;

/// The bound to rank by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Kairos's own, equations 9 to 15: for one model.
    Kairos,
    /// No schedule without shared batches answers more.
    Alone,
    /// No schedule at all answers more.
    Together,
}

/// A fleet and its bound.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedFleet {
    /// GPUs by kind.
    pub counts: Vec<u32>,
    /// What they cost per hour.
    pub price_per_hour: f64,
    /// The bound in requests per second.
    pub bound_rps: f64,
}

/// All fleets within the budget, the highest bound first.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The fleets; at least one.
    pub fleets: Vec<RankedFleet>,
    /// The base kind, if one kind answers everything.
    pub base: Option<usize>,
}

/// Ranks every fleet within the budget. Equal bounds, to a millionth of a request per second: the cheaper one first,
/// then the one with fewer of the first kinds.
///
/// # Errors
/// If the budget buys no fleet that answers every request, if there are too many fleets, or if Kairos's bound does not
/// apply; the message says what was expected of which key.
pub fn rank(problem: &FleetProblem, bound: Bound) -> Result<Ranking, RankError> {
    let base = problem.base();
    let kairos = match (bound, &problem.models[..]) {
        (Bound::Kairos, [model]) => KairosBound::of(problem, model),
        _ => None,
    };
    if bound == Bound::Kairos && kairos.is_none() {
        return Err(RankError::NotForKairos);
    }
    let useful = kairos.as_ref().map_or_else(|| useful(problem), KairosBound::useful);
    let mut counts = candidates(problem, &useful).map_err(RankError::TooMany)?;
    if let Some(kairos) = &kairos {
        // Equation 15 is about a base and others beside it.
        counts.retain(|counts| counts[kairos.base] > 0);
    }
    let fluid = match bound {
        Bound::Kairos => None,
        Bound::Alone => Some(FluidBound::new(problem, Merging::Alone)),
        Bound::Together => Some(FluidBound::new(problem, Merging::Together)),
    };
    if let Some(fluid) = &fluid
        && fluid.class_count().saturating_mul(counts.len()) > FLUID_WORK_MAX
    {
        let (fleets, classes) = (counts.len(), fluid.class_count());
        return Err(RankError::TooMany(format!(
            "{fleets} fleets and {classes} sizes of requests are more than are ranked by this bound (FLUID_WORK_MAX)"
        )));
    }
    let rps = |counts: &[u32]| {
        let of_kairos = kairos.as_ref().map(|bound| bound.rps(counts));
        of_kairos.or_else(|| fluid.as_ref().map(|bound| bound.rps(counts))).unwrap_or(0.0)
    };
    let ranked = |counts: Vec<u32>| RankedFleet {
        price_per_hour: problem.price_per_hour(&counts),
        bound_rps: rps(&counts),
        counts,
    };
    let mut fleets: Vec<RankedFleet> = counts.into_iter().map(ranked).collect();
    // Equal bounds differ by rounding.
    let millionths = |fleet: &RankedFleet| (fleet.bound_rps * 1e6).round();
    fleets.sort_by(|a, b| {
        let by_price = || a.price_per_hour.total_cmp(&b.price_per_hour);
        millionths(b).total_cmp(&millionths(a)).then_with(by_price).then_with(|| a.counts.cmp(&b.counts))
    });
    if fleets.is_empty() { Err(RankError::BuysNothing(cheapest(problem))) } else { Ok(Ranking { fleets, base }) }
}

/// Why there is no ranking.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RankError {
    /// The budget is too low; the price of the cheapest kind that answers everything, if there is one.
    #[error("{}", more_budget(*.0))]
    BuysNothing(Option<f64>),
    /// There are too many fleets.
    #[error("a lower budget, higher prices or lower count_max: {0}")]
    TooMany(String),
    /// Several models, or no kind that answers everything.
    #[error(
        "one model, and a kind that answers all of its requests within the SLO, for the bound of Kairos; use another bound"
    )]
    NotForKairos,
}

fn more_budget(cheapest: Option<f64>) -> String {
    cheapest.map_or_else(
        || "more: it buys no fleet that answers every request within its SLO".to_owned(),
        |price| format!("at least {price}, the price of the cheapest kind that answers every request within its SLO"),
    )
}

/// Kinds that answer some request of some model in time.
fn useful(problem: &FleetProblem) -> Vec<bool> {
    let answers = |kind: usize| {
        problem.models.iter().any(|model| model.sizes.first().is_some_and(|size| size.0 <= model.items_within(kind)))
    };
    (0..problem.kinds.len()).map(answers).collect()
}

fn cheapest(problem: &FleetProblem) -> Option<f64> {
    let all = |&kind: &usize| problem.models.iter().all(|model| model.items_within(kind) >= model.items_max());
    let prices = (0..problem.kinds.len()).filter(all).map(|kind| problem.kinds[kind].price_per_hour);
    prices.min_by(f64::total_cmp)
}

impl Ranking {
    /// The fleet chosen in one shot: the first if all are of one kind, or the first three have equally many bases;
    /// otherwise, of the first ten, the one whose squared distances to the others add up to least.
    #[must_use]
    pub fn chosen(&self) -> &RankedFleet {
        let bases = |fleet: &RankedFleet| self.base.map(|base| fleet.counts[base]);
        let first = &self.fleets[0];
        let kinds = |fleet: &RankedFleet| fleet.counts.iter().map(|&count| count > 0).collect::<Vec<_>>();
        // Of one kind there is nothing to weigh.
        let of_one_kind = kinds(first).iter().filter(|&&used| used).count() == 1;
        if of_one_kind && self.fleets.iter().all(|fleet| kinds(fleet) == kinds(first)) {
            return first;
        }
        let agree = self.base.is_some() && self.fleets.iter().take(AGREEING).all(|fleet| bases(fleet) == bases(first));
        if agree {
            return first;
        }
        let top = &self.fleets[..self.fleets.len().min(CENTRAL)];
        let distance =
            |fleet: &RankedFleet| top.iter().map(|other| squared_distance(&fleet.counts, &other.counts)).sum::<u64>();
        top.iter().min_by_key(|fleet| distance(fleet)).unwrap_or(first)
    }
}

fn squared_distance(a: &[u32], b: &[u32]) -> u64 {
    a.iter().zip(b).map(|(a, b)| u64::from(a.abs_diff(*b)).pow(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranking(counts: &[[u32; 2]]) -> Ranking {
        let fleet = |counts: &[u32; 2]| RankedFleet { counts: counts.to_vec(), price_per_hour: 1.0, bound_rps: 1.0 };
        Ranking { fleets: counts.iter().map(fleet).collect(), base: Some(0) }
    }

    #[test]
    fn three_that_agree_on_the_bases_make_the_first_one_chosen() {
        assert_eq!(ranking(&[[1, 9], [1, 3], [1, 8], [2, 7]]).chosen().counts, [1, 9]);
        assert_eq!(ranking(&[[4, 0]]).chosen().counts, [4, 0]);
    }

    #[test]
    fn of_one_kind_as_many_are_chosen_as_the_budget_buys() {
        assert_eq!(ranking(&[[4, 0], [3, 0], [2, 0], [1, 0]]).chosen().counts, [4, 0]);
        assert_eq!(ranking(&[[4, 0], [3, 0], [2, 0], [1, 1]]).chosen().counts, [3, 0], "there are others");
    }

    #[test]
    fn otherwise_the_most_central_of_the_first_ten_is() {
        // Distances: 25 + 26 = 51, 25 + 1, 26 + 1.
        assert_eq!(ranking(&[[1, 10], [1, 5], [2, 5]]).chosen().counts, [1, 5]);
        let mut far: Vec<[u32; 2]> = vec![[1, 10], [2, 5], [1, 5]];
        far.extend([[1, 6]; 7]);
        far.extend([[9, 9]; 20]);
        assert_eq!(ranking(&far).chosen().counts, [1, 6], "what comes after the first ten does not count");
    }
}
