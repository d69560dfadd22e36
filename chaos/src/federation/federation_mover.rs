//! An operator who moves models with load between clusters without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::SeedableRng as _;
use rand::seq::IteratorRandom as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_protocol::control as pb;
use symphony_protocol::federation::FederationView;
use symphony_transport::{FederationClient, fresh_operation_id};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::models::is_loaded;

/// The pause between moves: several are under way at any time.
const PAUSE: Duration = Duration::from_millis(300);
/// How long one call may take.
const CALL_WITHIN: Duration = Duration::from_millis(2500);

/// The operator. It goes when it is dropped; what is on its way then arrives.
#[derive(Debug)]
pub(super) struct FederationMover {
    agreed: Arc<AtomicU64>,
    _stop: DropGuard,
}

impl FederationMover {
    pub(super) fn start(client: FederationClient, seed: u64) -> Self {
        let (agreed, stop) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let (until, count) = (stop.clone(), Arc::clone(&agreed));
        tokio::spawn(async move { until.run_until_cancelled(run(client, seed, count)).await });
        Self { agreed, _stop: stop.drop_guard() }
    }

    /// Moves that the group agreed on so far.
    pub(super) fn agreed(&self) -> u64 {
        self.agreed.load(Ordering::Relaxed)
    }
}

async fn run(client: FederationClient, seed: u64, agreed: Arc<AtomicU64>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    loop {
        if let Ok(view) = client.get(true, CALL_WITHIN).await
            && let Some((model, to)) = draw(&view, &mut random)
        {
            let operation_id = fresh_operation_id().to_string();
            let request = pb::FederationMoveRequest { model, to, operation_id };
            let call = |mut client: pb::federation_client::FederationClient<_>| {
                let request = request.clone();
                async move { client.r#move(request).await }
            };
            // A refused move, since it does not fit or a copy is not gone yet, is drawn again.
            if client.call(CALL_WITHIN, call).await.is_ok() {
                agreed.fetch_add(1, Ordering::Relaxed);
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A model that stands still, and another cluster that answers and holds no copy of it.
fn draw(view: &FederationView, random: &mut Xoshiro256PlusPlus) -> Option<(String, String)> {
    let still = view.models.iter().filter(|(name, model)| is_loaded(name) && model.moves_to.is_none());
    let ways = still.flat_map(|(name, model)| {
        let others = view.clusters.iter().filter(|(cluster, seen)| {
            seen.reachable && model.home.as_ref() != Some(*cluster) && !model.leftovers.contains(cluster)
        });
        others.map(|(cluster, _)| (name.clone(), cluster.clone()))
    });
    ways.choose(random)
}
