//! The leader's work: polls clusters, and takes due steps until every model is where it belongs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use symphony_consensus::{ControlGroup, Leadership};
use symphony_controllers::{Ended, Start};
use symphony_federation_state::{Cause, Command, FederationState, HomeMove, MOVES_AT_ONCE_MAX};
use symphony_protocol::control as pb;
use symphony_protocol::view::View;
use symphony_transport::ControlError;
use symphony_types::{NodeId, Time};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::cluster_poller::{ClusterPoller, Poll, views};
use crate::config::{ClusterAccess, FederationConfig};
use crate::decide::{ClusterCall, ModelCommand, Purpose, Seen, Step, steps, without_home};
use crate::frontends::Frontends;
use crate::metrics::Metrics;
use crate::places::{Division, Placed, Stop, balance, place};
use crate::problem::Known;
use crate::propose::{Agreed, CallError, propose};
use crate::rates::{Demand, Rates};
use crate::rebalance::{BalanceMode, BalanceSettings, Rebalance};
use crate::view::Observed;

/// How often to check for due steps, besides every change of the state.
const TICK: Duration = Duration::from_millis(100);
/// How long the search for a place or a more even division may take.
pub(crate) const SOLVES_WITHIN: Duration = Duration::from_secs(1);
/// The part of it for a joint plan of all models.
const SOLVES_TOGETHER_WITHIN: Duration = Duration::from_millis(500);
/// How long, after the search for a division, to select the moves that can begin.
pub(crate) const PICKS_WITHIN: Duration = Duration::from_millis(500);
/// How often to check whether a division is due: about as often as its measurements change.
const BALANCE_CHECK_EVERY: Duration = Duration::from_secs(1);
/// Pause before models without a place are tried again, unless something has changed.
const TRIES_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How long one call to a cluster may take.
const CALL_WITHIN: Duration = Duration::from_secs(2);
/// Pause before a refused call is repeated.
const ASKS_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The most silent frontends that a log line names.
const SILENT_NAMED_MAX: usize = 8;
/// The most concurrent calls to clusters.
const CALLS_MAX: usize = 64;

/// What the leader observes, for its own work and for callers.
#[derive(Clone, Debug)]
pub(crate) struct LeaderContext {
    pub(crate) group: ControlGroup,
    pub(crate) state: watch::Receiver<Arc<FederationState>>,
    pub(crate) wall_clock: fn() -> u64,
    pub(crate) rates: Arc<Rates>,
    pub(crate) unreachable: Duration,
    pub(crate) balance: BalanceSettings,
    /// Set on the leader only.
    poller: Arc<Mutex<Option<ClusterPoller>>>,
    metrics: Metrics,
}

impl LeaderContext {
    pub(crate) fn new(
        group: ControlGroup,
        state: watch::Receiver<Arc<FederationState>>,
        unreachable: Duration,
        balance: BalanceSettings,
        wall_clock: fn() -> u64,
        metrics: Metrics,
    ) -> Self {
        Self { group, state, wall_clock, rates: Arc::default(), unreachable, balance, poller: Arc::default(), metrics }
    }

    pub(crate) fn state(&self) -> Arc<FederationState> {
        Arc::clone(&self.state.borrow())
    }

    fn polls(&self) -> BTreeMap<String, Poll> {
        let poller = self.poller.lock().unwrap_or_else(PoisonError::into_inner);
        poller.as_ref().map(ClusterPoller::all).unwrap_or_default()
    }

    /// The views that plans are made with; none if some are missing.
    pub(crate) fn views(&self, state: &FederationState) -> Option<BTreeMap<String, Arc<View>>> {
        views(&self.polls(), state, self.unreachable)
    }

    /// The part that tools are shown.
    pub(crate) fn observed(&self, state: &FederationState) -> Observed {
        let polls = self.polls().into_iter().filter(|(name, _)| state.is_reachable(name));
        let views = polls.filter_map(|(name, poll)| Some((name, Arc::clone(poll.now(self.unreachable)?))));
        Observed { rates: self.rates.all(std::time::Instant::now()), views: views.collect() }
    }

