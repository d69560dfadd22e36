//! The contract of storage engines, run against each of them.

use std::io;
use std::path::Path;

use bytes::Bytes;

use super::engine::{Batch, LogEngine, Slot};
use super::memory::MemoryEngine;
use super::redb::RedbEngine;
use super::sled::SledEngine;

fn value(index: u64) -> Bytes {
    Bytes::from(format!("entry {index}"))
}

fn put(range: std::ops::Range<u64>) -> Batch {
    Batch { entries: range.map(|index| (index, value(index))).collect(), ..Batch::default() }
}

fn indexes(engine: &dyn LogEngine, range: std::ops::RangeInclusive<u64>, bytes_max: usize) -> Vec<u64> {
    let found = engine.read(range, bytes_max).expect("reads");
    assert!(found.iter().all(|(index, bytes)| *bytes == value(*index)), "an entry has another's value");
    found.into_iter().map(|(index, _)| index).collect()
}

pub(crate) fn honours_the_contract(engine: &dyn LogEngine) {
    // Phase 1: an empty store has nothing.
    assert_eq!(engine.bounds().expect("bounds"), None);
    assert_eq!(engine.slot(Slot::Vote).expect("slot"), None);
    assert!(indexes(engine, 0..=u64::MAX, usize::MAX).is_empty());

    // Phase 2: what is written is read, in order and across the widths of an index.
    engine.write(put(250..260)).expect("writes");
    engine.write(put(65_530..65_540)).expect("writes");
    let last = Batch { entries: vec![(u64::MAX, value(u64::MAX))], ..Batch::default() };
    engine.write(last).expect("writes the last index there is");
    assert_eq!(engine.bounds().expect("bounds"), Some((250, u64::MAX)));
    assert_eq!(indexes(engine, 254..=257, usize::MAX), [254, 255, 256, 257]);
    assert_eq!(indexes(engine, 0..=u64::MAX, usize::MAX).len(), 21);
    #[allow(clippy::reversed_empty_ranges)]
    let backwards = 9..=3;
    assert!(indexes(engine, backwards, usize::MAX).is_empty());

    // Phase 3: a bound stops a read, but never before the first entry.
    assert_eq!(indexes(engine, 250..=259, 0), [250]);
    let two = value(250).len() + 1;
    assert_eq!(indexes(engine, 250..=259, two), [250, 251]);

    // Phase 4: in one batch, removals come before values.
    let slots = vec![(Slot::Vote, Bytes::from_static(b"one")), (Slot::Vote, Bytes::from_static(b"two"))];
    engine.write(Batch { remove: Some(0..=u64::MAX), slots, ..put(7..9) }).expect("writes");
    assert_eq!(indexes(engine, 0..=u64::MAX, usize::MAX), [7, 8]);
    assert_eq!(engine.slot(Slot::Vote).expect("slot").as_deref(), Some(b"two".as_slice()), "the later value wins");
    assert_eq!(engine.slot(Slot::Next).expect("slot"), None);

    // Phase 5: a shorter value replaces a longer one wholly; removing what is not there is nothing.
    let long = Batch { entries: vec![(7, Bytes::from(vec![0; 300_000]))], ..Batch::default() };
    engine.write(long).expect("writes");
    engine.write(Batch { remove: Some(7..=7), ..put(7..8) }).expect("writes");
    engine.write(Batch { remove: Some(100..=200), ..Batch::default() }).expect("removes nothing");
    assert_eq!(indexes(engine, 0..=u64::MAX, usize::MAX), [7, 8]);
    engine.barrier().expect("barrier");
    engine.disk_bytes().expect("knows its size");
}

#[test]
fn memory_honours_the_contract() {
    honours_the_contract(&MemoryEngine::default());
}

fn keeps_it_over_a_restart<E: LogEngine>(open: impl Fn(&Path) -> io::Result<E>) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let engine = open(dir.path()).expect("opens");
    honours_the_contract(&engine);
    drop(engine);
    let engine = open(dir.path()).expect("opens again");
    assert_eq!(indexes(&engine, 0..=u64::MAX, usize::MAX), [7, 8]);
}

#[test]
fn sled_honours_the_contract_and_keeps_it_over_a_restart() {
    keeps_it_over_a_restart(SledEngine::open);
}

#[test]
fn redb_honours_the_contract_and_keeps_it_over_a_restart() {
    keeps_it_over_a_restart(RedbEngine::open);
}
