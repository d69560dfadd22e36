//! What was asked for and what was promised, and whether a disk keeps it.

use std::collections::BTreeMap;

use crate::mark::{Found, Mark};
use crate::report::Lost;

/// An entry that was written at an index.
#[derive(Debug, Clone, Copy)]
struct Version {
    term: u64,
    op: u64,
    acked: bool,
}

#[derive(Debug, Clone, Copy)]
struct Ballot {
    vote: (u64, u64, bool),
    op: u64,
    acked: bool,
}

#[derive(Debug, Clone, Copy)]
struct Image {
    index: u64,
    hash: u64,
    op: u64,
    acked: bool,
}

/// Everything that an actor has printed so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    versions: BTreeMap<u64, Vec<Version>>,
    votes: Vec<Ballot>,
    images: Vec<Image>,
    truncates: Vec<(u64, u64)>,
    purges: Vec<u64>,
    last_acked_append: u64,
    pub(crate) acked: u64,
}

/// Whether the newest snapshot may be older than the last acknowledged one, as long as the log makes up for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Snapshots {
    MustBeThere,
    MayBeDamaged,
}

impl History {
    /// Takes note. Returns what contradicts earlier marks.
    pub(crate) fn note(&mut self, mark: &Mark) -> Vec<Lost> {
        match mark {
            Mark::Begin | Mark::End | Mark::Refused(_) | Mark::Failed { .. } => Vec::new(),
            Mark::Found(found) => {
                let lost = self.check(found, Snapshots::MustBeThere);
                self.rely_on(found);
                lost
            }
            Mark::Append { op, term, first, last } => {
                for index in *first..=*last {
                    self.versions.entry(index).or_default().push(Version { term: *term, op: *op, acked: false });
                }
                Vec::new()
            }
            Mark::Vote { op, vote } => {
                self.votes.push(Ballot { vote: *vote, op: *op, acked: false });
                Vec::new()
            }
            Mark::Truncate { op, first } => {
                self.truncates.push((*op, *first));
                Vec::new()
            }
            Mark::Purge { through, .. } => {
                self.purges.push(*through);
                Vec::new()
            }
            Mark::Snapshot { op, index, hash } => {
                self.images.push(Image { index: *index, hash: *hash, op: *op, acked: false });
                Vec::new()
            }
            Mark::Acked { op } => self.acknowledge(*op),
        }
    }

    fn acknowledge(&mut self, op: u64) -> Vec<Lost> {
        self.acked += 1;
        let mut lost = Vec::new();
        let mut is_append = false;
        for version in self.versions.values_mut().flatten().filter(|version| version.op == op) {
            version.acked = true;
            is_append = true;
        }
        if is_append {
            if op < self.last_acked_append {
                lost.push(Lost::new("order", format!("append {op} was acknowledged after {}", self.last_acked_append)));
            }
            self.last_acked_append = self.last_acked_append.max(op);
        }
        self.votes.iter_mut().filter(|ballot| ballot.op == op).for_each(|ballot| ballot.acked = true);
        self.images.iter_mut().filter(|image| image.op == op).for_each(|image| image.acked = true);
        lost
    }

    /// What an actor found is what it builds on: from here on it counts as promised, and nothing else does.
    pub(crate) fn rely_on(&mut self, found: &Found) {
        let acked = self.acked;
        let acked_version = |term| vec![Version { term, op: 0, acked: true }];
        *self = Self {
            versions: found.entries().map(|(index, term)| (index, acked_version(term))).collect(),
            votes: found.vote.iter().map(|&vote| Ballot { vote, op: 0, acked: true }).collect(),
            images: found.snapshot.iter().map(|&(index, hash)| Image { index, hash, op: 0, acked: true }).collect(),
            purges: found.purged.into_iter().collect(),
            acked,
            ..Self::default()
        };
    }

    /// Whether a disk keeps everything that was promised and holds nothing that was never written.
    pub(crate) fn check(&self, found: &Found, snapshots: Snapshots) -> Vec<Lost> {
        let mut lost = Vec::new();
        self.check_vote(found, &mut lost);
        self.check_entries(found, &mut lost);
        self.check_snapshot(found, snapshots, &mut lost);
        lost
    }

    fn check_vote(&self, found: &Found, lost: &mut Vec<Lost>) {
        let promised = self.votes.iter().rposition(|ballot| ballot.acked);
        let held = found.vote.map(|vote| (vote, self.votes.iter().rposition(|ballot| ballot.vote == vote)));
        match (promised, held) {
            (_, Some((vote, None))) => lost.push(Lost::new("vote", format!("vote {vote:?} was never cast"))),
            (Some(promised), Some((vote, Some(at)))) if at < promised => {
                let newer = self.votes[promised].vote;
                lost.push(Lost::new("vote", format!("vote {newer:?} was acknowledged, {vote:?} is there")));
            }
            (Some(promised), None) => {
                let vote = self.votes[promised].vote;
                lost.push(Lost::new("vote", format!("vote {vote:?} was acknowledged, none is there")));
            }
            _ => {}
        }
    }

