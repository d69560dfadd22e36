//! Checks a log store at a node's start: what to accept, cut or refuse.

use std::io;

use super::chain::Link;
use super::engine::{Batch, LogEngine, Slot};
use super::frame::{self, FrameError, Stamp};
use crate::limits::{READ_BYTES_MAX, REMOVE_STEP_ENTRIES};
use crate::record::{Ballot, Position};

/// Why a log store is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoveryError {
    #[error("log store fails: {0}")]
    Io(#[from] io::Error),
    #[error(
        "log store belongs to node {found_node} of cluster \"{found_cluster}\", this is node {node} of \"{cluster}\""
    )]
    Foreign { found_cluster: String, found_node: u64, cluster: String, node: u64 },
    #[error("log store is damaged at {place}: {reason}")]
    Damaged { place: String, reason: String },
}

fn damaged(place: impl Into<String>) -> impl FnOnce(FrameError) -> RecoveryError {
    let place = place.into();
    move |error| RecoveryError::Damaged { place, reason: error.to_string() }
}

/// The result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    pub(crate) vote: Option<Ballot>,
    pub(crate) committed: Option<Position>,
    pub(crate) purged: Option<Position>,
    /// The last entry, or the purged position when there is none.
    pub(crate) last: Option<Position>,
    /// Number of the last batch.
    pub(crate) step: u64,
    /// Links of the purged position and of the last entry.
    pub(crate) links: (Link, Link),
}

/// Checks the stamp (or writes it on an empty store), finishes what a crash interrupted, verifies every entry.
///
/// `witnessed` is the batch up to which everything was durable at the last acknowledgement: a store that ends before
/// it has lost entries that may have been acknowledged. Entries and the index after the last of them are written in
/// one atomic batch, so entries beyond that index belong to a batch that was never acknowledged and are cut. Any
/// damage below it may concern acknowledged entries: the node refuses to start and has to rejoin under a new id.
pub(crate) fn recover(engine: &dyn LogEngine, stamp: &Stamp, witnessed: u64) -> Result<Recovered, RecoveryError> {
    let step = match engine.slot(Slot::Step)? {
        Some(bytes) => frame::decode_step(&bytes).map_err(damaged("the step"))?,
        None => 0,
    };
    if step < witnessed {
        let reason = format!("it ends with batch {step}, batch {witnessed} was durable");
        return Err(RecoveryError::Damaged { place: "the log store".to_owned(), reason });
    }
    check_stamp(engine, stamp)?;
    let vote = match engine.slot(Slot::Vote)? {
        Some(bytes) => Some(frame::decode_ballot(&bytes).map_err(damaged("the vote"))?),
        None => None,
    };
    let (purged, base) = position(engine, Slot::Purged, "the purged mark")?.unzip();
    let base = base.unwrap_or_default();
    let committed = position(engine, Slot::Committed, "the committed mark")?.map(|(at, _)| at);
    let (next, marked) = match engine.slot(Slot::Next)? {
        Some(bytes) => frame::decode_next(&bytes).map_err(damaged("the end mark"))?,
        None => (0, None),
    };
    let first = purged.map_or(0, |at| at.index.saturating_add(1));
    let next = next.max(first);
    if let Some((lowest, highest)) = engine.bounds()? {
        if lowest < first {
            // The purged position may be far beyond the last entry.
            remove(engine, lowest, first.min(highest.saturating_add(1)))?;
        }
        if highest >= next {
            tracing::warn!(from = next, to = highest, "cutting entries of a batch that was never acknowledged");
            remove(engine, next, highest.saturating_add(1))?;
        }
    }
    // Everything read from here on counts as durable, so it must be, also what a killed predecessor had not synced.
    engine.barrier()?;
    let (last, link) = verify(engine, first, next, base)?;
    if let (Some(last), Some((marked, its_link))) = (last, marked)
        && (last, link) != (marked, its_link)
    {
        let reason = format!("an entry of term {}, of term {} another one was written last", last.term, marked.term);
        return Err(RecoveryError::Damaged { place: format!("entry {}", last.index), reason });
    }
    let last = last.or(purged);
    // Only a hint: a commit beyond the local log cannot be replayed from it.
    let committed = committed.filter(|at| last.is_some_and(|last| at.index <= last.index));
    Ok(Recovered { vote, committed, purged, last, step, links: (base, link) })
}

