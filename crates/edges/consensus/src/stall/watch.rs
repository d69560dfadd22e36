//! The stall watch: a thread, and its reactions.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use openraft::Raft;
use openraft::async_runtime::watch::WatchReceiver;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::decision::{Order, StallDecision};
use crate::log::pulse::Pulse;
use crate::raft_state_machine::Machine;
use crate::raft_types::TypeConfig;
use crate::timing::Timing;

/// Watches the writer of one replica from its own thread, which no stuck task can delay. Ends when dropped.
#[derive(Debug)]
pub(crate) struct StallWatch {
    _ends_when_dropped: mpsc::Sender<()>,
}

impl StallWatch {
    /// Starts the thread. `silent` is set while this replica must not act as a leader.
    pub(crate) fn start(
        pulse: Arc<Pulse>,
        timing: &Timing,
        raft: Raft<TypeConfig, Machine>,
        silent: watch::Sender<bool>,
    ) -> io::Result<Self> {
        let (keeps_running, ended) = mpsc::channel();
        let (limit, handover_timeout) = (timing.disk_stall, timing.rpc_timeout);
        let runtime = Handle::current();
        let look = move || {
            let mut decision = StallDecision::new(limit, handover_timeout);
            let mut pause = Duration::ZERO;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let (now, busy_since) = (Instant::now(), pulse.busy_since());
                let order = decision.step(now, busy_since);
                pause = decision.pause(now, busy_since);
                match order {
                    Some(Order::HandOver { waited }) => {
                        tracing::error!(?waited, "disk does not answer; handing over if this node leads");
                        runtime.spawn(hand_over(raft.clone(), handover_timeout));
                    }
                    // Without other voters there is no successor.
                    Some(Order::FallSilent) if has_other_voters(&raft) => {
                        tracing::error!("disk still does not answer; keeping quiet so that others can elect");
                        silent.send_replace(true);
                    }
                    Some(Order::FallSilent) => {}
                    Some(Order::Resume { stalled }) => {
                        tracing::warn!(?stalled, "disk answers again");
                        silent.send_replace(false);
                    }
                    None => {}
                }
            }
        };
        std::thread::Builder::new().name("raft-stall-watch".into()).spawn(look)?;
        Ok(Self { _ends_when_dropped: keeps_running })
    }
}

fn has_other_voters(raft: &Raft<TypeConfig, Machine>) -> bool {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    metrics.membership_config.voter_ids().any(|voter| voter != metrics.id)
}

/// Asks the follower with the longest log to campaign at once. Does nothing on a follower or in a group of one.
async fn hand_over(raft: Raft<TypeConfig, Machine>, timeout: Duration) {
    let successor = {
        let metrics = raft.metrics();
        let metrics = metrics.borrow_watched();
        let voters: Vec<u64> = metrics.membership_config.voter_ids().filter(|voter| *voter != metrics.id).collect();
        let progress = metrics.replication.iter().flatten();
        progress.filter(|(node, _)| voters.contains(node)).max_by_key(|(_, matched)| **matched).map(|(node, _)| *node)
    };
    let Some(successor) = successor else { return };
    let transfer = tokio::time::timeout(timeout, raft.trigger().transfer_leader(successor)).await;
    if !matches!(transfer, Ok(Ok(()))) {
        tracing::warn!(successor, "the hand-over could not even be asked for");
    }
}
