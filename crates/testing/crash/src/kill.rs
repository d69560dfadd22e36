//! Processes are killed at moments of chance; the disk itself is well.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_consensus::Engine;

use crate::actor::Actor;
use crate::child::{self, RunningActor};
use crate::history::History;
use crate::mark::Mark;
use crate::report::{Lost, Report};

/// An actor runs at least and at most this long, milliseconds: the shortest do not even get to open the disk.
const RUN_MS: std::ops::Range<u64> = 5..400;

/// What to do.
#[derive(Debug, Clone)]
pub struct KillLoop {
    /// The engine that keeps the log.
    pub engine: Engine,
    /// How many kills.
    pub cycles: u64,
    /// What is done and for how long follows from it; the moment of death also from the machine.
    pub seed: u64,
    /// Where to put files.
    pub work: PathBuf,
}

impl KillLoop {
    /// Kills `cycles` times, and checks once more at the end.
    ///
    /// # Errors
    /// The suite itself fails.
    pub fn run(&self) -> Result<Report> {
        std::fs::create_dir_all(&self.work)?;
        let mut report = Report::new("kill", self.engine.name());
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut history = History::default();
        for cycle in 0..=self.cycles {
            let last = cycle == self.cycles;
            let actor = Actor {
                dir: self.work.join("disk"),
                engine: self.engine,
                world: self.seed,
                seed: random.random(),
                operations: u64::from(last),
                plant: None,
                with_ballast: false,
            };
            let mut running = RunningActor::start(child::actor(&actor, &self.work.join("actor.log"))?)?;
            let pid = Pid::from_raw(i32::try_from(running.pid())?);
            let lifetime = Duration::from_millis(random.random_range(RUN_MS));
            let killer = (!last).then(|| {
                std::thread::spawn(move || {
                    std::thread::sleep(lifetime);
                    // It is our child and not waited for yet, so the number is still its own.
                    kill(pid, Signal::SIGKILL)
                })
            });
            let acked = history.acked;
            while let Some(mark) = running.next()? {
                let lost = match &mark {
                    Mark::Refused(reason) => vec![Lost::new("open", reason.clone())],
                    mark => history.note(mark),
                };
                if let Mark::Found(found) = &mark {
                    report.slowest_open_ms = report.slowest_open_ms.max(found.open_ms);
                    report.count("opened");
                }
                report.violated(&lost, &format_args!("seed {}, run {cycle}", self.seed));
            }
            report.acked += history.acked - acked;
            let Some(killer) = killer else { continue };
            let killed = killer.join();
            let end = running.wait()?;
            if !matches!(killed, Ok(Ok(()))) || std::os::unix::process::ExitStatusExt::signal(&end) != Some(9) {
                report.violated(&[Lost::new("open", format!("run {cycle} ended by itself with {end}"))], &self.seed);
            }
            report.cycles += 1;
        }
        Ok(report)
    }
}