    fn check_entries(&self, found: &Found, lost: &mut Vec<Lost>) {
        let there: BTreeMap<u64, u64> = found.entries().collect();
        if let Some(purged) = found.purged
            && !self.purges.iter().any(|&through| through >= purged)
        {
            lost.push(Lost::new("purge", format!("entries up to {purged} are purged, nobody asked for that")));
        }
        for (&index, &term) in &there {
            let versions = self.versions.get(&index).map_or(&[][..], Vec::as_slice);
            match versions.iter().rposition(|version| version.term == term) {
                None => lost.push(Lost::new("entry", format!("entry {index} of term {term} was never written"))),
                Some(at) => {
                    if let Some(newer) = versions[at + 1..].iter().find(|version| version.acked) {
                        let text = format!("entry {index} of term {} was acknowledged, {term} is there", newer.term);
                        lost.push(Lost::new("entry", text));
                    }
                }
            }
        }
        let gone = self.versions.iter().filter(|(index, _)| !there.contains_key(index) && Some(**index) > found.purged);
        for (&index, versions) in gone {
            let Some(promised) = versions.iter().rev().find(|version| version.acked) else { continue };
            let truncated = self.truncates.iter().any(|&(op, first)| op > promised.op && first <= index);
            if !truncated {
                let text = format!("entry {index} of term {} was acknowledged and is gone", promised.term);
                lost.push(Lost::new("entry", text));
            }
        }
    }

    fn check_snapshot(&self, found: &Found, snapshots: Snapshots, lost: &mut Vec<Lost>) {
        let promised = self.images.iter().filter(|image| image.acked).map(|image| image.index).max();
        let held = found.snapshot.map(|(index, _)| index);
        if held < promised && snapshots == Snapshots::MustBeThere {
            lost.push(Lost::new("snapshot", format!("{promised:?} was acknowledged, {held:?} is there")));
        }
        if found.purged > held {
            lost.push(Lost::new(
                "snapshot",
                format!("log is purged up to {:?}, the snapshot is {held:?}", found.purged),
            ));
        }
        if let Some((index, hash)) = found.snapshot
            && !self.images.iter().any(|image| (image.index, image.hash) == (index, hash))
        {
            lost.push(Lost::new("snapshot", format!("the state at {index} has the hash {hash:#x}, none was taken so")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appended(op: u64, term: u64, first: u64, last: u64) -> [Mark; 2] {
        [Mark::Append { op, term, first, last }, Mark::Acked { op }]
    }

    fn history(marks: &[Mark]) -> History {
        let mut history = History::default();
        marks.iter().for_each(|mark| assert_eq!(history.note(mark), Vec::new()));
        history
    }

    fn found(runs: &[(u64, u64, u64)]) -> Found {
        Found { runs: runs.to_vec(), ..Found::default() }
    }

    fn kinds(history: &History, found: &Found) -> Vec<&'static str> {
        history.check(found, Snapshots::MustBeThere).iter().map(|lost| lost.what).collect()
    }

    #[test]
    fn entries_that_were_promised_must_be_there_as_they_were() {
        let [append, acked] = appended(1, 2, 0, 3);
        let unacked = Mark::Append { op: 2, term: 2, first: 4, last: 5 };
        let history = history(&[append, acked, unacked]);
        assert_eq!(kinds(&history, &found(&[(2, 0, 3)])), [""; 0]);
        assert_eq!(kinds(&history, &found(&[(2, 0, 5)])), [""; 0], "what was not promised may be there");
        assert_eq!(kinds(&history, &found(&[(2, 0, 2)])), ["entry"], "one is lost");
        assert_eq!(kinds(&history, &found(&[(2, 0, 2), (3, 3, 3)])), ["entry"], "one was never written");
        assert_eq!(kinds(&history, &found(&[(2, 0, 6)])), ["entry"]);
    }

    #[test]
    fn a_truncated_entry_may_come_back_until_it_was_replaced() {
        let [append, acked] = appended(1, 1, 0, 3);
        let truncate = Mark::Truncate { op: 2, first: 2 };
        let before = history(&[append.clone(), acked.clone(), truncate.clone()]);
        assert_eq!(kinds(&before, &found(&[(1, 0, 1)])), [""; 0]);
        assert_eq!(kinds(&before, &found(&[(1, 0, 3)])), [""; 0]);
        assert_eq!(kinds(&before, &found(&[(1, 0, 0)])), ["entry"], "this one was not truncated");
        let [again, acked_again] = appended(3, 2, 2, 2);
        let after = history(&[append, acked, truncate, again, acked_again]);
        assert_eq!(kinds(&after, &found(&[(1, 0, 1), (2, 2, 2)])), [""; 0]);
        assert_eq!(kinds(&after, &found(&[(1, 0, 3)])), ["entry"], "the old one must not be seen again");
    }

    #[test]
    fn votes_snapshots_and_order_are_promises_too() {
        let vote = |op, term| [Mark::Vote { op, vote: (term, 1, false) }, Mark::Acked { op }];
        let with = |term| Found { vote: Some((term, 1, false)), ..Found::default() };
        let voted = history(&[vote(1, 3), vote(2, 4)].concat());
        assert_eq!(kinds(&voted, &with(4)), [""; 0]);
        assert_eq!(kinds(&voted, &with(3)), ["vote"]);
        assert_eq!(kinds(&voted, &with(9)), ["vote"]);
        assert_eq!(kinds(&voted, &Found::default()), ["vote"]);

        let taken = history(&[Mark::Snapshot { op: 1, index: 5, hash: 7 }, Mark::Acked { op: 1 }]);
        let held = |snapshot| Found { snapshot, ..Found::default() };
        assert_eq!(kinds(&taken, &held(Some((5, 7)))), [""; 0]);
        assert_eq!(kinds(&taken, &held(Some((5, 8)))), ["snapshot"]);
        assert_eq!(kinds(&taken, &held(None)), ["snapshot"]);

        let mut unordered = history(&[Mark::Append { op: 1, term: 1, first: 0, last: 0 }]);
        unordered.note(&Mark::Append { op: 2, term: 1, first: 1, last: 1 });
        assert_eq!(unordered.note(&Mark::Acked { op: 2 }), Vec::new());
        assert_eq!(unordered.note(&Mark::Acked { op: 1 })[0].what, "order");
    }
}
