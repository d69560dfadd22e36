//! The framework of what the leader of the control group proposes of its own accord.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_cluster_state::{ClusterState, Command};
use symphony_protocol::view::View;
use symphony_types::NodeId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::error::CallError;
use crate::group::propose::{AttemptError, Proposer};
use crate::group::state_machine::SharedState;

/// Decides what to propose next. A pure value: time and state are given.
pub(crate) trait Initiative: fmt::Debug + Send + 'static {
    /// The next proposal. `me` is this replica while it leads the control group; otherwise the initiative proposes
    /// nothing and resets.
    fn step(&mut self, now: Instant, state: &ClusterState, me: Option<NodeId>) -> Option<Command>;
}

/// Check interval when nothing changes, for decisions that depend on time only (seconds). A check walks all
/// sub-clusters, backends and models.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// Makes the proposals while this replica leads.
pub(crate) async fn run(
    mut initiative: impl Initiative,
    me: NodeId,
    state: SharedState,
    proposer: Proposer,
    mut views: watch::Receiver<Arc<View>>,
    stop: CancellationToken,
) {
    let leadership = proposer.group().leadership();
    loop {
        let leads = leadership.borrow().is_leader.then_some(me);
        let next = initiative.step(Instant::now(), &state.read(), leads);
        if let Some(command) = next {
            match proposer.propose_here(&command).await {
                Ok(_) => continue,
                Err(AttemptError::Fatal(CallError::Stopped)) => return,
                Err(AttemptError::Fatal(error)) => tracing::info!(command = command.label(), %error, "refused"),
                Err(AttemptError::Retry(reason)) => {
                    tracing::debug!(command = command.label(), reason, "not known to be agreed");
                }
            }
        }
        let changed = async {
            if views.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = changed, if leads.is_some() => {}
            () = tokio::time::sleep(POLL_EVERY) => {}
        }
    }
}
