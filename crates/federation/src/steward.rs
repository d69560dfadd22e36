//! The leader's work: looks at clusters, and takes the steps that are due until every model is where it belongs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use symphony_consensus::{ControlGroup, Leadership};
use symphony_epochs::{Ended, Start};
use symphony_federation_state::{Cause, Command, FederationState, MOVES_PER_COMMAND_MAX, WantedMove};
use symphony_protocol::control as pb;
use symphony_protocol::view::View;
use symphony_transport::ControlError;
use symphony_types::Time;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{ClusterAccess, FederationConfig};
use crate::decide::{Asked, Deed, Seen, Step, homeless, steps};
use crate::looks::{Look, Looks, views};
use crate::metrics::Metrics;
use crate::places::{Placed, Stop, balance, place};
use crate::problem::Known;
use crate::propose::propose;
use crate::rates::Rates;
use crate::rebalance::{BalanceMode, BalanceSettings, Rebalance};

/// How often it is looked what is due, besides every change of the state.
const TICK: Duration = Duration::from_millis(100);
/// How long the search for places may take.
const SOLVES_WITHIN: Duration = Duration::from_secs(1);
/// How long of that for all models together.
const SOLVES_TOGETHER_WITHIN: Duration = Duration::from_millis(500);
/// How long nothing is tried again for models that found no place, unless something has changed.
const TRIES_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How long one call to a cluster may take.
const CALL_WITHIN: Duration = Duration::from_secs(2);
/// A call that a cluster refused is made again after this long.
const ASKS_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Calls to clusters under way at a time.
const CALLS_MAX: usize = 64;

/// What the leader sees, for its own work and for who asks it.
#[derive(Clone, Debug)]
pub(crate) struct Office {
    pub(crate) group: ControlGroup,
    pub(crate) state: watch::Receiver<Arc<FederationState>>,
    pub(crate) rates: Arc<Rates>,
    pub(crate) unreachable: Duration,
    pub(crate) balance: BalanceSettings,
    /// Of the leader only.
    looks: Arc<Mutex<Option<Looks>>>,
    metrics: Metrics,
}

impl Office {
    pub(crate) fn new(
        group: ControlGroup,
        state: watch::Receiver<Arc<FederationState>>,
        unreachable: Duration,
        balance: BalanceSettings,
        metrics: Metrics,
    ) -> Self {
        Self { group, state, rates: Arc::default(), unreachable, balance, looks: Arc::default(), metrics }
    }

    pub(crate) fn state(&self) -> Arc<FederationState> {
        Arc::clone(&self.state.borrow())
    }

    fn looks(&self) -> BTreeMap<String, Look> {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.as_ref().map(Looks::all).unwrap_or_default()
    }

    /// What plans are made by; none if it is not all seen yet.
    pub(crate) fn views(&self, state: &FederationState) -> Option<BTreeMap<String, Arc<View>>> {
        views(&self.looks(), state, self.unreachable)
    }

    async fn propose(&self, command: &Command) {
        if let Err(error) = propose(&self.group, command).await {
            tracing::debug!(command = command.label(), %error, "not agreed on");
        }
    }
}

