//! Processes that a test starts, and that never outlive it.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait_until;

/// How much of a log's end is shown when a process fails.
const LOG_TAIL_BYTES: u64 = 4096;

/// What to start.
#[derive(Clone, Debug)]
pub struct ChildSpec {
    /// Its name in messages and of its log files.
    pub name: String,
    /// Path of the executable.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables added to its environment.
    pub env: Vec<(String, String)>,
    /// Where `NAME.out` and `NAME.err` are appended to, and its working directory.
    pub dir: PathBuf,
}

/// A running process. Dropping it kills it (SIGKILL) and collects its end; it is addressed by its id alone.
#[derive(Debug)]
pub struct Child {
    spec: ChildSpec,
    process: std::process::Child,
    status: Option<ExitStatus>,
}

impl ChildSpec {
    /// `program` with `args`, its logs in `dir`.
    pub fn new<S: Into<String>>(
        name: impl Into<String>,
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = S>,
        dir: &Path,
    ) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self { name: name.into(), program: program.into(), args, env: Vec::new(), dir: dir.to_owned() }
    }

    /// Adds a variable to its environment.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// If its logs cannot be opened or the program cannot be started.
    pub fn spawn(self) -> Result<Child> {
        let log = |suffix: &str| {
            let path = self.log(suffix);
            File::options().create(true).append(true).open(&path).with_context(|| format!("log {}", path.display()))
        };
        let process = Command::new(&self.program)
            .args(&self.args)
            .envs(self.env.iter().map(|(k, v)| (k, v)))
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(log("out")?)
            .stderr(log("err")?)
            .spawn()
            .with_context(|| format!("cannot start {} ({})", self.name, self.program.display()))?;
        Ok(Child { spec: self, process, status: None })
    }

    fn log(&self, suffix: &str) -> PathBuf {
        self.dir.join(format!("{}.{suffix}", self.name))
    }
}

impl Child {
    /// Its name in messages and of its log files.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it was started from: a restart is the same once more.
    #[must_use]
    pub fn spec(&self) -> &ChildSpec {
        &self.spec
    }

    /// How it ended; none while it runs.
    ///
    /// # Errors
    /// If the operating system cannot tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.process.try_wait().with_context(|| format!("cannot look at {}", self.spec.name))?;
        }
        Ok(self.status)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If it has ended: its id may be another process's by now.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if let Some(status) = self.ended()? {
            bail!("{} cannot get {signal}: it has ended ({status})", self.spec.name);
        }
        let pid = Pid::from_raw(i32::try_from(self.id()).context("process id out of range")?);
        kill(pid, signal).with_context(|| format!("cannot send {signal} to {}", self.spec.name))
    }

    /// Stops it where it stands (SIGSTOP): its connections stay, but without answers.
    ///
    /// # Errors
    /// If it has ended.
    pub fn pause(&mut self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// If it has ended.
    pub fn resume(&mut self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Kills it as a power cut would (SIGKILL) and collects its end. Harmless if it has ended already.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.ended()? {
            return Ok(status);
        }
        self.process.kill().with_context(|| format!("cannot kill {}", self.spec.name))?;
        let status = self.process.wait().with_context(|| format!("cannot wait for {}", self.spec.name))?;
        self.status = Some(status);
        Ok(status)
    }

    /// Asks it to stop (SIGTERM) and waits for its end.
    ///
    /// # Errors
    /// If it has not ended within `timeout`; it still runs then.
    pub fn stop(&mut self, timeout: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.ended()? {
            return Ok(status);
        }
        self.signal(Signal::SIGTERM)?;
        self.wait(timeout)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it has not ended within `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let what = format!("the end of {}", self.spec.name);
        wait_until(&what, timeout, || self.ended()?.ok_or_else(|| anyhow!("it runs")))
    }

    /// Waits for a condition that only makes sense while it runs: if it ends first, that is the failure, with the end
    /// of its log.
    ///
    /// # Errors
    /// If `timeout` passes or the process ends first.
    pub fn wait_until<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        mut condition: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut ended = None;
        let seen = wait_until(what, timeout, || {
            if let Some(status) = self.ended()? {
                ended = Some(status);
                return Ok(None);
            }
            condition().map(Some)
        })
        .with_context(|| format!("{} still runs; its log ends:\n{}", self.spec.name, self.log_tail()))?;
        seen.ok_or_else(|| {
            let status = ended.map_or_else(|| "unknown".to_owned(), |s| s.to_string());
            anyhow!("{} ended ({status}) before {what}; its log ends:\n{}", self.spec.name, self.log_tail())
        })
    }

    /// Everything it wrote to standard output so far.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn stdout(&self) -> Result<String> {
        let path = self.spec.log("out");
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Everything it wrote to standard error so far.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn log(&self) -> Result<String> {
        let path = self.spec.log("err");
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The end of what it wrote to standard error.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(self.spec.log("err"))?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
            let mut bytes = Vec::new();
            file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_else(|error| format!("(no log: {error})"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("{} (process {}) may still run: {error:#}", self.spec.name, self.id());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;
    use crate::Workspace;

    const SOON: Duration = Duration::from_secs(60);

    fn shell(workspace: &Workspace, script: &str) -> Child {
        ChildSpec::new("child", "/bin/sh", ["-c", script], workspace.path()).env("WORD", "hello").spawn().unwrap()
    }

    #[test]
    fn output_and_environment_arrive_and_the_end_is_seen() {
        let workspace = Workspace::new("child").unwrap();
        let mut child = shell(&workspace, "echo $WORD; echo trouble >&2; exit 3");
        assert_eq!(child.wait(SOON).unwrap().code(), Some(3));
        assert_eq!((child.stdout().unwrap().as_str(), child.log_tail().as_str()), ("hello\n", "trouble\n"));
        assert_eq!(child.log().unwrap(), "trouble\n");
        assert!(child.signal(Signal::SIGTERM).unwrap_err().to_string().contains("it has ended"));
    }

    #[test]
    fn a_process_that_ends_early_fails_the_wait_with_its_log() {
        let workspace = Workspace::new("child").unwrap();
        let mut child = shell(&workspace, "echo cannot bind >&2; exit 1");
        let error = child.wait_until("its port", SOON, || Err::<(), _>(anyhow!("refused"))).unwrap_err().to_string();
        assert!(error.contains("child ended (exit status: 1) before its port"), "{error}");
        assert!(error.contains("cannot bind"), "{error}");
    }

    #[test]
    fn kill_ends_what_ignores_stop_and_drop_leaves_nobody_behind() {
        let workspace = Workspace::new("child").unwrap();
        let script = "trap '' TERM; echo armed; while :; do :; done";
        let mut child = shell(&workspace, script);
        let out = workspace.file("child.out");
        let armed = || (fs::read_to_string(&out)? == "armed\n").then_some(()).ok_or_else(|| anyhow!("not armed"));
        child.wait_until("the trap", SOON, armed).unwrap();
        assert!(child.stop(Duration::from_millis(50)).is_err());
        assert_eq!(child.kill().unwrap().signal(), Some(Signal::SIGKILL as i32));
        assert_eq!(child.kill().unwrap().signal(), Some(Signal::SIGKILL as i32), "killing twice is harmless");

        let child = shell(&workspace, "exec sleep 1000");
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        drop(child);
        assert!(kill(pid, None).is_err(), "the process is gone");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let workspace = Workspace::new("child").unwrap();
        let spec = ChildSpec::new("ghost", "/no/such/program", Vec::<String>::new(), workspace.path());
        assert!(spec.spawn().unwrap_err().to_string().contains("cannot start ghost (/no/such/program)"));
    }
}
