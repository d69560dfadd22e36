//! The power is cut at every step of a recorded run, and what is left is opened.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_consensus::Engine;
use symphony_consensus::storage::Plant;
use symphony_interposer::{Change, Recording, changes};

use crate::actor::Actor;
use crate::child;
use crate::cut::{Cut, Kept};
use crate::disk::SimulatedDisk;
use crate::history::{History, Snapshots};
use crate::mark::{Found, Mark};
use crate::pool::Pool;
use crate::report::{Lost, Report};
use crate::verifier::Question;

/// Actors in a row on one disk; each but the last is killed right after one of its changes.
const ACTORS: u64 = 3;
/// Recordings in a row on one disk, each beginning with what a power cut left of the one before.
const GENERATIONS: u64 = 4;
const OPERATIONS: u64 = 60;

/// What to do.
#[derive(Debug, Clone)]
pub struct PowerLoss {
    /// The engine that keeps the log.
    pub engine: Engine,
    /// How many power cuts.
    pub cycles: u64,
    /// Everything follows from it.
    pub seed: u64,
    /// One in this many steps is followed by a cut; 1: every one.
    pub stride: u64,
    /// The bug to plant.
    pub plant: Option<Plant>,
    /// Verifiers at a time.
    pub jobs: usize,
    /// Where to put files: removed afterwards, except logs.
    pub work: PathBuf,
    /// Whether the first violation is enough.
    pub until_found: bool,
}

/// Where a cut was made.
#[derive(Debug, Clone)]
struct CutLocation {
    seed: u64,
    recording: u64,
    step: u64,
    change: String,
    cut: String,
}

impl fmt::Display for CutLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, recording, step, change, cut } = self;
        write!(f, "seed {seed}, recording {recording}, after step {step} ({change}), {cut}")
    }
}

/// A disk and the promises it was made under.
struct Start {
    history: History,
    dir: PathBuf,
}

struct Run<'a> {
    plan: &'a PowerLoss,
    report: Report,
    pool: Pool<(CutLocation, History)>,
    /// One directory per cut.
    cuts: u64,
}

impl PowerLoss {
    /// Runs until `cycles` cuts were made.
    ///
    /// # Errors
    /// The suite itself fails: a child cannot be started, a record cannot be read.
    pub fn run(&self) -> Result<Report> {
        fs::create_dir_all(&self.work)?;
        let pool = Pool::start(self.jobs, &self.work.join("verifier.log"));
        let mut run = Run { plan: self, report: Report::new("power-loss", self.engine.name()), pool, cuts: 0 };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut start = None;
        let mut recording = 0;
        while run.cuts < self.cycles && !(self.until_found && run.report.violations > 0) {
            if recording % GENERATIONS == 0 {
                start = None;
            }
            start = run.record(recording, start, &mut random)?;
            recording += 1;
        }
        let Run { mut report, pool, .. } = run;
        for (tag, mark) in pool.finish() {
            judge(&mut report, &tag, mark?);
        }
        report.add("recordings", recording);
        Ok(report)
    }

    fn question(&self, dir: PathBuf) -> Question {
        Question { dir, engine: self.engine.name().to_owned(), world: self.seed }
    }
}