/// Works whenever this replica leads, until stopped.
pub(crate) async fn run(
    office: Office,
    config: FederationConfig,
    mut leadership: watch::Receiver<Leadership>,
    stop: CancellationToken,
) {
    loop {
        let leads = leadership.borrow_and_update().is_leader;
        office.metrics.is_leader.set(leads.into());
        let work = async {
            if leads {
                tracing::info!("this replica leads the federation");
                let looks = Looks::begin(&config.clusters, config.look_every, config.unreachable);
                *office.looks.lock().unwrap_or_else(PoisonError::into_inner) = Some(looks);
                Steward::new(office.clone(), &config.clusters).work().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        let over = tokio::select! {
            () = stop.cancelled() => true,
            () = work => false,
            changed = leadership.wait_for(|now| now.is_leader != leads) => changed.is_err(),
        };
        *office.looks.lock().unwrap_or_else(PoisonError::into_inner) = None;
        office.metrics.moves_proposed.set(0);
        if over {
            return;
        }
    }
}

/// A call to a cluster, by what it is for.
type Call = (String, String, u64);

struct Steward {
    office: Office,
    leads_since: Instant,
    configured: BTreeMap<String, Vec<String>>,
    clusters: BTreeMap<String, ClusterAccess>,
    /// Since when this leader knows of what happened to a model at an index.
    known_since: BTreeMap<(String, u64), Instant>,
    calls: Arc<Mutex<BTreeSet<Call>>>,
    searched: Option<(Instant, Vec<String>, u64)>,
    /// Models that have had their turn in vain, while others still wait for theirs.
    tried: BTreeSet<String>,
    rebalance: Rebalance,
}

impl Steward {
    fn new(office: Office, clusters: &[ClusterAccess]) -> Self {
        Self {
            rebalance: Rebalance::new(office.balance.clone()),
            office,
            leads_since: Instant::now(),
            configured: clusters.iter().map(|cluster| (cluster.name.clone(), cluster.addrs.clone())).collect(),
            clusters: clusters.iter().map(|cluster| (cluster.name.clone(), cluster.clone())).collect(),
            known_since: BTreeMap::new(),
            calls: Arc::default(),
            searched: None,
            tried: BTreeSet::new(),
        }
    }

    async fn work(mut self) {
        loop {
            // What the group agreed on before this replica led counts, also what it has not applied yet.
            if self.office.group.read_index().await.is_ok() {
                self.take_steps().await;
                self.find_places().await;
                self.rebalance().await;
            }
            tokio::time::sleep(TICK).await;
        }
    }

    async fn take_steps(&mut self) {
        let state = self.office.state();
        self.show(&state);
        let now = Instant::now();
        self.remember(&state, now);
        let steps = {
            let age = |model: &str, since: u64| {
                let known = self.known_since.get(&(model.to_owned(), since));
                known.map_or(Duration::ZERO, |at| now.saturating_duration_since(*at))
            };
            let looks = self.office.looks();
            let unreachable = self.office.unreachable;
            let leads = now.saturating_duration_since(self.leads_since);
            steps(&state, &Seen { configured: &self.configured, looks: &looks, unreachable, leads, age: &age })
        };
        for step in steps {
            match step {
                Step::Propose(command) => {
                    if let Command::ClusterLost { name, .. } = &command
                        && !self.configured.contains_key(name)
                    {
                        tracing::warn!(cluster = name, "this replica is not configured with it: it counts as lost");
                    }
                    self.office.propose(&command).await;
                }
                Step::Ask(asked) => self.ask(asked),
            }
        }
    }

    fn remember(&mut self, state: &FederationState, now: Instant) {
        let indexes = state.models().iter().flat_map(|(name, model)| {
            let home = model.home.iter().map(|home| home.since);
            let moving = model.moving.iter().map(|moving| moving.since);
            home.chain(moving).chain(model.leftovers.values().copied()).map(move |since| (name.clone(), since))
        });
        let current: BTreeSet<_> = indexes.collect();
        self.known_since.retain(|known, _| current.contains(known));
        for known in current {
            self.known_since.entry(known).or_insert(now);
        }
    }

    fn show(&self, state: &FederationState) {
        let metrics = &self.office.metrics;
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        metrics.plan.set(i64::try_from(state.plan()).unwrap_or(i64::MAX));
        metrics.clusters.set(gauge(state.clusters().len()));
        metrics.clusters_lost.set(gauge(state.clusters().values().filter(|cluster| !cluster.reachable).count()));
        metrics.models.set(gauge(state.models().len()));
        let unserved = state.models().values().filter(|model| {
            !model.unloading && !model.home.as_ref().is_some_and(|home| state.is_reachable(&home.cluster))
        });
        metrics.models_unserved.set(gauge(unserved.count()));
        metrics.moves.set(gauge(state.moves_under_way()));
        if state.moves_under_way() > 0 {
            // What was proposed before is out of date.
            metrics.moves_proposed.set(0);
        }
    }

    /// Calls a cluster, once at a time for the same thing.
    fn ask(&self, asked: Asked) {
        let Some(cluster) = self.clusters.get(&asked.cluster).cloned() else { return };
        let call = match &asked.what {
            Deed::Load { spec, since } => (asked.cluster.clone(), spec.name.clone(), *since),
            Deed::Unload { model, since } => (asked.cluster.clone(), model.clone(), *since),
        };
        {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            if calls.len() >= CALLS_MAX || !calls.insert(call.clone()) {
                return;
            }
        }
        let (office, calls) = (self.office.clone(), Arc::clone(&self.calls));
        office.metrics.cluster_calls.inc();
        tokio::spawn(async move {
            if !carry_out(&office, &cluster, asked).await {
                tokio::time::sleep(ASKS_AGAIN_AFTER).await;
            }
            calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&call);
        });
    }

    /// Divides all models anew, if it is time: by what is measured, and by the same rules as an operator who asks for it.
    async fn rebalance(&mut self) {
        let state = self.office.state();
        let Some(views) = self.office.views(&state).filter(|views| !views.is_empty()) else { return };
        let rates = self.office.rates.all(std::time::Instant::now());
        let now = |since: Instant| Time::from_nanos(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let known = Known { state: &state, views: &views, rates: &rates };
        let Some(Start { why, .. }) = self.rebalance.look(now(self.leads_since), &known) else { return };
        let (begun, moved_bytes_max, known) =
            (std::time::Instant::now(), self.office.balance.moved_bytes_max, Arc::clone(&state));
        let search = move || {
            let known = Known { state: &known, views: &views, rates: &rates };
            balance(&known, moved_bytes_max, &|| begun.elapsed() >= SOLVES_WITHIN)
        };
        let found = match tokio::task::spawn_blocking(search).await {
            Ok(found) => found,
            Err(error) => Err(format!("the search failed: {error}")),
        };
        let metrics = &self.office.metrics;
        metrics.moves_proposed.set(0);
        let ended = match found {
            Err(words) => {
                tracing::warn!(why = why.label(), "no division: {words}");
                Ended::Failed
            }
            Ok((words, moves)) => {
                tracing::info!(why = why.label(), "{words}");
                match self.rebalance.mode() {
                    BalanceMode::Adopt if !moves.is_empty() => {
                        metrics.moves_begun.inc_by(moves.len() as u64);
                        self.office.propose(&Command::BeginMoves { moves, cause: Cause::Balance }).await;
                    }
                    BalanceMode::Propose => {
                        metrics.moves_proposed.set(i64::try_from(moves.len()).unwrap_or(i64::MAX));
                    }
                    BalanceMode::Adopt | BalanceMode::Off => {}
                }
                Ended::Done
            }
        };
        self.rebalance.ended(now(self.leads_since), ended);
    }

    /// Finds places for models without one, if something has changed or some time has passed.
    async fn find_places(&mut self) {
        let state = self.office.state();
        let homeless: Vec<String> = homeless(&state).into_iter().map(str::to_owned).collect();
        if homeless.is_empty() {
            (self.searched, self.tried) = (None, BTreeSet::new());
            return;
        }
        let Some(views) = self.office.views(&state).filter(|views| !views.is_empty()) else { return };
        let again = self.searched.as_ref().is_none_or(|(at, models, plan)| {
            *models != homeless || *plan != state.plan() || !self.tried.is_empty() || at.elapsed() >= TRIES_AGAIN_AFTER
        });
        if !again {
            return;
        }
        let (known, rates, names) =
            (Arc::clone(&state), self.office.rates.all(std::time::Instant::now()), homeless.clone());
        let (begun, tried) = (std::time::Instant::now(), std::mem::take(&mut self.tried));
        let search = move || {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let known = Known { state: &known, views: &views, rates: &rates };
            let (together, all) = (|| begun.elapsed() >= SOLVES_TOGETHER_WITHIN, || begun.elapsed() >= SOLVES_WITHIN);
            place(&known, &names, &tried, &Stop { together: &together, all: &all })
        };
        // A search that fails leaves everything as it is; the next one may do better.
        let Placed { moves, unplaced, tried } = match tokio::task::spawn_blocking(search).await {
            Ok(placed) => placed,
            Err(error) => return tracing::error!(%error, "the search for places failed"),
        };
        (self.searched, self.tried) = (Some((Instant::now(), homeless, state.plan())), tried);
        let (lost, new): (Vec<WantedMove>, _) = moves.into_iter().partition(|wanted| wanted.from.is_some());
        for (moves, cause) in [(lost, Cause::Loss), (new, Cause::Place)] {
            for moves in moves.chunks(MOVES_PER_COMMAND_MAX) {
                self.office.metrics.moves_begun.inc_by(moves.len() as u64);
                self.office.propose(&Command::BeginMoves { moves: moves.to_vec(), cause }).await;
            }
        }
        for (name, reason) in unplaced {
            let Some(model) = state.models().get(&name).filter(|model| model.unplaced != reason) else { continue };
            let loaded_at = model.loaded_at;
            self.office.propose(&Command::Unplaced { model: name, loaded_at, reason }).await;
        }
    }
}

/// Asks the cluster. Whether it said that it is done.
async fn carry_out(office: &Office, cluster: &ClusterAccess, asked: Asked) -> bool {
    let Asked { id, what, .. } = asked;
    let operation_id = id.to_string();
    match what {
        Deed::Load { spec, since } => {
            let call = |mut client: pb::control_client::ControlClient<_>| {
                let (spec, operation_id) = (Some(pb::ModelSpec::from(&spec)), operation_id.clone());
                async move { client.load_model(pb::LoadModelRequest { spec, operation_id }).await }
            };
            match cluster.control.call(CALL_WITHIN, call).await {
                Ok(_) => true,
                // Nothing but another plan helps: what the cluster refuses it will refuse again.
                Err(ControlError::Refused(status)) => {
                    let reason = crate::decide::cut(format!("{} refuses it: {}", cluster.name, status.message()));
                    office.propose(&Command::GiveUp { model: spec.name, since, reason }).await;
                    false
                }
                Err(error) => {
                    tracing::debug!(cluster = cluster.name, model = spec.name, %error, "not loaded");
                    false
                }
            }
        }
        Deed::Unload { model, since } => {
            let call = |mut client: pb::control_client::ControlClient<_>| {
                let request = pb::UnloadModelRequest { name: model.clone(), operation_id: operation_id.clone() };
                async move { client.unload_model(request).await }
            };
            match cluster.control.call(CALL_WITHIN, call).await {
                Ok(_) => {
                    let cluster = cluster.name.clone();
                    office.propose(&Command::CopyGone { model, cluster, since }).await;
                    true
                }
                Err(error) => {
                    tracing::debug!(cluster = cluster.name, model, %error, "not unloaded");
                    false
                }
            }
        }
    }
}
