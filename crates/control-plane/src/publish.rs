//! Publishes the view after every change. Whoever reads slowly sees the latest, not all.

use std::sync::Arc;

use symphony_consensus::Leadership;
use symphony_protocol::view::View;
use symphony_types::NodeId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::host::SharedState;
use crate::metrics::Metrics;
use crate::view;

/// Makes views of the state.
#[derive(Clone, Debug)]
pub(crate) struct Viewer {
    pub(crate) cluster: Arc<str>,
    pub(crate) node: NodeId,
    pub(crate) state: SharedState,
    pub(crate) leadership: watch::Receiver<Leadership>,
}

impl Viewer {
    /// The cluster as this replica has applied it now.
    pub(crate) fn view(&self) -> View {
        let leader = self.leadership.borrow().leader;
        view::view(&self.state.read(), &self.cluster, self.node, leader)
    }
}

/// Publishes until stopped. Many commands applied at once, as after a restart, make one view.
pub(crate) async fn run(
    mut viewer: Viewer,
    mut applied: watch::Receiver<u64>,
    views: watch::Sender<Arc<View>>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    loop {
        applied.mark_unchanged();
        let leads = viewer.leadership.borrow_and_update().is_leader;
        metrics.is_leader.set(i64::from(leads));
        views.send_replace(Arc::new(viewer.view()));
        let more = tokio::select! {
            changed = applied.changed() => changed.is_ok(),
            changed = viewer.leadership.changed() => changed.is_ok(),
            () = stop.cancelled() => false,
        };
        if !more {
            return;
        }
    }
}