impl Run<'_> {
    /// Records some actors on one disk, then cuts the power after their steps. Gives what one of the cuts left.
    fn record(
        &mut self,
        recording: u64,
        start: Option<Start>,
        random: &mut Xoshiro256PlusPlus,
    ) -> Result<Option<Start>> {
        let place = self.plan.work.join(format!("recording-{recording}"));
        fs::create_dir_all(&place)?;
        let place = place.canonicalize()?;
        let dir = place.join("disk");
        let mut history = match start {
            None => {
                fs::create_dir(&dir)?;
                History::default()
            }
            Some(start) => {
                fs::rename(start.dir, &dir)?;
                start.history
            }
        };
        let mut disk = SimulatedDisk::of(&dir)?;
        let record = place.join("record");
        for number in 0..ACTORS {
            let actor = Actor {
                dir: dir.clone(),
                engine: self.plan.engine,
                world: self.plan.seed,
                seed: random.random(),
                operations: OPERATIONS,
                plant: self.plan.plant,
                with_ballast: false,
            };
            let kill_after = (number + 1 < ACTORS).then(|| random.random_range(10..250));
            let mut command = child::actor(&actor, &self.plan.work.join("actor.log"))?;
            Recording { to: record.clone(), watch: dir.clone(), mark_fd: Some(1), kill_after }.attach(&mut command);
            let (marks, end) = child::run(command)?;
            let refused = marks.iter().any(|mark| matches!(mark, Mark::Refused(_)));
            if kill_after.is_none() && !refused && marks.last() != Some(&Mark::End) {
                self.report
                    .violated(&[Lost::new("open", format!("an undisturbed actor ended with {end}"))], &place.display());
            }
        }
        let bytes = fs::read(&record).context("record")?;
        let changes = changes(&bytes)?;
        let next_start = random.random_range(0..changes.len().max(1));
        let mut next = None;
        for (step, change) in changes.iter().enumerate() {
            disk.apply(change).with_context(|| format!("{}: step {step}", record.display()))?;
            if let Change::Mark(line) = change
                && let Some(mark) = Mark::parse(line)
            {
                let lost = self.note(&mut history, &mark);
                self.report
                    .violated(&lost, &format_args!("seed {}, recording {recording}, step {step}", self.plan.seed));
            }
            let seed = random.random();
            if (step as u64).is_multiple_of(self.plan.stride) && self.cuts < self.plan.cycles {
                let mut cut = Cut::any(seed);
                let target = place.join(format!("cut-{step}"));
                disk.cut(&mut cut, &target)?;
                self.cuts += 1;
                let location = CutLocation {
                    seed: self.plan.seed,
                    recording,
                    step: step as u64,
                    change: describe(change),
                    cut: cut.to_string(),
                };
                self.pool.ask(self.plan.question(target), (location, history.clone()))?;
            }
            if step == next_start {
                let target = self.plan.work.join(format!("start-{}", recording + 1));
                disk.cut(&mut Cut::any(!seed), &target)?;
                next = Some(Start { history: history.clone(), dir: target });
            }
            let answers: Vec<_> = self.pool.answered().collect();
            for (tag, mark) in answers {
                judge(&mut self.report, &tag, mark?);
            }
            if self.plan.until_found && self.report.violations > 0 {
                return Ok(None);
            }
        }
        // If this differs, the record has a gap and proves nothing.
        let whole = place.join("whole");
        disk.cut(&mut Cut::new(Kept::Everything, 0), &whole)?;
        if contents(&whole)? != contents(&dir)? {
            self.report
                .violated(&[Lost::new("record", "it does not lead to the files that are there")], &record.display());
        }
        self.report.most("steps of a recording", changes.len() as u64);
        // Of the files only those of the next start are needed; the log of the children stays.
        fs::remove_dir_all(place.join("whole"))?;
        if self.report.violations == 0 {
            fs::remove_dir_all(&dir)?;
            fs::remove_file(&record)?;
        }
        Ok(next)
    }

    fn note(&mut self, history: &mut History, mark: &Mark) -> Vec<Lost> {
        if let Mark::Refused(reason) = mark {
            return vec![Lost::new("open", reason.clone())];
        }
        let acked = history.acked;
        let lost = history.note(mark);
        self.report.acked += history.acked - acked;
        lost
    }
}

fn judge(report: &mut Report, (location, history): &(CutLocation, History), mark: Mark) {
    report.cycles += 1;
    let found: Found = match mark {
        Mark::Found(found) => found,
        Mark::Refused(reason) => return report.violated(&[Lost::new("open", reason)], location),
        other => return report.violated(&[Lost::new("open", format!("answered {other:?}"))], location),
    };
    report.slowest_open_ms = report.slowest_open_ms.max(found.open_ms);
    report.violated(&history.check(&found, Snapshots::MustBeThere), location);
}

fn describe(change: &Change<'_>) -> String {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match change {
        Change::Created { path, .. } => format!("created {}", name(path)),
        Change::MadeDir { path, .. } => format!("made {}", name(path)),
        Change::Written { offset, data, .. } => format!("wrote {} bytes at {offset}", data.len()),
        Change::Truncated { length, .. } => format!("set the length {length}"),
        Change::Renamed { from, to } => format!("renamed {} to {}", name(from), name(to)),
        Change::Unlinked { path } => format!("removed {}", name(path)),
        Change::Synced { .. } => "synced".to_owned(),
        Change::Mark(line) => String::from_utf8_lossy(&line[..line.len().min(60)]).trim().to_owned(),
        Change::Unknown(what) => what.clone(),
    }
}

/// Every file below a directory, by path.
pub(crate) fn contents(dir: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for file in fs::read_dir(&at)? {
            let path = file?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(dir)?.to_owned(), fs::read(&path)?);
            }
        }
    }
    Ok(found)
}
