//! The child that works on a disk until it is stopped: what Raft would do with its storage, in random order.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_consensus::storage::{LogPosition, Opening, Plant, Storage, Vote};
use symphony_consensus::{Engine, OnDiskError};
use tokio::sync::watch;

use crate::command::{Applied, command};
use crate::mark::{Found, Mark};

/// Appends that may be under way at a time.
const UNDER_WAY_MAX: usize = 8;
const BATCH_MAX: u64 = 6;

/// The task of an actor.
#[derive(Debug, Clone)]
pub struct Actor {
    /// The replica's directory.
    pub dir: PathBuf,
    /// The engine that keeps the log.
    pub engine: Engine,
    /// What the commands are made of; the same for all actors on a disk.
    pub world: u64,
    /// What is done, and when.
    pub seed: u64,
    /// How many things are done; 0: until it is killed.
    pub operations: u64,
    /// The bug to plant.
    pub plant: Option<Plant>,
    /// Whether room is reserved for a full disk.
    pub with_ballast: bool,
}

impl Actor {
    /// Opens the disk, prints what it holds, works. A disk that cannot be opened is printed as well.
    ///
    /// # Errors
    /// The storage failed without ending the process.
    pub fn live(&self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Mark::Begin.say();
        let applied = Applied::default();
        let opening = Opening {
            engine: self.engine,
            on_disk_error: OnDiskError::Abort,
            plant: self.plant,
            with_ballast: self.with_ballast,
        };
        let began = Instant::now();
        let storage = match Storage::open(&self.dir, opening, applied.clone()) {
            Ok(storage) => storage,
            Err(error) => {
                Mark::Refused(error.to_string()).say();
                return Ok(());
            }
        };
        runtime.block_on(async {
            let mut work = Work::begin(self, storage, applied, began).await?;
            while self.operations == 0 || work.operations < self.operations {
                work.step().await?;
            }
            work.all_acked().await;
            work.storage.close().await;
            Mark::End.say();
            Ok(())
        })
    }
}

/// Opens nothing, but reads everything: what `storage` holds.
pub(crate) async fn read_back(
    storage: &mut Storage,
    applied: &Applied,
    world: u64,
    began: Instant,
) -> Result<Found, String> {
    let known = storage.known();
    let mut found = Found {
        vote: known.vote.map(|vote| (vote.term, vote.node, vote.committed)),
        purged: known.purged.map(|place| place.index),
        snapshot: known.snapshot.map(|_| (applied.sum().index, applied.sum().hash)),
        runs: Vec::new(),
        open_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    };
    if known.snapshot.map(|place| place.index) != found.snapshot.map(|(index, _)| index) {
        return Err(format!("the snapshot of {:?} holds the state of {:?}", known.snapshot, found.snapshot));
    }
    let mut next = known.purged.map_or(0, |place| place.index + 1);
    let end = known.last.map_or(0, |place| place.index + 1);
    while next < end {
        let entries = storage.read(next, end).await.map_err(|error| error.to_string())?;
        if entries.is_empty() {
            return Err(format!("entry {next} cannot be read, the log ends before {end}"));
        }
        for (place, bytes) in entries {
            if place.index != next || bytes != command(world, place) {
                return Err(format!("entry {next} was served as {place:?} with bytes that nobody wrote there"));
            }
            found.push(place.index, place.term);
            next += 1;
        }
    }
    Ok(found)
}

struct Work<'a> {
    actor: &'a Actor,
    storage: Storage,
    applied: Applied,
    random: Xoshiro256PlusPlus,
    operations: u64,
    term: u64,
    /// The terms of all stored entries.
    terms: BTreeMap<u64, u64>,
    next: u64,
    /// Appends that wait: operation and last index.
    under_way: VecDeque<(u64, u64)>,
    /// The last append that was acknowledged.
    acked: watch::Receiver<u64>,
    ack: watch::Sender<u64>,
    acked_index: Option<u64>,
    snapshot: Option<u64>,
    purged: Option<u64>,
}

impl<'a> Work<'a> {
    async fn begin(actor: &'a Actor, mut storage: Storage, applied: Applied, began: Instant) -> Result<Self> {
        let found = match read_back(&mut storage, &applied, actor.world, began).await {
            Ok(found) => found,
            Err(reason) => {
                Mark::Refused(reason.clone()).say();
                anyhow::bail!(reason);
            }
        };
        Mark::Found(found.clone()).say();
        let (ack, acked) = watch::channel(0);
        let last_term = found.runs.last().map_or(0, |&(term, _, _)| term);
        let mut work = Self {
            actor,
            storage,
            applied,
            random: Xoshiro256PlusPlus::seed_from_u64(actor.seed),
            operations: 0,
            term: found.vote.map_or(0, |vote| vote.0).max(last_term),
            terms: found.entries().collect(),
            next: found.last().map_or(0, |last| last + 1),
            under_way: VecDeque::new(),
            acked,
            ack,
            acked_index: found.last(),
            snapshot: found.snapshot.map(|(index, _)| index),
            purged: found.purged,
        };
        work.new_term().await?;
        Ok(work)
    }

    async fn step(&mut self) -> Result<()> {
        match self.random.random_range(0..100) {
            0..60 => self.append().await,
            60..68 => self.new_term().await,
            68..75 => self.truncate().await,
            75..83 => self.commit().await,
            83..90 => self.snapshot().await,
            _ => {
                self.all_acked().await;
                Ok(())
            }
        }
    }