    /// The clients' demand, and the silent frontends.
    pub(crate) fn demand(&self, views: &BTreeMap<String, Arc<View>>) -> Demand {
        let leads = self.poller.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ClusterPoller::age);
        self.rates.demand(std::time::Instant::now(), &Frontends::seen(views), leads.unwrap_or_default())
    }

    /// Starts those of the moves that can start, and counts the refused ones; returns how many started.
    async fn begin(&self, moves: Vec<HomeMove>, cause: Cause) -> usize {
        let requested = moves.len();
        let answer = self.agree(Command::BeginMoves { moves, cause }).await;
        let (begun, refused) = begun_and_refused(requested, &answer, &self.state());
        match &answer {
            Err(error) => tracing::warn!(cause = cause.label(), %error, "none of {requested} moves is known to begin"),
            Ok(_) if refused > 0 => {
                tracing::warn!(cause = cause.label(), "{refused} of {requested} moves were refused")
            }
            Ok(_) => {}
        }
        self.metrics.moves_begun.inc_by(begun as u64);
        self.metrics.moves_refused.inc_by(refused as u64);
        begun
    }

    /// Proposes here; only the leader can.
    pub(crate) async fn agree(&self, command: Command) -> Result<Agreed, CallError> {
        propose(&self.group, (self.wall_clock)(), command).await
    }

    async fn propose(&self, command: Command) {
        let label = command.label();
        if let Err(error) = self.agree(command).await {
            tracing::debug!(command = label, %error, "not agreed on");
        }
    }
}

/// Models whose move began at a log index and has not ended since.
pub(crate) fn begun_at(state: &FederationState, index: u64) -> impl Iterator<Item = &str> {
    let began = move |moving: &symphony_federation_state::Move| moving.since == index;
    let moving = state.models().iter().filter(move |(_, model)| model.moving.as_ref().is_some_and(began));
    moving.map(|(name, _)| name.as_str())
}

/// How many of the requested moves began, and how many were refused: the group begins those that it can. Without
/// agreement the numbers are unknown.
fn begun_and_refused(requested: usize, answer: &Result<Agreed, CallError>, state: &FederationState) -> (usize, usize) {
    let begun = match answer {
        Ok(agreed) => begun_at(state, agreed.index).count(),
        Err(CallError::Refused(_)) => 0,
        Err(_) => return (0, 0),
    };
    (begun, requested.saturating_sub(begun))
}

