//! A led sub-cluster over real links, between a frontend and a backend that the test plays.

mod backend;
mod draining;
mod end_of_lead;
mod families;
mod frontend;
mod hand_over;
mod links;
mod payload_delays;
mod plans;
mod policies;
mod scene;
mod take_over;

use std::future::Future;
use std::time::Duration;

use symphony_types::{BackendId, BootId, FrontendId, GpuId, NodeId, SubclusterId, Token};

const NODE: NodeId = NodeId::new(1);
const NODE_BOOT: BootId = BootId::new(7);
const SUBCLUSTER: SubclusterId = SubclusterId::new(1);
const TOKEN: Token = Token::new(10);
const BACKEND: BackendId = BackendId::new(3);
const BACKEND_BOOT: BootId = BootId::new(5);
const GPU: GpuId = GpuId::new(9);
const FRONTEND: FrontendId = FrontendId::new(2);
const FRONTEND_BOOT: BootId = BootId::new(6);
/// Limit for every wait.
const SOON: Duration = Duration::from_secs(60);

/// The leader when the scene's own replica does not lead.
const OTHER: (NodeId, BootId) = (NodeId::new(2), BootId::new(70));
/// The token of the lead after the first.
const LATER: Token = Token::new(20);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.unwrap_or_else(|_| panic!("no {what} within {SOON:?}"))
}
