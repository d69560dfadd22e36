//! One thread of another process that stands still while the others run.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// How long a thread may take to stop: until it has been seen by the scheduler.
const STOPPED_WITHIN: Duration = Duration::from_millis(200);
/// How often it is looked whether it has.
const POLL_EVERY: Duration = Duration::from_micros(200);
/// Bytes of a thread's name that the operating system keeps.
const NAME_BYTES: usize = 15;

/// A thread that a tracer holds. It goes on when this is dropped, or this process ends.
///
/// The product has no part in it: the kernel stops the thread between two of its instructions, wherever it is. It may
/// hold a lock of the allocator then, which a decision that hangs by itself would not.
#[derive(Debug)]
pub(crate) struct HeldThread {
    release: mpsc::Sender<()>,
    tracer: JoinHandle<Result<()>>,
}

impl HeldThread {
    /// Stops the thread of that name.
    ///
    /// # Errors
    /// If there is none, or the operating system does not let it be traced.
    pub(crate) fn hold(pid: u32, name: &str) -> Result<Self> {
        let thread = find(pid, name)?;
        let (release, released) = mpsc::channel();
        let (told, stopped) = mpsc::channel();
        // A tracer is a thread, not a process: the thread that stops it must let it go.
        let tracer = std::thread::Builder::new().name("tracer".into()).spawn(move || {
            let caught = catch(thread);
            let is_caught = caught.is_ok();
            let _ = told.send(caught);
            if !is_caught {
                return Ok(());
            }
            // Told to, or it is no longer held.
            let _ = released.recv();
            let held = state_of(pid, thread).and_then(|state| {
                ensure!(state == 't', "the thread was in state {state} and not held any more");
                Ok(())
            });
            let let_go = ptrace::detach(thread, None).context("the thread cannot be let go");
            held.and(let_go)
        });
        let tracer = tracer.context("no thread for a tracer")?;
        stopped.recv().map_err(|_| anyhow!("the tracer ended"))??;
        Ok(Self { release, tracer })
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If it did not stand still until now.
    pub(crate) fn let_go(self) -> Result<()> {
        let _ = self.release.send(());
        self.tracer.join().map_err(|_| anyhow!("the tracer panicked"))?
    }
}

fn find(pid: u32, name: &str) -> Result<Pid> {
    let shown: String = name.chars().take(NAME_BYTES).collect();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).context("cannot see the threads of a process")?;
    for task in tasks {
        let task = task?;
        // Others come and go meanwhile.
        let Ok(comm) = std::fs::read_to_string(task.path().join("comm")) else { continue };
        if comm.trim_end() == shown {
            let id = task.file_name().to_string_lossy().parse().context("a thread without a number")?;
            return Ok(Pid::from_raw(id));
        }
    }
    bail!("process {pid} has no thread {shown}")
}

/// Has the kernel stop a thread, and waits until it has.
fn catch(thread: Pid) -> Result<()> {
    ptrace::seize(thread, ptrace::Options::empty()).context("the thread cannot be traced")?;
    ptrace::interrupt(thread).context("the thread cannot be interrupted")?;
    let give_up = Instant::now() + STOPPED_WITHIN;
    loop {
        match waitpid(thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)).context("the thread is gone")? {
            WaitStatus::PtraceEvent(..) => return Ok(()),
            WaitStatus::StillAlive if Instant::now() < give_up => std::thread::sleep(POLL_EVERY),
            status => bail!("the thread did not stop: {status:?}"),
        }
    }
}

/// The state of a thread in one letter, as the kernel has it.
fn state_of(pid: u32, thread: Pid) -> Result<char> {
    super::injector::state_in(&PathBuf::from(format!("/proc/{pid}/task/{thread}/stat")))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use symphony_testkit::wait_until;

    use super::*;

    const NAME: &str = "sleep";

    /// A process with one thread of this name. It has it once it is the program: until then it has that of its parent.
    fn sleeper() -> Child {
        let child = Command::new("/bin/sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        wait_until("the program to run", Duration::from_secs(60), || find(child.id(), NAME)).unwrap();
        child
    }

    #[test]
    fn a_thread_stands_still_until_it_is_let_go_and_only_if_it_is_there() {
        let mut child = sleeper();
        let pid = child.id();
        assert!(HeldThread::hold(pid, "decide-0").unwrap_err().to_string().contains("no thread decide-0"));
        let tid = Pid::from_raw(pid as i32);
        match HeldThread::hold(pid, NAME) {
            Ok(held) => {
                assert_eq!(state_of(pid, tid).unwrap(), 't');
                held.let_go().unwrap();
                assert_ne!(state_of(pid, tid).unwrap(), 't');
                // A thread that ends meanwhile was not held throughout.
                let held = HeldThread::hold(pid, NAME).unwrap();
                child.kill().unwrap();
                assert!(held.let_go().is_err());
            }
            // A machine whose kernel does not allow tracing.
            Err(why) => println!("skipped: {why:#}"),
        }
        let _ = child.kill();
        child.wait().unwrap();
    }
}
