//! Where the other replicas take beats.

use std::collections::BTreeMap;
use std::sync::Arc;

use symphony_protocol::view::View;
use symphony_types::NodeId;
use tokio::sync::watch;

/// The beat addresses of replicas: what they registered, else what the configuration says, which is all there is before
/// anybody registered.
#[derive(Clone, Debug)]
pub(crate) struct BeatAddresses {
    configured: Arc<BTreeMap<NodeId, String>>,
    views: watch::Receiver<Arc<View>>,
}

impl BeatAddresses {
    pub(crate) fn new(configured: BTreeMap<NodeId, String>, views: watch::Receiver<Arc<View>>) -> Self {
        Self { configured: Arc::new(configured), views }
    }

    pub(crate) fn of(&self, node: NodeId) -> Option<String> {
        let registered = self.views.borrow().nodes.get(&node).map(|n| n.beat_addr.clone()).filter(|a| !a.is_empty());
        registered.or_else(|| self.configured.get(&node).cloned())
    }
}