/// Works while this replica leads, until stopped.
pub(crate) async fn run(
    context: LeaderContext,
    config: FederationConfig,
    mut leadership: watch::Receiver<Leadership>,
    stop: CancellationToken,
) {
    loop {
        let leads = leadership.borrow_and_update().is_leader;
        context.metrics.is_leader.set(leads.into());
        let work = async {
            if leads {
                tracing::info!("this replica leads the federation");
                let poller = ClusterPoller::begin(&config.clusters, config.poll_every(), config.unreachable);
                *context.poller.lock().unwrap_or_else(PoisonError::into_inner) = Some(poller);
                Reconciler::new(context.clone(), &config.clusters).work().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        let over = tokio::select! {
            () = stop.cancelled() => true,
            () = work => false,
            changed = leadership.wait_for(|now| now.is_leader != leads) => changed.is_err(),
        };
        *context.poller.lock().unwrap_or_else(PoisonError::into_inner) = None;
        context.metrics.moves_proposed.set(0);
        if over {
            return;
        }
    }
}

struct Reconciler {
    context: LeaderContext,
    leads_since: Instant,
    configured: BTreeMap<String, Vec<String>>,
    clusters: BTreeMap<String, ClusterAccess>,
    /// Since when this leader has known of a model's event at an index.
    known_since: BTreeMap<(String, u64), Instant>,
    /// What calls in progress are for.
    calls: Arc<Mutex<BTreeSet<Purpose>>>,
    /// How many calls clusters have refused, by purpose, as long as that exists.
    refusals: Arc<Mutex<BTreeMap<Purpose, u64>>>,
    searched: Option<(Instant, Vec<String>, u64)>,
    /// Models tried without success in this round, while others still wait for their turn.
    tried: BTreeSet<String>,
    rebalance: Rebalance,
    balance_checked_at: Option<Instant>,
    /// Frontends that may be serving and do not report.
    silent: BTreeSet<String>,
}

impl Reconciler {
    fn new(context: LeaderContext, clusters: &[ClusterAccess]) -> Self {
        Self {
            rebalance: Rebalance::new(context.balance.clone()),
            context,
            leads_since: Instant::now(),
            configured: clusters.iter().map(|cluster| (cluster.name.clone(), cluster.addrs.clone())).collect(),
            clusters: clusters.iter().map(|cluster| (cluster.name.clone(), cluster.clone())).collect(),
            known_since: BTreeMap::new(),
            calls: Arc::default(),
            refusals: Arc::default(),
            searched: None,
            tried: BTreeSet::new(),
            balance_checked_at: None,
            silent: BTreeSet::new(),
        }
    }

    async fn work(mut self) {
        loop {
            // Commands committed before this replica led count too, even those it has not applied yet.
            if self.context.group.read_index().await.is_ok() {
                self.take_steps().await;
                self.find_places().await;
                self.rebalance().await;
            }
            tokio::time::sleep(TICK).await;
        }
    }

    async fn take_steps(&mut self) {
        let state = self.context.state();
        self.show(&state);
        let now = Instant::now();
        self.remember(&state, now);
        let steps = {
            let age = |model: &str, since: u64| {
                let known = self.known_since.get(&(model.to_owned(), since));
                known.map_or(Duration::ZERO, |at| now.saturating_duration_since(*at))
            };
            let polls = self.context.polls();
            let unreachable = self.context.unreachable;
            let leads = now.saturating_duration_since(self.leads_since);
            let holders = self.context.group.holders().into_iter().map(NodeId::get).collect();
            let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let (configured, holders, polls, refusals) = (&self.configured, &holders, &polls, &refusals);
            steps(&state, &Seen { configured, holders, polls, unreachable, leads, age: &age, refusals })
        };
        for step in steps {
            match step {
                Step::Propose(command) => {
                    if let Command::ClusterLost { name, .. } = &command
                        && !self.configured.contains_key(name)
                    {
                        tracing::warn!(cluster = name, "this replica is not configured with it: it counts as lost");
                    }
                    self.context.propose(command).await;
                }
                Step::Ask(cluster_call) => self.call_cluster(cluster_call),
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
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.retain(|(_, model, since), _| current.contains(&(model.clone(), *since)));
        for known in current {
            self.known_since.entry(known).or_insert(now);
        }
    }

    fn show(&self, state: &FederationState) {
        let metrics = &self.context.metrics;
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
            // The previous proposal is outdated.
            metrics.moves_proposed.set(0);
        }
    }

    /// Calls a cluster; at most one call per purpose at a time.
    fn call_cluster(&self, cluster_call: ClusterCall) {
        let Some(cluster) = self.clusters.get(&cluster_call.cluster).cloned() else { return };
        let purpose = cluster_call.purpose();
        {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            if calls.len() >= CALLS_MAX || !calls.insert(purpose.clone()) {
                return;
            }
        }
        let (context, calls, refusals) = (self.context.clone(), Arc::clone(&self.calls), Arc::clone(&self.refusals));
        context.metrics.cluster_calls.inc();
        tokio::spawn(async move {
            if let Err(error) = carry_out(&context, &cluster, cluster_call).await {
                if is_remembered(&error) {
                    let mut refusals = refusals.lock().unwrap_or_else(PoisonError::into_inner);
                    *refusals.entry(purpose.clone()).or_default() += 1;
                }
                tokio::time::sleep(ASKS_AGAIN_AFTER).await;
            }
            calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&purpose);
        });
    }

    /// Redivides all models if it is time: by measurements, and under the same rules as an operator's request.
    async fn rebalance(&mut self) {
        if self.balance_checked_at.is_some_and(|at| at.elapsed() < BALANCE_CHECK_EVERY) {
            return;
        }
        self.balance_checked_at = Some(Instant::now());
        let state = self.context.state();
        let Some(views) = self.context.views(&state).filter(|views| !views.is_empty()) else { return };
        let Demand { rates, silent } = self.context.demand(&views);
        self.log_silent(silent);
        let now = |since: Instant| Time::from_nanos(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let known = Known { state: &state, views: &views, rates: &rates };
        let Some(Start { why, .. }) = self.rebalance.should_start(now(self.leads_since), &known, &self.silent) else {
            return;
        };
        let (begun, moved_bytes_max, known) =
            (std::time::Instant::now(), self.context.balance.moved_bytes_max, Arc::clone(&state));
        let search = move || {
            let known = Known { state: &known, views: &views, rates: &rates };
            let (together, all) =
                (|| begun.elapsed() >= SOLVES_WITHIN, || begun.elapsed() >= SOLVES_WITHIN + PICKS_WITHIN);
            balance(&known, moved_bytes_max, &Stop { together: &together, all: &all })
        };
        let found = match tokio::task::spawn_blocking(search).await {
            Ok(found) => found,
            Err(error) => Err(format!("the search failed: {error}")),
        };
        let metrics = &self.context.metrics;
        metrics.moves_proposed.set(0);
        let ended = match found {
            Err(words) => {
                tracing::warn!(why = why.label(), "no division: {words}");
                Ended::Failed
            }
            Ok(Division { what, moves }) => {
                tracing::info!(why = why.label(), "{what}");
                match self.rebalance.mode() {
                    BalanceMode::Adopt if !moves.is_empty() => match self.context.begin(moves, Cause::Balance).await {
                        0 => Ended::Failed,
                        _ => Ended::Done,
                    },
                    BalanceMode::Propose => {
                        metrics.moves_proposed.set(i64::try_from(moves.len()).unwrap_or(i64::MAX));
                        Ended::Done
                    }
                    BalanceMode::Adopt | BalanceMode::Off => Ended::Done,
                }
            }
        };
        self.rebalance.ended(now(self.leads_since), ended);
    }

    /// Logs the silent frontends whenever they change.
    fn log_silent(&mut self, silent: BTreeSet<String>) {
        self.context.metrics.frontends_silent.set(i64::try_from(silent.len()).unwrap_or(i64::MAX));
        if silent == self.silent {
            return;
        }
        if silent.is_empty() {
            tracing::info!("all frontends say what clients ask for");
        } else {
            let names: Vec<_> = silent.iter().take(SILENT_NAMED_MAX).map(String::as_str).collect();
            tracing::warn!(
                frontends = silent.len(),
                names = names.join(", "),
                "frontends that may serve do not say what clients ask for: what they said last counts, and nothing moves for balance"
            );
        }
        self.silent = silent;
    }

    /// Finds places for models without one, if something has changed or some time has passed.
    async fn find_places(&mut self) {
        let state = self.context.state();
        let without_home: Vec<String> = without_home(&state).into_iter().map(str::to_owned).collect();
        if without_home.is_empty() {
            (self.searched, self.tried) = (None, BTreeSet::new());
            return;
        }
        let Some(views) = self.context.views(&state).filter(|views| !views.is_empty()) else { return };
        let again = self.searched.as_ref().is_none_or(|(at, models, plan)| {
            *models != without_home
                || *plan != state.plan()
                || !self.tried.is_empty()
                || at.elapsed() >= TRIES_AGAIN_AFTER
        });
        if !again {
            return;
        }
        let (known, rates, names) =
            (Arc::clone(&state), self.context.rates.all(std::time::Instant::now()), without_home.clone());
        let (begun, tried) = (std::time::Instant::now(), std::mem::take(&mut self.tried));
        let search = move || {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let known = Known { state: &known, views: &views, rates: &rates };
            let (together, all) = (|| begun.elapsed() >= SOLVES_TOGETHER_WITHIN, || begun.elapsed() >= SOLVES_WITHIN);
            place(&known, &names, &tried, &Stop { together: &together, all: &all })
        };
        // A failed search changes nothing; the next one may succeed.
        let Placed { moves, unplaced, tried } = match tokio::task::spawn_blocking(search).await {
            Ok(placed) => placed,
            Err(error) => return tracing::error!(%error, "the search for places failed"),
        };
        (self.searched, self.tried) = (Some((Instant::now(), without_home, state.plan())), tried);
        let (mut lost, mut new): (Vec<HomeMove>, _) = moves.into_iter().partition(|wanted| wanted.from.is_some());
        // The remaining models are placed when these have arrived. No served model moves for them, so each move may
        // begin without the others.
        let room = MOVES_AT_ONCE_MAX.saturating_sub(state.moves_under_way());
        lost.truncate(room);
        new.truncate(room - lost.len());
        for (moves, cause) in [(lost, Cause::Loss), (new, Cause::Place)] {
            if !moves.is_empty() {
                self.context.begin(moves, cause).await;
            }
        }
        for (name, reason) in unplaced {
            let Some(model) = state.models().get(&name).filter(|model| model.unplaced != reason) else { continue };
            let loaded_at = model.loaded_at;
            self.context.propose(Command::Unplaced { model: name, loaded_at, reason }).await;
        }
    }
}

/// Calls the cluster, and proposes what follows from its answer.
async fn carry_out(
    context: &LeaderContext,
    cluster: &ClusterAccess,
    cluster_call: ClusterCall,
) -> Result<(), ControlError> {
    let ClusterCall { id, what, .. } = cluster_call;
    let operation_id = id.to_string();
    match what {
        ModelCommand::Load { spec, since } => {
            let call = |mut client: pb::control_client::ControlClient<_>| {
                let (spec, operation_id) = (Some(pb::ModelSpec::from(&spec)), operation_id.clone());
                async move { client.load_model(pb::LoadModelRequest { spec, operation_id }).await }
            };
            let loaded = cluster.control.call_for(CALL_WITHIN, cluster.each_within(CALL_WITHIN), call).await;
            match &loaded {
                Ok(_) => {}
                // Only another plan helps: the cluster will refuse the same request again.
                Err(ControlError::Refused(status)) => {
                    let reason = crate::decide::cut(format!("{} refuses it: {}", cluster.name, status.message()));
                    context.propose(Command::GiveUp { model: spec.name, since, reason }).await;
                }
                Err(error) => tracing::debug!(cluster = cluster.name, model = spec.name, %error, "not loaded"),
            }
            loaded.map(|_| ())
        }
        ModelCommand::Unload { model, since } => {
            let call = |mut client: pb::control_client::ControlClient<_>| {
                let request = pb::UnloadModelRequest { name: model.clone(), operation_id: operation_id.clone() };
                async move { client.unload_model(request).await }
            };
            let unloaded = cluster.control.call_for(CALL_WITHIN, cluster.each_within(CALL_WITHIN), call).await;
            match &unloaded {
                Ok(_) => {
                    let cluster = cluster.name.clone();
                    context.propose(Command::CopyGone { model, cluster, since }).await;
                }
                Err(error) => tracing::debug!(cluster = cluster.name, model, %error, "not unloaded"),
            }
            unloaded.map(|_| ())
        }
    }
}

/// Whether the cluster's state refused the call: it gives the same answer to that id from now on. No other refusal may
/// count: leaders would come to different ids for one unload, and a late call could take away a copy that has come
/// back.
fn is_remembered(error: &ControlError) -> bool {
    let ControlError::Refused(status) = error else { return false };
    matches!(status.code(), Code::FailedPrecondition | Code::NotFound)
}

#[cfg(test)]
mod tests {
    use symphony_federation_state::{Refusal, Reply};
    use tonic::Status;

    use super::*;
    use crate::scene::Scene;

    #[test]
    fn what_the_group_refuses_is_not_counted_as_begun() {
        let mut scene = Scene::new(&["a", "b"]);
        scene.load("m", 0);
        scene.load("n", 0);
        scene.begin("n", "b", Cause::Operator);
        let wanted = |model: &str| HomeMove {
            model: model.into(),
            loaded_at: scene.state.models()[model].loaded_at,
            from: None,
            to: "a".into(),
            subcluster: "s".into(),
        };
        let moves = vec![wanted("m"), wanted("n")];
        let requested = moves.len();
        let index = scene.done(&Command::BeginMoves { moves, cause: Cause::Place });
        let agreed = Ok(Agreed { index, reply: Reply { plan: 1 } });
        assert_eq!(begun_and_refused(requested, &agreed, &scene.state), (1, 1), "n is on its way elsewhere");
        let refused = Err(Refusal::Unreachable { cluster: "a".into() }.into());
        assert_eq!(begun_and_refused(requested, &refused, &scene.state), (0, 2));
        let unknown = Err(CallError::NotAgreed("no quorum".into()));
        assert_eq!(begun_and_refused(requested, &unknown, &scene.state), (0, 0));
    }

    #[test]
    fn what_a_clusters_state_refuses_counts_and_what_does_not_reach_it_does_not() {
        let refused = |code| is_remembered(&ControlError::Refused(Status::new(code, "no")));
        assert!(refused(Code::FailedPrecondition), "a pipeline needs the model");
        assert!(refused(Code::NotFound), "it is not there");
        assert!(!refused(Code::PermissionDenied) && !refused(Code::ResourceExhausted));
        assert!(!is_remembered(&ControlError::NoAddress));
    }
}
