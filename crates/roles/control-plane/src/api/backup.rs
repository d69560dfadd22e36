//! Backups of the state (ADR 42).

use std::sync::Arc;
use std::time::Duration;

use symphony_cluster_state::Backup;
use symphony_protocol::view::View;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Status;

use crate::api::publish::Viewer;
use crate::error::CallError;
use crate::group::propose::Proposer;

/// How long this replica may take to apply what the leader had applied when it was asked.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(1);

/// Resolves once this replica has applied everything that was agreed on before the call.
pub(crate) async fn catch_up(proposer: &Proposer, mut views: watch::Receiver<Arc<View>>) -> Result<(), Status> {
    let Some(leader) = proposer.linearize(false).await? else { return Ok(()) };
    let index = leader.applied_index;
    let applied = timeout(CATCHES_UP_WITHIN, views.wait_for(|view| view.applied_index >= index)).await;
    match applied.map(|seen| seen.is_ok()) {
        Ok(true) => Ok(()),
        _ => Err(Status::unavailable(format!("this replica has not applied log entry {index} yet; ask another one"))),
    }
}

/// The state as this replica has applied it, as the bytes of a backup.
pub(crate) async fn take(viewer: &Viewer, proposer: &Proposer, confirmed: bool) -> Result<Vec<u8>, Status> {
    let (state, cluster, node) = (viewer.state.clone(), viewer.cluster.to_string(), viewer.node);
    let (taken_at_unix_ms, term) = (proposer.unix_ms(), proposer.group().leadership().borrow().term);
    let take = move || {
        let (index, state) = {
            let state = state.read();
            (state.applied_index(), state.snapshot())
        };
        let release = env!("CARGO_PKG_VERSION").to_owned();
        Backup { cluster, release, taken_at_unix_ms, node, index, term, state, confirmed }.encode()
    };
    // A large state takes a tenth of a second.
    let taken = tokio::task::spawn_blocking(take).await;
    let taken = taken.map_err(|error| Status::internal(format!("no backup was made: {error}")))?;
    Ok(taken.map_err(CallError::from)?)
}