fn check_stamp(engine: &dyn LogEngine, stamp: &Stamp) -> Result<(), RecoveryError> {
    let Some(bytes) = engine.slot(Slot::Stamp)? else {
        if engine.bounds()?.is_some() || engine.slot(Slot::Vote)?.is_some() {
            let reason = "entries or a vote are there, the stamp is not".to_owned();
            return Err(RecoveryError::Damaged { place: "the stamp".to_owned(), reason });
        }
        engine.write(Batch { slots: vec![(Slot::Stamp, frame::encode_stamp(stamp).into())], ..Batch::default() })?;
        engine.barrier()?;
        return Ok(());
    };
    let found = frame::decode_stamp(&bytes).map_err(damaged("the stamp"))?;
    if found != *stamp {
        return Err(RecoveryError::Foreign {
            found_cluster: found.cluster,
            found_node: found.node,
            cluster: stamp.cluster.clone(),
            node: stamp.node,
        });
    }
    Ok(())
}

fn position(engine: &dyn LogEngine, slot: Slot, place: &str) -> Result<Option<(Position, Link)>, RecoveryError> {
    match engine.slot(slot)? {
        Some(bytes) => Ok(Some(frame::decode_position(&bytes).map_err(damaged(place))?)),
        None => Ok(None),
    }
}

/// Removes `from..to` from the end backwards, so that a crash in between leaves no hole.
fn remove(engine: &dyn LogEngine, from: u64, to: u64) -> io::Result<()> {
    let mut to = to;
    while to > from {
        let step = to.saturating_sub(REMOVE_STEP_ENTRIES).max(from);
        engine.write(Batch { remove: Some(step..=to - 1), ..Batch::default() })?;
        to = step;
    }
    Ok(())
}

