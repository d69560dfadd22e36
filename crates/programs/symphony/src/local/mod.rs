//! Whole clusters on this machine, as separate processes.

mod cluster;
pub(crate) mod demo;
mod demo_models;
mod demo_report;
mod federation;
mod pki;
pub(crate) mod process;
mod tell;
pub(crate) mod up;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT, so that the processes of a cluster end together with their parent.
pub(crate) async fn signalled() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
