//! Bits rot, sectors tear, writes go astray, files vanish: what was promised is stored, or the disk is refused.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_consensus::Engine;
use symphony_interposer::skip_syncs;

use crate::actor::Actor;
use crate::child;
use crate::history::{History, Snapshots};
use crate::mark::Mark;
use crate::pool::Pool;
use crate::power_loss::contents;
use crate::report::{Lost, Report};
use crate::verifier::{PANICKED, Question};

const OPERATIONS: u64 = 250;
/// Disks that are damaged, one after another.
const DISKS: u64 = 4;
const SECTOR_BYTES: usize = 512;
const PAGE_BYTES: usize = 4096;

/// What to do.
#[derive(Debug, Clone)]
pub struct Damage {
    /// The engine that keeps the log.
    pub engine: Engine,
    /// How many damages, one at a time.
    pub cycles: u64,
    /// Everything follows from it.
    pub seed: u64,
    /// Verifiers at a time.
    pub jobs: usize,
    /// Where to put files.
    pub work: PathBuf,
}

impl Damage {
    /// Damages disks, `cycles` times.
    ///
    /// # Errors
    /// The suite itself fails.
    pub fn run(&self) -> Result<Report> {
        fs::create_dir_all(&self.work)?;
        let mut report = Report::new("damage", self.engine.name());
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let pool: Pool<(String, History)> = Pool::start(self.jobs, &self.work.join("verifier.log"));
        let mut attempts = 0;
        for disk in 0..DISKS {
            let dir = self.work.join(format!("disk-{disk}"));
            let history = self.fill(&dir, random.random())?;
            report.acked += history.acked;
            let files = contents(&dir)?;
            while attempts < self.cycles * (disk + 1) / DISKS {
                attempts += 1;
                let target = self.work.join(format!("damaged-{attempts}"));
                let names: Vec<&PathBuf> = files.keys().collect();
                let victim = names[random.random_range(0..names.len())];
                for (name, bytes) in &files {
                    let path = target.join(name);
                    fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
                    fs::write(path, bytes)?;
                }
                let how = harm(&target.join(victim), &mut random)?;
                let whence = format!("seed {}, disk {disk}, {}: {how}", self.seed, victim.display());
                let question = Question { dir: target, engine: self.engine.name().to_owned(), world: self.seed };
                pool.ask(question, (whence, history.clone()))?;
            }
            fs::remove_dir_all(dir)?;
        }
        for ((whence, history), mark) in pool.finish() {
            report.cycles += 1;
            match mark? {
                Mark::Found(found) => {
                    report.slowest_open_ms = report.slowest_open_ms.max(found.open_ms);
                    let lost = history.check(&found, Snapshots::MayBeDamaged);
                    if lost.is_empty() {
                        report.count("nothing lost");
                    }
                    report.violated(&lost, &whence);
                }
                // Not orderly, but nothing is served.
                Mark::Refused(reason) if reason.starts_with(PANICKED) => report.count("refused by a panic"),
                Mark::Refused(_) => report.count("refused"),
                other => report.violated(&[Lost::new("open", format!("answered {other:?}"))], &whence),
            }
        }
        Ok(report)
    }

    /// A disk after one actor that ended well.
    fn fill(&self, dir: &Path, seed: u64) -> Result<History> {
        let actor = Actor {
            dir: dir.to_owned(),
            engine: self.engine,
            world: self.seed,
            seed,
            operations: OPERATIONS,
            plant: None,
            with_ballast: false,
        };
        let mut command = child::actor(&actor, &self.work.join("actor.log"))?;
        skip_syncs(&mut command);
        let (marks, end) = child::run(command)?;
        ensure!(marks.last() == Some(&Mark::End), "the actor ended with {end}");
        let mut history = History::default();
        for mark in &marks {
            ensure!(history.note(mark).is_empty(), "{mark:?} was wrong");
        }
        Ok(history)
    }
}

/// Harms one file in one way.
fn harm(path: &Path, random: &mut Xoshiro256PlusPlus) -> Result<String> {
    let mut bytes = fs::read(path)?;
    let kind = if bytes.is_empty() { 4 } else { random.random_range(0..6) };
    let at = random.random_range(0..bytes.len().max(1));
    let block = |size: usize| {
        let from = at / size * size;
        from..(from + size).min(bytes.len())
    };
    let how = match kind {
        0 | 1 => {
            let bit = random.random_range(0..8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped")
        }
        2 => {
            bytes.truncate(at);
            format!("cut to {at} bytes")
        }
        3 => {
            let range = block(SECTOR_BYTES);
            let how = format!("sector at {} overwritten", range.start);
            random.fill_bytes(&mut bytes[range]);
            how
        }
        4 => {
            fs::remove_file(path)?;
            return Ok("removed".to_owned());
        }
        _ => {
            // A write that went astray: one page lies where another should.
            let range = block(PAGE_BYTES);
            let from = random.random_range(0..bytes.len()) / PAGE_BYTES * PAGE_BYTES;
            let other = bytes[from..(from + PAGE_BYTES).min(bytes.len())].to_vec();
            let length = other.len().min(range.len());
            let how = format!("page at {from} written to {}", range.start);
            bytes[range.start..range.start + length].copy_from_slice(&other[..length]);
            how
        }
    };
    fs::write(path, bytes)?;
    Ok(how)
}
