//! Follows the view and leads what this node was assigned.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use symphony_explain::{Explanation, Question};
use symphony_net::{Incoming, Role};
use symphony_protocol::view::View;
use symphony_scheduler::Pressure;
use symphony_types::{BackendId, BootId, SubclusterId, Token};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::explain::explain;
use crate::frontend_link::{Led, accept_frontends};
use crate::subcluster::{LeadConfig, LedSubcluster};
use crate::worker_metrics::WorkerDurations;

/// The dispatch runtime of one scheduler replica.
#[derive(Debug)]
pub struct Runtime {
    led: Led,
    view: watch::Receiver<Arc<View>>,
    ended: CancellationToken,
}

/// What a led sub-cluster has counted so far.
#[derive(Clone, Debug)]
pub struct LeadStatus {
    /// The sub-cluster.
    pub subcluster: SubclusterId,
    /// Under which token it is led.
    pub token: Token,
    /// Counters by name.
    pub counters: Vec<(&'static str, u64)>,
    /// How late timers rang and how long turns took, by kind of worker.
    pub durations: Vec<WorkerDurations>,
    /// How hard it is pressed.
    pub pressure: Pressure,
}

impl Runtime {
    /// Starts to serve frontends on `listener` and to lead whatever `view` assigns to this node. Backends that cannot
    /// be reached are reported through `down`. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(
        config: LeadConfig,
        listener: TcpListener,
        view: watch::Receiver<Arc<View>>,
        down: mpsc::UnboundedSender<(BackendId, BootId)>,
    ) -> Self {
        let led = Led::default();
        let ended = CancellationToken::new();
        let frontends = Incoming::new(listener, config.net.clone(), "scheduler.dispatch", &[Role::Frontend]);
        tokio::spawn(accept_frontends(frontends, view.clone(), Arc::clone(&led), ended.clone()));
        let names = view.clone();
        tokio::spawn(follow(config, view, down, Arc::clone(&led), ended.clone()));
        Self { led, view: names, ended }
    }

    /// What is led now.
    #[must_use]
    pub fn status(&self) -> Vec<LeadStatus> {
        let led = self.led.read().unwrap_or_else(PoisonError::into_inner);
        let status = |(&subcluster, lead): (&SubclusterId, &Arc<LedSubcluster>)| LeadStatus {
            subcluster,
            token: lead.token,
            counters: lead.workers.counters(),
            durations: lead.workers.durations(),
            pressure: lead.workers.pressure(),
        };
        led.iter().filter(|(_, lead)| !lead.ended.is_cancelled()).map(status).collect()
    }

    /// What the leads of this node remember of a request, or of a model's last batches. Blocks for about a millisecond for
    /// each model worker, and holds no decision up.
    #[must_use]
    pub fn explain(&self, question: &Question) -> Vec<Explanation> {
        let leads: Vec<_> = {
            let led = self.led.read().unwrap_or_else(PoisonError::into_inner);
            led.values().filter(|lead| !lead.ended.is_cancelled()).map(|lead| Arc::clone(&lead.workers)).collect()
        };
        let view = Arc::clone(&self.view.borrow());
        leads.iter().flat_map(|workers| explain(workers, &view, question)).collect()
    }

    /// Stops leading; the threads end.
    pub fn stop(&self) {
        self.ended.cancel();
        // A frontend's link holds its lead too: letting go is not enough.
        for (_, lead) in self.led.write().unwrap_or_else(PoisonError::into_inner).drain() {
            lead.end();
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn follow(
    config: LeadConfig,
    mut view: watch::Receiver<Arc<View>>,
    down: mpsc::UnboundedSender<(BackendId, BootId)>,
    led: Led,
    ended: CancellationToken,
) {
    // A token is led once: a lead that was fenced does not come back under the same number.
    let mut last_tokens: HashMap<SubclusterId, Token> = HashMap::new();
    loop {
        let current = Arc::clone(&view.borrow_and_update());
        lead_by(&config, &current, &view, &down, &led, &ended, &mut last_tokens);
        tokio::select! {
            () = ended.cancelled() => return,
            changed = view.changed() => if changed.is_err() { return },
        }
    }
}

/// Ends what is assigned to others, and begins what is assigned to this node.
fn lead_by(
    config: &LeadConfig,
    current: &View,
    view: &watch::Receiver<Arc<View>>,
    down: &mpsc::UnboundedSender<(BackendId, BootId)>,
    led: &Led,
    ended: &CancellationToken,
    last_tokens: &mut HashMap<SubclusterId, Token>,
) {
    let me = Some((config.node, config.boot));
    // The lock is held throughout: whoever stops the runtime finds every lead here, or none is begun after it.
    let mut leads = led.write().unwrap_or_else(PoisonError::into_inner);
    if ended.is_cancelled() {
        return;
    }
    leads.retain(|id, lead| {
        let stays = current.subclusters.get(id).is_some_and(|s| s.leader == me && s.token == lead.token)
            && !lead.ended.is_cancelled();
        if !stays {
            lead.end();
        }
        stays
    });
    for (&id, subcluster) in &current.subclusters {
        let newer = last_tokens.get(&id).is_none_or(|&last| subcluster.token > last);
        if subcluster.leader != me || !newer || leads.contains_key(&id) {
            continue;
        }
        match LedSubcluster::start(config, id, subcluster.token, view.clone(), down.clone()) {
            Ok(lead) => {
                last_tokens.insert(id, subcluster.token);
                leads.insert(id, Arc::new(lead));
            }
            Err(error) => tracing::error!(subcluster = %id, %error, "cannot start decision threads"),
        }
    }
}
