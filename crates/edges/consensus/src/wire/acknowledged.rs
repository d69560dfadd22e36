//! The position that each other replica has acknowledged to this leader. Every append carries it: a replica that has
//! less holds an older copy of its disk, or its disk lied, and entries that a quorum held may be lost.

use std::sync::{Mutex, PoisonError};

use crate::record::{Ballot, Position};

/// The last entry that a replica acknowledged, with the leader's term at that time. It is void for later leaders,
/// which may cut entries that no quorum holds.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged(Mutex<Option<(u64, Position)>>);

impl Acknowledged {
    /// The entry is durable there, by an answer to this node as leader of `term`.
    pub(crate) fn note(&self, term: u64, at: Position) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none_or(|known| known < (term, at)) {
            *known = Some((term, at));
        }
    }

    /// The acknowledged position of that term.
    pub(crate) fn in_term(&self, term: u64) -> Option<Position> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).filter(|known| known.0 == term).map(|known| known.1)
    }
}

/// Whether a replica with this vote and this last entry has lost what it acknowledged to the leader with `vote`. A
/// replica that has voted for a later leader may have cut the entry.
pub(crate) fn has_forgotten(
    (own_vote, last): (Option<Ballot>, Option<Position>),
    vote: Ballot,
    acknowledged: Option<Position>,
) -> bool {
    let rank = |ballot: Ballot| (ballot.term, ballot.node);
    // Positions grow along a log, by term and then by index, and a leader's entries arrive in order: a replica with a
    // later entry has this one.
    own_vote.is_none_or(|own| rank(own) <= rank(vote)) && acknowledged.is_some_and(|at| last < Some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(term: u64, index: u64) -> Position {
        Position { term, node: 1, index }
    }

    #[test]
    fn what_was_acknowledged_only_grows_and_counts_in_its_term() {
        let acknowledged = Acknowledged::default();
        assert_eq!(acknowledged.in_term(3), None);
        acknowledged.note(3, at(3, 7));
        acknowledged.note(3, at(2, 5));
        assert_eq!(acknowledged.in_term(3), Some(at(3, 7)), "an older answer that came late");
        assert_eq!(acknowledged.in_term(4), None, "a later leader starts afresh");
        acknowledged.note(4, at(2, 5));
        acknowledged.note(3, at(3, 8));
        assert_eq!((acknowledged.in_term(3), acknowledged.in_term(4)), (None, Some(at(2, 5))));
    }

    #[test]
    fn who_has_less_than_it_acknowledged_has_forgotten_it() {
        let vote = Ballot { term: 5, node: 1, committed: true };
        let forgotten = |own_term, last, acknowledged| {
            let own = Ballot { term: own_term, node: 1, committed: true };
            has_forgotten((Some(own), last), vote, acknowledged)
        };
        assert!(!forgotten(5, Some(at(5, 9)), None), "nothing was acknowledged");
        assert!(!forgotten(5, Some(at(5, 9)), Some(at(5, 9))));
        assert!(forgotten(5, Some(at(5, 8)), Some(at(5, 9))));
        assert!(forgotten(4, Some(at(4, 12)), Some(at(5, 9))), "a tail of before that is longer and was cut");
        assert!(forgotten(5, None, Some(at(1, 0))));
        assert!(!forgotten(6, Some(at(4, 3)), Some(at(5, 9))), "a later leader may have cut it");
        assert!(has_forgotten((None, None), vote, Some(at(5, 9))), "an empty disk");
    }
}
