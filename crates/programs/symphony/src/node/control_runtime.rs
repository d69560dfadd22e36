//! Where a replica's control group runs.

use anyhow::Context;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// Threads: one may be held up by a handshake, or by a view that is encoded, without Raft standing still.
const THREADS: usize = 2;

/// A runtime apart from links to frontends and backends, of which a new lead makes a thousand at once. Behind their
/// handshakes Raft's messages would wait for longer than an election takes.
pub(super) struct ControlRuntime {
    handle: Handle,
    /// Until it ends.
    runtime: Option<Runtime>,
}

impl ControlRuntime {
    pub(super) fn start() -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).thread_name("control").enable_all().build();
        let runtime = runtime.context("cannot start the control group's runtime")?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Runs something there, with all that it spawns.
    pub(super) fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.handle.spawn(task)
    }
}

impl Drop for ControlRuntime {
    /// A runtime may not be waited for inside of another one.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
