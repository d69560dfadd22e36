//! A child process: how it is started, what it says, how it ends.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result};

use crate::actor::Actor;
use crate::mark::Mark;

/// This very program, which is also the children's.
pub(crate) fn program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot name this program")
}

/// The command that runs as `actor`; what it logs goes to `log`.
pub(crate) fn actor(actor: &Actor, log: &Path) -> Result<Command> {
    let mut command = Command::new(program()?);
    command.arg("actor").arg("--dir").arg(&actor.dir).args(["--engine", actor.engine.name()]);
    command.args(["--world", &actor.world.to_string(), "--seed", &actor.seed.to_string()]);
    command.args(["--operations", &actor.operations.to_string()]);
    if let Some(plant) = actor.plant {
        command.args(["--plant", plant.name()]);
    }
    if actor.with_ballast {
        command.arg("--with-ballast");
    }
    log_to(&mut command, log)?;
    Ok(command)
}

/// Standard error goes to a file.
pub(crate) fn log_to(command: &mut Command, log: &Path) -> Result<()> {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(log);
    command.stderr(file.with_context(|| format!("cannot open {}", log.display()))?);
    Ok(())
}

#[derive(Debug)]
pub(crate) struct RunningActor {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl RunningActor {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start an actor")?;
        let output = BufReader::new(child.stdout.take().context("the actor has no standard output")?);
        Ok(Self { child, output })
    }

    /// The next mark; `None` when it has ended.
    pub(crate) fn next(&mut self) -> Result<Option<Mark>> {
        loop {
            let mut line = Vec::new();
            // A line that a kill cut off does not count.
            if self.output.read_until(b'\n', &mut line)? == 0 || !line.ends_with(b"\n") {
                return Ok(None);
            }
            if let Some(mark) = Mark::parse(&line) {
                return Ok(Some(mark));
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn wait(mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }
}

/// Everything that an actor says until its end, and how it ends.
pub(crate) fn run(command: Command) -> Result<(Vec<Mark>, ExitStatus)> {
    let mut running = RunningActor::start(command)?;
    let mut marks = Vec::new();
    while let Some(mark) = running.next()? {
        marks.push(mark);
    }
    Ok((marks, running.wait()?))
}
