//! A child process with a log of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a process may take to stop by itself.
const STOP_WITHIN: Duration = Duration::from_secs(8);
/// How often it is looked at meanwhile.
const POLL: Duration = Duration::from_millis(20);

/// One process of a local cluster. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts this very binary with `args`; everything it prints goes to `log`.
    pub(crate) fn start(name: &str, args: &[&str], log: &Path) -> anyhow::Result<Self> {
        let binary = std::env::current_exe().context("cannot find this program's own file")?;
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(&binary)
            .args(args)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {} for {name}", binary.display()))?;
        Ok(Self { name: name.to_owned(), log: log.to_owned(), child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it printed last if it has ended; none while it runs.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(5).collect();
        let tail: Vec<_> = lines.into_iter().rev().collect();
        Some(format!("{} ended with {status}; the end of {}:\n{}", self.name, self.log.display(), tail.join("\n")))
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().with_context(|| format!("cannot kill {}", self.name))?;
        self.child.wait().with_context(|| format!("cannot wait for {}", self.name))?;
        Ok(())
    }

    /// SIGTERM, and SIGKILL if that does not help in time.
    pub(crate) fn stop(&mut self) {
        let Ok(None) = self.child.try_wait() else { return };
        let pid = Pid::from_raw(self.child.id() as i32);
        let _ = kill(pid, Signal::SIGTERM);
        let give_up = Instant::now() + STOP_WITHIN;
        while Instant::now() < give_up {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(POLL);
        }
        let _ = self.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.kill();
        }
    }
}
