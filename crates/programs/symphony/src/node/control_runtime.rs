//! The runtime of a replica's control group.

use anyhow::Context;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// Threads: one may be occupied by a handshake or by encoding a view without stopping Raft.
const THREADS: usize = 2;

/// A runtime separate from the links to frontends and backends: a new lead opens a thousand of them at once, and behind
/// their handshakes Raft messages would be delayed beyond an election timeout.
pub(super) struct ControlRuntime {
    handle: Handle,
    /// Runs until it ends.
    runtime: Option<Runtime>,
}

impl ControlRuntime {
    pub(super) fn start() -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).thread_name("control").enable_all().build();
        let runtime = runtime.context("cannot start the control group's runtime")?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs a future there, including all that it spawns.
    pub(super) fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.handle.spawn(task)
    }
}

impl Drop for ControlRuntime {
    /// Blocking on a runtime inside another one is not allowed.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