    fn op(&mut self) -> u64 {
        self.operations += 1;
        self.operations
    }

    async fn append(&mut self) -> Result<()> {
        while self.under_way.len() >= UNDER_WAY_MAX {
            let (oldest, _) = self.under_way[0];
            self.wait_for(oldest).await;
        }
        let op = self.op();
        let (first, term) = (self.next, self.term);
        let last = first + self.random.random_range(0..BATCH_MAX);
        let commands = (first..=last).map(|index| command(self.actor.world, LogPosition { term, index })).collect();
        (first..=last).for_each(|index| {
            self.terms.insert(index, term);
        });
        self.next = last + 1;
        self.under_way.push_back((op, last));
        Mark::Append { op, term, first, last }.say();
        let ack = self.ack.clone();
        let done = move |result: std::io::Result<()>| match result {
            Ok(()) => {
                Mark::Acked { op }.say();
                ack.send_if_modified(|acked| std::mem::replace(acked, (*acked).max(op)) < op);
            }
            Err(error) => Mark::Failed { op, reason: error.to_string() }.say(),
        };
        self.storage.append(LogPosition { term, index: first }, commands, done).await.context("append")
    }

    /// Waits until this append is acknowledged, and takes note of all that are.
    async fn wait_for(&mut self, op: u64) {
        // The sender is in this very struct.
        let acked = self.acked.wait_for(|acked| *acked >= op).await.map_or(op, |acked| *acked);
        while let Some(&(_, last)) = self.under_way.front().filter(|(oldest, _)| *oldest <= acked) {
            self.acked_index = Some(last);
            self.under_way.pop_front();
        }
    }

    async fn all_acked(&mut self) {
        if let Some(&(newest, _)) = self.under_way.back() {
            self.wait_for(newest).await;
        }
    }

    async fn vote(&mut self, vote: Vote) -> Result<()> {
        let op = self.op();
        Mark::Vote { op, vote: (vote.term, vote.node, vote.committed) }.say();
        self.storage.vote(vote).await.context("vote")?;
        Mark::Acked { op }.say();
        Ok(())
    }

    /// Votes for a replica, and then mostly for a leader that was elected.
    async fn new_term(&mut self) -> Result<()> {
        self.term += 1;
        let (term, node) = (self.term, self.random.random_range(1..=3));
        self.vote(Vote { term, node, committed: false }).await?;
        if self.random.random_bool(0.7) {
            self.vote(Vote { term, node, committed: true }).await?;
        }
        Ok(())
    }

    /// A new leader's log differs from some entry on that was not committed.
    async fn truncate(&mut self) -> Result<()> {
        let lowest = self.applied_index().max(self.snapshot).max(self.purged).map_or(0, |index| index + 1);
        if lowest >= self.next {
            return Ok(());
        }
        self.new_term().await?;
        self.all_acked().await;
        let first = self.random.random_range(lowest.max(self.next.saturating_sub(30))..self.next);
        let op = self.op();
        Mark::Truncate { op, first }.say();
        let last = first.checked_sub(1).and_then(|index| Some(LogPosition { term: *self.terms.get(&index)?, index }));
        let last = last.or(self.place_before(first));
        self.terms.split_off(&first);
        self.next = first;
        self.acked_index = first.checked_sub(1);
        self.storage.truncate_after(last).await.context("truncate")?;
        self.append().await
    }

    /// The purged place, if `first` follows it.
    fn place_before(&self, first: u64) -> Option<LogPosition> {
        self.storage.known().purged.filter(|place| place.index + 1 == first)
    }

    /// Applies up to some acknowledged entry, and notes the hint.
    async fn commit(&mut self) -> Result<()> {
        let Some(acked) = self.acked_index else { return Ok(()) };
        let applied = self.applied_index();
        let from = applied.map_or(0, |index| index + 1);
        if from > acked {
            return Ok(());
        }
        let to = self.random.random_range(from..=acked);
        let places = (from..=to).filter_map(|index| Some(LogPosition { term: *self.terms.get(&index)?, index }));
        let places: Vec<LogPosition> = places.collect();
        let Some(&last) = places.last() else { return Ok(()) };
        let commands = places.into_iter().map(|place| (place, Bytes::from(command(self.actor.world, place))));
        self.storage.apply(commands.collect()).await.context("apply")?;
        // From here on nothing up to there is truncated any more.
        self.storage.committed(last).await.context("committed")
    }

    fn applied_index(&self) -> Option<u64> {
        // A sum without a command is that of an empty state.
        let sum = self.applied.sum();
        (sum.hash != 0).then_some(sum.index)
    }

    async fn snapshot(&mut self) -> Result<()> {
        self.commit().await?;
        let Some(index) = self.applied_index().filter(|index| Some(*index) > self.snapshot) else { return Ok(()) };
        let op = self.op();
        Mark::Snapshot { op, index, hash: self.applied.sum().hash }.say();
        self.storage.snapshot().await.context("snapshot")?;
        Mark::Acked { op }.say();
        self.snapshot = Some(index);
        if self.random.random_bool(0.8) {
            let lowest = self.purged.map_or(0, |purged| purged + 1);
            let through = self.random.random_range(lowest..=index);
            let op = self.op();
            Mark::Purge { op, through }.say();
            let term = self.terms.get(&through).copied().unwrap_or(self.term);
            self.storage.purge(LogPosition { term, index: through }).await.context("purge")?;
            self.terms = self.terms.split_off(&(through + 1));
            self.purged = Some(through);
        }
        Ok(())
    }
}
