//! An operator who moves models and backends between sub-clusters without a pause, and brings them home at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::seq::IteratorRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_protocol::control::wanted_move::What;
use symphony_protocol::control::{self as pb, WantedMove};
use symphony_protocol::view::View;
use symphony_transport::fresh_operation_id;
use symphony_types::SubclusterId;
use tokio_util::sync::CancellationToken;

use super::MovedKind;
use crate::cluster::{Clients, Processes, first_away, homes, movables, strays};

/// The pause between plans: several moves are under way at any time.
const PAUSE: Duration = Duration::from_millis(150);
/// How long one call may take.
const CALL_WITHIN: Duration = Duration::from_millis(2500);
/// How long it may take until everything is at home; waits for a whole cluster are no longer either.
const HOME_WITHIN: Duration = Duration::from_secs(60);
/// A multiple of every number of replicas up to six: each is drawn as often as another.
const REPLICAS_DRAWN: usize = 60;

/// The operator. Dropping it lets everything stay where it is.
#[derive(Debug)]
pub(crate) struct Mover {
    agreed: Arc<AtomicU64>,
    homeward: CancellationToken,
    stop: Option<tokio_util::sync::DropGuard>,
}

struct Operator {
    replicas: Clients,
    home: BTreeMap<String, String>,
    what: Vec<MovedKind>,
    random: Xoshiro256PlusPlus,
    agreed: Arc<AtomicU64>,
}

impl Mover {
    /// Begins to move things.
    pub(crate) fn start(replicas: Clients, processes: &Processes, what: &[MovedKind], seed: u64) -> Self {
        let (agreed, homeward, stop) = (Arc::default(), CancellationToken::new(), CancellationToken::new());
        let operator = Operator {
            replicas,
            home: homes(processes),
            what: what.to_vec(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            agreed: Arc::clone(&agreed),
        };
        let (until, turn) = (stop.clone(), homeward.clone());
        tokio::spawn(async move { until.run_until_cancelled(operator.run(turn)).await });
        Self { agreed, homeward, stop: Some(stop.drop_guard()) }
    }

    /// Brings everything home from now on; returns how many moves were agreed on until now.
    pub(crate) fn send_home(mut self) -> u64 {
        self.homeward.cancel();
        // It ends by itself, when all are at home.
        self.stop.take().map(tokio_util::sync::DropGuard::disarm);
        self.agreed.load(Ordering::Relaxed)
    }
}

impl Operator {
    async fn run(mut self, homeward: CancellationToken) {
        while !homeward.is_cancelled() {
            let replica = self.replica();
            if let Ok(view) = self.replicas.nth(replica).get(false, CALL_WITHIN).await
                && let Some(wanted) = self.draw(&view)
                && self.propose(wanted).await
            {
                self.agreed.fetch_add(1, Ordering::Relaxed);
            }
            tokio::time::sleep(PAUSE).await;
        }
        let home = tokio::time::timeout(HOME_WITHIN, self.bring_home());
        // If something is not at home, the round reports it.
        let _ = home.await;
    }

    fn replica(&mut self) -> usize {
        self.random.random_range(0..REPLICAS_DRAWN)
    }

    /// Something that stands still, and somewhere else.
    fn draw(&mut self, view: &View) -> Option<WantedMove> {
        let what = &self.what;
        let still = movables(view).filter(|m| {
            let cargo = if matches!(m.what, What::Model(_)) { MovedKind::Models } else { MovedKind::Backends };
            what.contains(&cargo) && !m.moving && self.home.contains_key(m.name)
        });
        let one = still.choose(&mut self.random)?;
        let elsewhere = view.subclusters.keys().filter(|id| **id != one.at);
        let to = *elsewhere.choose(&mut self.random)?;
        Some(wanted(one.what, one.at, to))
    }

    /// Proposes one move home after the other until a linearizable view shows all of them at home.
    async fn bring_home(&mut self) {
        loop {
            let replica = self.replica();
            if let Ok(view) = self.replicas.nth(replica).get(true, CALL_WITHIN).await {
                let named = |pool: &String| view.subclusters.iter().find(|(_, s)| s.name == *pool).map(|(id, _)| *id);
                let moves: Vec<_> = strays(&view, &self.home)
                    .map(|m| (!m.moving).then(|| Some(wanted(m.what, m.at, named(self.home.get(m.name)?)?))).flatten())
                    .collect();
                // A backend that is down is nowhere, and comes up where it was.
                if first_away(&view, &self.home).is_none() {
                    return;
                }
                for wanted in moves.into_iter().flatten() {
                    self.propose(wanted).await;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether the group has agreed. A refused move, since others move or do not fit, is drawn again.
    async fn propose(&mut self, wanted: WantedMove) -> bool {
        let request = pb::ProposePlanRequest {
            epoch: 0,
            cause: "chaos moves things".into(),
            summary: String::new(),
            moves: vec![wanted],
            adopt: true,
            operation_id: fresh_operation_id().to_string(),
        };
        let call = |mut client: pb::control_client::ControlClient<_>| {
            let request = request.clone();
            async move { client.propose_plan(request).await }
        };
        let replica = self.replica();
        self.replicas.nth(replica).call(CALL_WITHIN, call).await.is_ok()
    }
}

fn wanted(what: What, from: SubclusterId, to: SubclusterId) -> WantedMove {
    WantedMove { what: Some(what), from: from.get(), to: to.get() }
}
