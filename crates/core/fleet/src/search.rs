//! Kairos+ (section 5.2, algorithm 1): the best fleet by evaluations, of which bounds save most.

use crate::choice::Ranking;

/// Says what a fleet really answers: a simulation, or a live trial.
pub trait Evaluator {
    /// Why it could not.
    type Error;

    /// The highest rate in requests per second that this fleet answers.
    ///
    /// # Errors
    /// If it cannot be evaluated; the search ends then.
    fn rate_rps(&mut self, counts: &[u32]) -> Result<f64, Self::Error>;
}

/// A fleet that was evaluated.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Its place in the ranking.
    pub place: usize,
    /// What it answers, in requests per second.
    pub rate_rps: f64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The evaluations in their order.
    pub evaluations: Vec<Evaluation>,
    /// Which of them was the best; `None` if nothing answers anything.
    pub best: Option<usize>,
    /// Whether every other fleet was ruled out. If not, the limit of evaluations ended the search.
    pub complete: bool,
}

/// Evaluates fleets from the highest bound down, but for those whose bound is no higher than the best rate so far, and
/// those that are part of an evaluated one; at most `evaluations_max`.
///
/// # Errors
/// The evaluator's.
pub fn search<E: Evaluator>(ranking: &Ranking, evaluator: &mut E, evaluations_max: usize) -> Result<Found, E::Error> {
    let mut found = Found { evaluations: Vec::new(), best: None, complete: true };
    let mut best_rps = 0.0;
    for (place, fleet) in ranking.fleets.iter().enumerate() {
        if fleet.bound_rps <= best_rps {
            // So are all bounds that follow.
            break;
        }
        let mut evaluated = found.evaluations.iter().map(|evaluation| &ranking.fleets[evaluation.place].counts);
        if evaluated.any(|larger| is_part_of(&fleet.counts, larger)) {
            continue;
        }
        if found.evaluations.len() >= evaluations_max {
            found.complete = false;
            break;
        }
        let rate_rps = evaluator.rate_rps(&fleet.counts)?;
        if rate_rps > best_rps {
            best_rps = rate_rps;
            found.best = Some(found.evaluations.len());
        }
        found.evaluations.push(Evaluation { place, rate_rps });
    }
    Ok(found)
}

/// Whether the other fleet has everything that this one has.
fn is_part_of(fleet: &[u32], other: &[u32]) -> bool {
    fleet.iter().zip(other).all(|(own, others)| own <= others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::RankedFleet;

    /// Answers by counts; counts its calls.
    struct Known(Vec<(Vec<u32>, f64)>);

    impl Evaluator for Known {
        type Error = String;

        fn rate_rps(&mut self, counts: &[u32]) -> Result<f64, String> {
            let known = self.0.iter().find(|known| known.0 == counts);
            known.map(|known| known.1).ok_or_else(|| format!("{counts:?} need not be evaluated"))
        }
    }

    fn ranking() -> Ranking {
        let fleet = |(counts, bound_rps): (&[u32], f64)| RankedFleet {
            counts: counts.to_vec(),
            price_per_hour: 1.0,
            bound_rps,
        };
        let fleets: [(&[u32], f64); 5] =
            [(&[1, 9], 100.0), (&[2, 5], 90.0), (&[1, 8], 85.0), (&[3, 1], 70.0), (&[2, 2], 60.0)];
        Ranking { fleets: fleets.into_iter().map(fleet).collect(), base: Some(0) }
    }

    #[test]
    fn what_is_part_of_an_evaluated_fleet_or_bounded_below_the_best_is_not_tried() {
        let mut known = Known(vec![(vec![1, 9], 50.0), (vec![2, 5], 72.0)]);
        let found = search(&ranking(), &mut known, 10).unwrap();
        let places: Vec<_> = found.evaluations.iter().map(|evaluation| evaluation.place).collect();
        assert_eq!((places, found.best, found.complete), (vec![0, 1], Some(1), true));
    }

    #[test]
    fn a_limit_and_an_error_end_the_search() {
        let found = search(&ranking(), &mut Known(vec![(vec![1, 9], 50.0)]), 1).unwrap();
        assert_eq!((found.evaluations.len(), found.best, found.complete), (1, Some(0), false));
        let error = search(&ranking(), &mut Known(vec![(vec![1, 9], 50.0)]), 10).unwrap_err();
        assert_eq!(error, "[2, 5] need not be evaluated");
        let nothing: Vec<_> = ranking().fleets.iter().map(|fleet| (fleet.counts.clone(), 0.0)).collect();
        assert_eq!(search(&ranking(), &mut Known(nothing), 10).unwrap().best, None);
    }
}
