//! Whole clusters on this machine, as separate processes.

pub(crate) mod demo;
mod demo_models;
mod demo_report;
mod layout;
mod local_cluster;
mod local_federation;
mod pki;
pub(crate) mod process;
mod start_message;
pub(crate) mod up;

use std::sync::LazyLock;

use anyhow::Context;
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM, SIGINT, or the SIGHUP of a terminal that is closed, so that the processes of a cluster end
/// together with their parent. A process that was started with SIGHUP ignored (`nohup`) outlives the terminal.
pub(crate) async fn signalled() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut hangup = if hangup_is_ignored() {
        None
    } else {
        Some(signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?)
    };
    let hung_up = async {
        match &mut hangup {
            Some(hangup) => hangup.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hung_up => {}
    }
    Ok(())
}

/// Whether this process was started with SIGHUP ignored. Read once, before any handler is set.
fn hangup_is_ignored() -> bool {
    static IGNORED: LazyLock<bool> = LazyLock::new(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim).unwrap_or_default();
        u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & 1 << (Signal::SIGHUP as u32 - 1) != 0)
    });
    *IGNORED
}
