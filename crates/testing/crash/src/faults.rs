//! Disks that fail and disks that are full: the process goes down, nothing promised is lost, and it comes back.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_consensus::Engine;
use symphony_consensus::storage::Plant;
use symphony_interposer::{Control, EIO, ENOSPC, Fault, Operations, Recording, Rule, attach, changes};

use crate::actor::Actor;
use crate::child::{self, RunningActor};
use crate::cut::{Cut, Kept};
use crate::disk::SimulatedDisk;
use crate::history::{History, Snapshots};
use crate::mark::Mark;
use crate::pool::Verifier;
use crate::report::{Lost, Report};
use crate::verifier::Question;

const OPERATIONS: u64 = 150;
const OPERATIONS_AFTERWARDS: u64 = 20;
const SIGABRT: i32 = 6;
/// How a Rust program ends whose main thread panicked.
const PANIC_CODE: i32 = 101;
/// A process that has not ended after this time is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// What to do.
#[derive(Debug, Clone)]
pub struct Faults {
    /// The engine that keeps the log.
    pub engine: Engine,
    /// How many faults.
    pub cycles: u64,
    /// Everything follows from it.
    pub seed: u64,
    /// The bug to plant.
    pub plant: Option<Plant>,
    /// Where to put files.
    pub work: PathBuf,
    /// Whether the first violation is enough.
    pub until_found: bool,
}

/// The kinds, each by turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    SyncFails,
    WriteFails,
    WriteIsShort,
    DiskFills,
    LengthFails,
    RenameFails,
    SnapshotFails,
    WitnessFails,
}

const KINDS: [Kind; 8] = [
    Kind::SyncFails,
    Kind::WriteFails,
    Kind::WriteIsShort,
    Kind::DiskFills,
    Kind::LengthFails,
    Kind::RenameFails,
    Kind::SnapshotFails,
    Kind::WitnessFails,
];

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::SyncFails => "sync fails",
            Self::WriteFails => "write fails",
            Self::WriteIsShort => "write is short",
            Self::DiskFills => "disk fills",
            Self::LengthFails => "length fails",
            Self::RenameFails => "rename fails",
            Self::SnapshotFails => "snapshot fails",
            Self::WitnessFails => "witness fails",
        }
    }

    fn rule(self, dir: &Path, random: &mut Xoshiro256PlusPlus) -> Rule {
        let below = |what: &str| format!("{}/{what}", dir.display());
        let skip = random.random_range(0..60);
        // A device that failed stays failed: errors are for good.
        match self {
            Self::SyncFails => Rule::new(Operations::SYNC, below("*"), Fault::Fail(EIO)).only(skip, 0),
            Self::WriteFails => Rule::new(Operations::WRITE, below("*"), Fault::Fail(EIO)).only(skip, 0),
            Self::WriteIsShort => Rule::new(Operations::WRITE, below("*"), Fault::Shorten).only(skip, 3),
            Self::DiskFills => {
                let space_bytes = (8 << 20) + random.random_range(0..1_500_000);
                Rule::new(Operations::WRITE, below("*"), Fault::Fill { space_bytes })
            }
            Self::LengthFails => Rule::new(Operations::TRUNCATE, below("*"), Fault::Fail(ENOSPC)).only(skip / 20, 0),
            Self::RenameFails => Rule::new(Operations::RENAME, below("*"), Fault::Fail(EIO)).only(skip / 15, 0),
            Self::SnapshotFails => {
                Rule::new(Operations::CHANGES, below("snapshots/*"), Fault::Fail(ENOSPC)).only(skip / 4, 0)
            }
            Self::WitnessFails => Rule::new(Operations::WRITE, below("witness"), Fault::Fail(EIO)).only(skip, 0),
        }
    }
}

impl Faults {
    /// Runs `cycles` faults.
    ///
    /// # Errors
    /// The suite itself fails.
    pub fn run(&self) -> Result<Report> {
        let mut report = Report::new("faults", self.engine.name());
        fs::create_dir_all(&self.work)?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        for cycle in 0..self.cycles {
            let kind = KINDS[cycle as usize % KINDS.len()];
            let place = self.work.join(format!("fault-{cycle}"));
            fs::create_dir_all(&place)?;
            let place = place.canonicalize()?;
            let before = report.violations;
            self.strike(kind, &place, &mut random, &mut report)
                .with_context(|| format!("seed {}, cycle {cycle}: {}", self.seed, kind.name()))?;
            if report.violations == before {
                fs::remove_dir_all(place)?;
            } else if self.until_found {
                break;
            }
        }
        Ok(report)
    }

    fn actor(&self, dir: &Path, seed: u64, operations: u64) -> Actor {
        Actor {
            dir: dir.to_owned(),
            engine: self.engine,
            world: self.seed,
            seed,
            operations,
            plant: self.plant,
            with_ballast: true,
        }
    }