/// Reads `first..next` once, in order, and checks each entry and its link, the first one's against `base`; returns the
/// last position and its link.
fn verify(
    engine: &dyn LogEngine,
    first: u64,
    next: u64,
    base: Link,
) -> Result<(Option<Position>, Link), RecoveryError> {
    let (mut expected, mut link) = (first, base);
    let mut last: Option<Position> = None;
    while expected < next {
        let found = engine.read(expected..=next - 1, READ_BYTES_MAX)?;
        if found.is_empty() {
            let place = format!("entry {expected}");
            return Err(RecoveryError::Damaged { place, reason: format!("missing, the log ends at {}", next - 1) });
        }
        for (index, bytes) in found {
            let place = format!("entry {expected}");
            if index != expected {
                return Err(RecoveryError::Damaged { place, reason: format!("missing, entry {index} follows") });
            }
            let (record, own) = frame::decode_record(&bytes).map_err(damaged(place.clone()))?;
            if record.at.index != index {
                let reason = format!("the entry says that it is {}", record.at.index);
                return Err(RecoveryError::Damaged { place, reason });
            }
            if last.is_some_and(|last| last > record.at) {
                let reason = format!("term {} of its leader is older than the entry before", record.at.term);
                return Err(RecoveryError::Damaged { place, reason });
            }
            link = frame::link_after(link, &bytes);
            if link != own {
                let reason = "it or one before it is another one than was written last".to_owned();
                return Err(RecoveryError::Damaged { place, reason });
            }
            last = Some(record.at);
            expected += 1;
        }
    }
    Ok((last, link))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::log::memory::MemoryEngine;
    use crate::record::{Body, Record};

    fn stamp() -> Stamp {
        Stamp { cluster: "blue".into(), node: 1 }
    }

    fn at(index: u64) -> Position {
        Position { term: 1, node: 1, index }
    }

    /// Blank entries from `first` on with these terms, linked to `before`; and the last link.
    fn chain(first: u64, before: Link, terms: &[u64]) -> (Vec<(u64, Bytes)>, Link) {
        let mut link = before;
        let entries = (first..).zip(terms).map(|(index, &term)| {
            let (frame, own) =
                frame::encode_record(&Record { at: Position { term, ..at(index) }, body: Body::Blank }, link);
            link = own;
            (index, Bytes::from(frame))
        });
        (entries.collect(), link)
    }

    fn entry(index: u64) -> (u64, Bytes) {
        chain(0, Link::default(), &[1; 8]).0[index as usize].clone()
    }

    /// The end mark behind the entries 0 to 4.
    fn end() -> (Slot, Bytes) {
        let link = chain(0, Link::default(), &[1; 5]).1;
        (Slot::Next, frame::encode_next(5, Some((at(4), link))).into())
    }

    /// A store that holds entries 0 to 4.
    fn five_entries() -> MemoryEngine {
        let engine = MemoryEngine::default();
        recover(&engine, &stamp(), 0).expect("an empty store is fine");
        engine
            .write(Batch { entries: (0..5).map(entry).collect(), slots: vec![end()], ..Batch::default() })
            .expect("write");
        engine
    }

    #[test]
    fn an_intact_store_is_taken_as_it_is() {
        assert_eq!(recover(&five_entries(), &stamp(), 0).expect("recovers").last, Some(at(4)));
    }

    #[test]
    fn entries_beyond_the_end_mark_are_cut() {
        let engine = five_entries();
        engine.write(Batch { entries: vec![entry(5), entry(7)], ..Batch::default() }).expect("write");
        assert_eq!(recover(&engine, &stamp(), 0).expect("recovers").last, Some(at(4)));
        assert_eq!(engine.bounds().expect("bounds"), Some((0, 4)));
    }

    #[test]
    fn an_older_entry_in_the_place_of_the_last_is_damage() {
        let engine = five_entries();
        let newer = Position { term: 2, ..at(4) };
        let (entries, link) = chain(0, Link::default(), &[1, 1, 1, 1, 2]);
        let slots = vec![(Slot::Next, frame::encode_next(5, Some((newer, link))).into())];
        engine.write(Batch { entries, slots, ..Batch::default() }).expect("write");
        assert_eq!(recover(&engine, &stamp(), 0).expect("recovers").last, Some(newer));
        engine.write(Batch { entries: vec![entry(4)], ..Batch::default() }).expect("the page of before");
        let refused = recover(&engine, &stamp(), 0).unwrap_err().to_string();
        assert!(refused.contains("entry 4") && refused.contains("of term 2 another one was written last"), "{refused}");
    }

    #[test]
    fn an_older_entry_of_the_same_term_in_the_middle_is_damage() {
        let command =
            |text: &'static str| Record { at: at(2), body: Body::Command(Bytes::from_static(text.as_bytes())) };
        let (mut entries, link) = chain(0, Link::default(), &[1, 1]);
        let (new, link_2) = frame::encode_record(&command("new"), link);
        let (old, _) = frame::encode_record(&command("old"), link);
        entries.push((2, new.into()));
        let (after, last) = chain(3, link_2, &[1, 1]);
        entries.extend(after);
        let engine = five_entries();
        let slots = vec![(Slot::Next, frame::encode_next(5, Some((at(4), last))).into())];
        engine.write(Batch { entries, slots, ..Batch::default() }).expect("write");
        assert_eq!(recover(&engine, &stamp(), 0).expect("recovers").links, (Link::default(), last));
        // Intact, with the right place and term, and formerly linked correctly: from before a truncation.
        engine.write(Batch { entries: vec![(2, old.into())], ..Batch::default() }).expect("the page of before");
        let refused = recover(&engine, &stamp(), 0).unwrap_err().to_string();
        assert!(refused.contains("entry 3") && refused.contains("or one before it"), "{refused}");
    }

    #[test]
    fn an_interrupted_purge_is_finished() {
        let engine = five_entries();
        let link = chain(0, Link::default(), &[1; 3]).1;
        let slots = vec![(Slot::Purged, frame::encode_position(at(2), link).into())];
        engine.write(Batch { remove: Some(0..=0), slots, ..Batch::default() }).expect("write");
        let recovered = recover(&engine, &stamp(), 0).expect("recovers");
        assert_eq!((recovered.purged, recovered.last), (Some(at(2)), Some(at(4))));
        assert_eq!(engine.bounds().expect("bounds"), Some((3, 4)));
        // The first remaining entry is linked to the mark.
        let slots = vec![(Slot::Purged, frame::encode_position(at(2), Link::default()).into())];
        engine.write(Batch { slots, ..Batch::default() }).expect("write");
        let refused = recover(&engine, &stamp(), 0).unwrap_err().to_string();
        assert!(refused.contains("entry 3"), "{refused}");
    }

    #[test]
    fn an_interrupted_purge_far_beyond_the_last_entry_is_finished() {
        let engine = five_entries();
        let far = at(1 << 50);
        let slots = vec![(Slot::Purged, frame::encode_position(far, Link::default()).into())];
        engine.write(Batch { slots, ..Batch::default() }).expect("write");
        let recovered = recover(&engine, &stamp(), 0).expect("recovers");
        assert_eq!((recovered.purged, recovered.last), (Some(far), Some(far)));
        assert_eq!(engine.bounds().expect("bounds"), None);
    }

    #[test]
    fn a_hole_is_damage() {
        let engine = five_entries();
        engine.write(Batch { remove: Some(2..=2), ..Batch::default() }).expect("write");
        assert!(
            matches!(recover(&engine, &stamp(), 0), Err(RecoveryError::Damaged { place, .. }) if place == "entry 2")
        );
    }

    #[test]
    fn a_lost_tail_is_damage() {
        let engine = five_entries();
        engine.write(Batch { remove: Some(4..=4), ..Batch::default() }).expect("write");
        assert!(
            matches!(recover(&engine, &stamp(), 0), Err(RecoveryError::Damaged { place, .. }) if place == "entry 4")
        );
    }

    #[test]
    fn a_flipped_bit_is_damage() {
        let engine = five_entries();
        let mut bytes = entry(3).1.to_vec();
        bytes[20] ^= 1;
        engine.write(Batch { entries: vec![(3, bytes.into())], ..Batch::default() }).expect("write");
        assert!(
            matches!(recover(&engine, &stamp(), 0), Err(RecoveryError::Damaged { place, .. }) if place == "entry 3")
        );
    }

    #[test]
    fn a_misplaced_entry_is_damage() {
        let engine = five_entries();
        engine.write(Batch { entries: vec![(3, entry(2).1)], ..Batch::default() }).expect("write");
        assert!(
            matches!(recover(&engine, &stamp(), 0), Err(RecoveryError::Damaged { place, .. }) if place == "entry 3")
        );
    }

    #[test]
    fn a_store_that_ends_before_what_was_witnessed_is_damaged() {
        let engine = five_entries();
        let slots = vec![(Slot::Step, frame::encode_step(7).into())];
        engine.write(Batch { slots, ..Batch::default() }).expect("write");
        assert_eq!(recover(&engine, &stamp(), 7).expect("recovers").step, 7);
        let lost = recover(&engine, &stamp(), 8);
        assert!(matches!(lost, Err(RecoveryError::Damaged { reason, .. }) if reason.contains("batch 8 was durable")));
    }

    #[test]
    fn a_foreign_disk_is_refused() {
        let engine = five_entries();
        for (cluster, node) in [("blue", 2), ("green", 1)] {
            let other = Stamp { cluster: cluster.into(), node };
            assert!(matches!(recover(&engine, &other, 0), Err(RecoveryError::Foreign { found_node: 1, .. })));
        }
    }
}
