//! Where a replica's control group runs.

use std::io;

use anyhow::Context;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// Threads for what is around Raft: one may be held up by a handshake, or by a view that is encoded, without the other standing still.
const THREADS: usize = 2;

/// Runtimes apart from links to frontends and backends, of which a new lead makes a thousand at once. Behind their handshakes
/// Raft's messages would wait for longer than an election takes. Raft itself has one thread: of several each wakes another one for
/// every heartbeat.
pub(super) struct ControlRuntime {
    handle: Handle,
    raft: Handle,
    /// Until they end.
    runtimes: Vec<Runtime>,
}

impl ControlRuntime {
    pub(super) fn start() -> anyhow::Result<Self> {
        let control = start("control", THREADS).context("cannot start the control group's runtime")?;
        let raft = start("raft", 1).context("cannot start Raft's runtime")?;
        Ok(Self { handle: control.handle().clone(), raft: raft.handle().clone(), runtimes: vec![control, raft] })
    }

    /// Runs something around Raft, with all that it spawns.
    pub(super) fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.handle.spawn(task)
    }

    /// For Raft.
    pub(super) fn raft(&self) -> Handle {
        self.raft.clone()
    }
}

fn start(name: &str, threads: usize) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(threads).thread_name(name).enable_all().build()
}

impl Drop for ControlRuntime {
    /// A runtime may not be waited for inside of another one.
    fn drop(&mut self) {
        self.runtimes.drain(..).for_each(Runtime::shutdown_background);
    }
}
