//! A child process with its own log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use symphony_config::NodeConfig;

use crate::node::parent::ENDS_WITH_PARENT;

/// How long a process may take to stop by itself.
const STOP_WITHIN: Duration = Duration::from_secs(8);
/// The period of checks meanwhile.
const POLL: Duration = Duration::from_millis(20);

/// Whether a process outlives the one that started it, if that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessLifetime {
    /// It ends with it, as on SIGTERM.
    EndsWithParent,
    /// It goes on.
    Outlives,
}

impl ProcessLifetime {
    /// For the children of this process: they end with it if it ends with its own parent.
    pub(crate) fn as_own() -> Self {
        if std::env::var_os(ENDS_WITH_PARENT).is_some() { Self::EndsWithParent } else { Self::Outlives }
    }
}

/// One process of a local cluster. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) log: PathBuf,
    child: Child,
    stop_requested: bool,
}

impl Process {
    /// Starts this same binary with `args`; all its output goes to `log`.
    pub(crate) fn start(name: &str, args: &[&str], log: &Path, lifetime: ProcessLifetime) -> anyhow::Result<Self> {
        let binary = std::env::current_exe().context("cannot find this program's own file")?;
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(&binary);
        command.args(args).stdout(file.try_clone()?).stderr(file);
        match lifetime {
            // This process holds the other end as long as it holds the child, and no other process has it.
            ProcessLifetime::EndsWithParent => command.stdin(Stdio::piped()).env(ENDS_WITH_PARENT, "1"),
            ProcessLifetime::Outlives => command.stdin(Stdio::null()).env_remove(ENDS_WITH_PARENT),
        };
        let child = command.spawn().with_context(|| format!("cannot start {} for {name}", binary.display()))?;
        Ok(Self { name: name.to_owned(), log: log.to_owned(), child, stop_requested: false })
    }

    /// Starts a node with this configuration, which is stored in `dir` together with its log.
    pub(crate) fn start_node(
        role: &str,
        name: &str,
        config: &NodeConfig,
        dir: &Path,
        lifetime: ProcessLifetime,
    ) -> anyhow::Result<Self> {
        let path = dir.join(format!("{name}.toml"));
        std::fs::write(&path, config.to_toml()).with_context(|| format!("cannot write {}", path.display()))?;
        let log = dir.join("logs").join(format!("{name}.log"));
        Self::start(name, &[role, "--config", &path.to_string_lossy()], &log, lifetime)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its last output if it has ended; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(5).collect();
        let tail: Vec<_> = lines.into_iter().rev().collect();
        Some(format!("{} ended with {status}; the end of {}:\n{}", self.name, self.log.display(), tail.join("\n")))
    }

    /// Kills the process, as `kill -9` does.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().with_context(|| format!("cannot kill {}", self.name))?;
        self.child.wait().with_context(|| format!("cannot wait for {}", self.name))?;
        Ok(())
    }

    /// SIGTERM, once.
    pub(crate) fn request_stop(&mut self) {
        // The id of a process that has ended and was waited for is no longer valid.
        if !self.stop_requested && matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        }
        self.stop_requested = true;
    }

    /// If it has ended: whether it was asked to.
    pub(crate) const fn stop_requested(&self) -> bool {
        self.stop_requested
    }

    /// SIGTERM, and SIGKILL if it does not end in time.
    pub(crate) fn stop(&mut self) {
        self.request_stop();
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
