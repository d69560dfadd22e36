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

/// How long this replica may take to apply what others have applied.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(1);

/// Resolves once this replica has applied everything that was agreed on before the call.
pub(crate) async fn catch_up(proposer: &Proposer, views: watch::Receiver<Arc<View>>) -> Result<(), Status> {
    let Some(leader) = proposer.linearize(false).await? else { return Ok(()) };
    applied(views, leader.applied_index).await
}

/// Resolves once this replica has applied that log entry.
pub(crate) async fn applied(mut views: watch::Receiver<Arc<View>>, index: u64) -> Result<(), Status> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_entry_is_waited_for_and_not_for_ever() {
        let at = |applied_index| Arc::new(View { applied_index, ..View::default() });
        let (view_sender, views) = watch::channel(at(6));
        let mut waits = Box::pin(applied(views.clone(), 7));
        assert!(futures::poll!(&mut waits).is_pending());
        view_sender.send_replace(at(8));
        assert!(waits.await.is_ok());
        let late = applied(views, 9).await.unwrap_err();
        assert!(late.message().contains("has not applied log entry 9 yet"), "{late}");
    }
}
