//! A simulated disk: it outlives the replica, and a crash loses what no barrier has made durable.

use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::engine::{Batch, LogEngine, Slot};
use super::frame;
use super::memory::Values;

/// The disk of one replica; a cheap handle that the simulation keeps across the replica's boots.
#[derive(Clone, Debug)]
pub struct SimulatedDisk(Arc<Mutex<Disk>>);

#[derive(Debug)]
struct Disk {
    /// What a crash leaves intact.
    durable: Values,
    /// Written after the last barrier, in order.
    unsynced: Vec<Batch>,
    /// What reads see: both of these.
    values: Values,
    /// The number of the open that may use it; earlier opens are stale.
    boot: u64,
    random: u64,
    barrier_max: Duration,
    /// A planted fault: barriers return without making anything durable.
    lies: bool,
    lost: u64,
}

impl SimulatedDisk {
    /// An empty disk whose barriers take up to `barrier_max`. The seed determines their durations, and what a crash
    /// leaves.
    #[must_use]
    pub fn new(seed: u64, barrier_max: Duration) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            durable: Values::default(),
            unsynced: Vec::new(),
            values: Values::default(),
            boot: 0,
            random: seed,
            barrier_max,
            lies: false,
            lost: 0,
        })))
    }

    /// This disk with a planted fault: its barriers return, but a power cut loses what they covered.
    #[must_use]
    pub fn lying(self) -> Self {
        self.disk().lies = true;
        self
    }

    /// Cuts the power: of the writes after the last barrier a prefix survives, possibly an empty one. The replica that
    /// had the disk open loses it.
    pub fn crash(&self) {
        let mut disk = self.disk();
        let unsynced = std::mem::take(&mut disk.unsynced);
        let kept = disk.draw(unsynced.len() as u64 + 1) as usize;
        disk.lost += (unsynced.len() - kept) as u64;
        for batch in unsynced.into_iter().take(kept) {
            disk.durable.apply(batch);
        }
        disk.values = disk.durable.clone();
        disk.boot += 1;
    }

    /// Kills the process but not the machine: everything written survives. The replica that had the disk open loses
    /// it.
    pub fn kill(&self) {
        self.disk().boot += 1;
    }

    /// A separate disk with the present contents of this one, all durable, like a copy of a volume.
    #[must_use]
    pub fn copy(&self) -> Self {
        let disk = self.disk();
        Self(Arc::new(Mutex::new(Disk {
            durable: disk.values.clone(),
            unsynced: Vec::new(),
            values: disk.values.clone(),
            boot: 0,
            random: disk.random,
            barrier_max: disk.barrier_max,
            lies: disk.lies,
            lost: 0,
        })))
    }

    /// The term of the vote that a power cut would leave; none if it would leave no vote.
    #[must_use]
    pub fn durable_term(&self) -> Option<u64> {
        let vote = self.disk().durable.slot(Slot::Vote)?;
        frame::decode_ballot(&vote).ok().map(|ballot| ballot.term)
    }

    /// Writes lost in crashes so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.disk().lost
    }

    /// How long the next barrier takes.
    pub(crate) fn barrier_time(&self) -> Duration {
        let mut disk = self.disk();
        let most = u64::try_from(disk.barrier_max.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(disk.draw(most.saturating_add(1)))
    }

    /// Opens the disk as an engine; earlier opens become stale.
    pub(crate) fn open(&self) -> SimulatedEngine {
        SimulatedEngine { boot: self.disk().boot, disk: self.clone() }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    /// A number below `bound` (SplitMix64).
    fn draw(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

/// One open of a [`SimulatedDisk`].
#[derive(Debug)]
pub(crate) struct SimulatedEngine {
    boot: u64,
    disk: SimulatedDisk,
}

impl SimulatedEngine {
    fn disk(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.disk.disk();
        if disk.boot == self.boot { Ok(disk) } else { Err(io::Error::other("the machine has lost its power")) }
    }
}

impl LogEngine for SimulatedEngine {
    fn write(&self, batch: Batch) -> io::Result<()> {
        let mut disk = self.disk()?;
        disk.values.apply(batch.clone());
        disk.unsynced.push(batch);
        Ok(())
    }

    fn barrier(&self) -> io::Result<()> {
        let mut disk = self.disk()?;
        if disk.lies {
            return Ok(());
        }
        #[cfg(feature = "planted-faults")]
        if crate::planted::is(crate::planted::Bug::VotesNotSynced)
            && disk.unsynced.iter().all(|batch| batch.entries.is_empty())
        {
            return Ok(());
        }
        for batch in std::mem::take(&mut disk.unsynced) {
            disk.durable.apply(batch);
        }
        Ok(())
    }

    fn read(&self, range: RangeInclusive<u64>, bytes_max: usize) -> io::Result<Vec<(u64, Bytes)>> {
        Ok(self.disk()?.values.read(range, bytes_max))
    }

    fn slot(&self, slot: Slot) -> io::Result<Option<Bytes>> {
        Ok(self.disk()?.values.slot(slot))
    }

    fn bounds(&self) -> io::Result<Option<(u64, u64)>> {
        Ok(self.disk()?.values.bounds())
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(byte: u8) -> Batch {
        Batch { slots: vec![(Slot::Vote, Bytes::from(vec![byte]))], ..Batch::default() }
    }

    #[test]
    fn a_crash_leaves_what_a_barrier_covered_and_some_first_part_of_the_rest() {
        let mut left = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let disk = SimulatedDisk::new(seed, Duration::ZERO);
            let engine = disk.open();
            engine.write(vote(1)).unwrap();
            engine.barrier().unwrap();
            engine.write(vote(2)).unwrap();
            engine.write(vote(3)).unwrap();
            assert_eq!(engine.slot(Slot::Vote).unwrap().unwrap()[0], 3, "reads see what was written");
            disk.crash();
            assert!(engine.write(vote(4)).is_err(), "the boot before the crash is over");
            left.insert(disk.open().slot(Slot::Vote).unwrap().unwrap()[0]);
        }
        assert_eq!(left.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_copy_knows_nothing_of_what_is_written_later() {
        let disk = SimulatedDisk::new(7, Duration::ZERO);
        let engine = disk.open();
        engine.write(vote(1)).unwrap();
        let copy = disk.copy();
        engine.write(vote(2)).unwrap();
        copy.crash();
        assert_eq!(copy.open().slot(Slot::Vote).unwrap().unwrap()[0], 1);
        assert_eq!(engine.slot(Slot::Vote).unwrap().unwrap()[0], 2);
    }

    #[test]
    fn the_engine_contract_holds() {
        crate::log::contract::honours_the_contract(&SimulatedDisk::new(7, Duration::ZERO).open());
    }
}
