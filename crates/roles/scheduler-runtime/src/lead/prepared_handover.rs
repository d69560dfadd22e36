//! A planned hand-over to this node: the backends of its sub-cluster are dialled while another node still leads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use symphony_cluster_state::LeadReport;
use symphony_net::{Expected, Net, Role};
use symphony_protocol::execute::{FromBackend, ToBackend};
use symphony_protocol::view::View;
use symphony_transport::{LinkReceiver, LinkSender, connect_link};
use symphony_types::{BackendId, BootId, SubclusterId};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Pause before a backend that could not be reached is dialled again.
const DIAL_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A connection to a backend before any message.
pub(crate) type Dialled = (LinkSender<ToBackend>, LinkReceiver<FromBackend>);

/// Connections by boot of a backend.
pub(crate) type DialledLinks = HashMap<(BackendId, BootId), Dialled>;

/// A hand-over to this node that is under way. Dropping it closes the connections.
#[derive(Debug)]
pub(crate) struct PreparedHandover {
    since: u64,
    links: Arc<Mutex<DialledLinks>>,
    task: JoinHandle<()>,
}

impl PreparedHandover {
    /// Dials every backend of the sub-cluster, and reports when all connections are up.
    pub(crate) fn start(
        net: Net,
        subcluster: SubclusterId,
        since: u64,
        view: watch::Receiver<Arc<View>>,
        reports: mpsc::UnboundedSender<LeadReport>,
    ) -> Self {
        let links = Arc::default();
        let task = tokio::spawn(dial_all(net, subcluster, since, view, Arc::clone(&links), reports));
        Self { since, links, task }
    }

    /// The log index at which the hand-over began.
    pub(crate) const fn since(&self) -> u64 {
        self.since
    }

    /// Takes the connections, for the lead that begins.
    pub(crate) fn take(&self) -> DialledLinks {
        std::mem::take(&mut self.links.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for PreparedHandover {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn dial_all(
    net: Net,
    subcluster: SubclusterId,
    since: u64,
    view: watch::Receiver<Arc<View>>,
    links: Arc<Mutex<DialledLinks>>,
    reports: mpsc::UnboundedSender<LeadReport>,
) {
    tracing::info!(%subcluster, since, "gets ready to lead");
    loop {
        // A backend that is declared down meanwhile is no longer waited for.
        let current = Arc::clone(&view.borrow());
        let wanted: Vec<_> = {
            let links = links.lock().unwrap_or_else(PoisonError::into_inner);
            let mine = current.backends.iter().filter(|(_, b)| b.subcluster == subcluster && b.up);
            let missing = mine.filter(|(id, b)| !links.contains_key(&(**id, b.boot)));
            missing.map(|(&id, b)| (id, b.boot, b.exec_addr.clone(), Expected::named(Role::Backend, &b.name))).collect()
        };
        if wanted.is_empty() {
            let _ = reports.send(LeadReport::Ready { subcluster, since });
            return;
        }
        let net = &net;
        let dials = wanted.into_iter().map(|(id, boot, addr, expected)| async move {
            let turn = net.dial_turn().await;
            let link = turn.spend(connect_link::<ToBackend, FromBackend>(net, &addr, &expected)).await;
            link.inspect_err(|error| tracing::debug!(backend = %id, %error, "not dialled yet"))
                .ok()
                .map(|l| ((id, boot), l))
        });
        let made: Vec<_> = futures::future::join_all(dials).await.into_iter().collect();
        let failed = made.iter().any(Option::is_none);
        links.lock().unwrap_or_else(PoisonError::into_inner).extend(made.into_iter().flatten());
        if failed {
            tokio::time::sleep(DIAL_AGAIN_AFTER).await;
        }
    }
}
