//! The choice of a frontend for each request.

/// How requests are divided among the frontends that take them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// To the one with the fewest requests of this client in flight, in turn among equals: one that is slow gets less.
    #[default]
    LeastInFlight,
    /// To each in turn.
    RoundRobin,
}

/// A frontend as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its place among the frontends.
    pub(crate) index: usize,
    /// Requests of this client that it has.
    pub(crate) in_flight: usize,
}

impl Balance {
    /// The choice among `candidates`; `turn` goes up by one with each request.
    pub(crate) fn choose(self, candidates: &[Candidate], turn: usize) -> Option<usize> {
        let count = candidates.len();
        let mut in_turn = (0..count).map(|offset| candidates[(turn % count + offset) % count]);
        match self {
            Self::RoundRobin => in_turn.next(),
            // The first of equals, which `min_by_key` takes, is another one with each turn.
            Self::LeastInFlight => in_turn.min_by_key(|candidate| candidate.in_flight),
        }
        .map(|candidate| candidate.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(in_flight: &[usize]) -> Vec<Candidate> {
        in_flight.iter().enumerate().map(|(index, &in_flight)| Candidate { index, in_flight }).collect()
    }

    #[test]
    fn each_in_turn_and_the_idlest_first() {
        let turns = |balance: Balance, candidates: &[Candidate]| -> Vec<_> {
            (0..4).map(|turn| balance.choose(candidates, turn).unwrap()).collect()
        };
        assert_eq!(turns(Balance::RoundRobin, &of(&[9, 0, 0])), [0, 1, 2, 0]);
        assert_eq!(turns(Balance::LeastInFlight, &of(&[9, 0, 0])), [1, 1, 2, 1]);
        assert_eq!(turns(Balance::LeastInFlight, &of(&[1, 1, 1])), [0, 1, 2, 0]);
        for balance in [Balance::RoundRobin, Balance::LeastInFlight] {
            assert_eq!(balance.choose(&[], 3), None);
            assert_eq!(balance.choose(&of(&[5])[..], usize::MAX), Some(0));
        }
    }
}