    fn strike(&self, kind: Kind, place: &Path, random: &mut Xoshiro256PlusPlus, report: &mut Report) -> Result<()> {
        let whence = format!("seed {}, {}, in {}", self.seed, kind.name(), place.display());
        let (dir, log) = (place.join("disk"), place.join("log"));
        fs::create_dir(&dir)?;
        let mut disk = SimulatedDisk::of(&dir)?;
        let mut history = History::default();
        let mut control = Control::create(place.join("control"))?;
        let record = place.join("record");

        // Phase 1: an actor whose disk fails at some moment.
        control.set(0, &kind.rule(&dir, random))?;
        let mut command = child::actor(&self.actor(&dir, random.random(), OPERATIONS), &log)?;
        Recording { to: record.clone(), watch: dir.clone(), mark_fd: Some(1), kill_after: None }.attach(&mut command);
        attach(&mut command, &control);
        let (refused, end, died_after) = watch(RunningActor::start(command)?, &control)?;
        report.cycles += 1;
        let struck = control.struck(0)? > 0;
        let expected = match kind {
            Kind::WriteIsShort => end.success(),
            _ if !struck => end.success(),
            // A disk that fails while it is opened is refused in an orderly way.
            _ if refused => end.success(),
            // What cannot be written may have been the ballast, which is no loss.
            Kind::DiskFills if end.success() => true,
            // sled shortens its file in the background and looks at how that went when the file grows again. Until then
            // the file ends with a segment that is free, as after a power cut just before: nothing hangs on it.
            Kind::LengthFails if self.engine == Engine::Sled && end.success() => {
                report.count("length failed in the background");
                true
            }
            // sled panics when it cannot sync at its end.
            _ => end.signal() == Some(SIGABRT) || end.code() == Some(PANIC_CODE),
        };
        if !expected {
            report.violated(
                &[Lost::new("abort", format!("struck: {struck}, refused: {refused}, ended with {end}"))],
                &whence,
            );
        }
        if struck {
            report.count(kind.name());
        }
        if let Some(died_after) = died_after.filter(|_| end.signal() == Some(SIGABRT)) {
            report.count("aborted");
            report.most("slowest abort ms", u64::try_from(died_after.as_millis())?);
        }

        // Phase 2: had the power gone as well, everything promised would be there.
        let bytes = fs::read(&record).context("record")?;
        for change in changes(&bytes)? {
            disk.apply(&change)?;
            if let symphony_interposer::Change::Mark(line) = change
                && let Some(mark) = Mark::parse(line)
            {
                report.violated(&history.note(&mark), &whence);
            }
        }
        report.acked += history.acked;
        let cut = place.join("cut");
        disk.cut(&mut Cut::new(Kept::Nothing, 0), &cut)?;
        let question = Question { dir: cut, engine: self.engine.name().to_owned(), world: self.seed };
        match Verifier::new(&log).verify(&question)? {
            Mark::Found(found) => report.violated(&history.check(&found, Snapshots::MustBeThere), &whence),
            Mark::Refused(reason) => report.violated(&[Lost::new("open", reason)], &whence),
            other => report.violated(&[Lost::new("open", format!("answered {other:?}"))], &whence),
        }

        // Phase 3: on a disk that is still full, the ballast makes room to open the log.
        if kind == Kind::DiskFills && struck {
            let mut command = child::actor(&self.actor(&dir, random.random(), 1), &log)?;
            attach(&mut command, &control);
            let (marks, _) = child::run(command)?;
            match marks.iter().find(|mark| matches!(mark, Mark::Found(_))) {
                Some(_) => {
                    report.count("opened on a full disk");
                    for mark in &marks {
                        report.violated(&history.note(mark), &whence);
                    }
                }
                None => report.violated(&[Lost::new("open", format!("not on a full disk: {marks:?}"))], &whence),
            }
        }

        // Phase 4: the disk is well again; everything is stored, and work goes on.
        control.lift(0)?;
        let mut command = child::actor(&self.actor(&dir, random.random(), OPERATIONS_AFTERWARDS), &log)?;
        attach(&mut command, &control);
        let (marks, end) = child::run(command)?;
        for mark in &marks {
            report.violated(&history.note(mark), &whence);
        }
        if marks.last() != Some(&Mark::End) {
            let last = marks.last();
            report.violated(&[Lost::new("open", format!("does not go on: {end}, said last {last:?}"))], &whence);
        }
        Ok(())
    }
}

/// Waits for the end of an actor: whether it refused its disk, how it ended, and how long after the first strike.
fn watch(mut running: RunningActor, control: &Control) -> Result<(bool, ExitStatus, Option<Duration>)> {
    let began = Instant::now();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(running.pid())?);
    let mut struck_at = None;
    // Its words are read from the record later; the pipe must not fill up meanwhile.
    std::thread::scope(|scope| {
        let control_struck = || control.struck(0).unwrap_or_default() > 0;
        let reader = scope.spawn(move || -> Result<(bool, ExitStatus)> {
            let mut refused = false;
            while let Some(mark) = running.next()? {
                refused |= matches!(mark, Mark::Refused(_));
            }
            Ok((refused, running.wait()?))
        });
        while !reader.is_finished() {
            if struck_at.is_none() && control_struck() {
                struck_at = Some(Instant::now());
            }
            if began.elapsed() > STUCK_AFTER {
                // Not waited for yet, so the number is its own.
                nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)?;
                anyhow::bail!("the actor is stuck");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let ended_at = Instant::now();
        let (refused, end) = reader.join().map_err(|_| anyhow::anyhow!("reading the actor panicked"))??;
        Ok((refused, end, struck_at.map(|at| ended_at.saturating_duration_since(at))))
    })
}
