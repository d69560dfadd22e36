//! `symphony.v1.Federation`, as any replica serves it.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures::{Stream, StreamExt};
use symphony_cluster_state::{Backup, ModelSource, ModelSpec};
use symphony_consensus::Leadership;
use symphony_federation_state::{
    Action, Cause, Command, FederationState, HomeMove, NAME_BYTES_MAX, Operation, Outcome, Refusal, Reply,
    WANTED_MRPS_MAX,
};
use symphony_net::{PeerInfo, Role};
use symphony_protocol::control as pb;
use symphony_protocol::control::federation_server::Federation;
use symphony_protocol::view::View;
use symphony_types::{NodeId, OperationId};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::metrics::Metrics;
use crate::places::{Division, Stop, balance, one, wanted};
use crate::problem::Known;
use crate::propose::{Agreed, CallError};
use crate::rates::Demand;
use crate::reconciler::{LeaderContext, PICKS_WITHIN, SOLVES_WITHIN, begun_at};
use crate::view::{Answering, view};

/// The most open watches.
const WATCHERS_MAX: i64 = 8192;

/// Roles that may read the federation's state.
const PEOPLE: &[Role] = &[Role::Operator, Role::Viewer, Role::Frontend];
const OPERATORS: &[Role] = &[Role::Operator];
const FRONTENDS: &[Role] = &[Role::Frontend];
/// Replicas with an empty disk ask each other before they found a group.
const PEOPLE_AND_REPLICAS: &[Role] = &[Role::Operator, Role::Viewer, Role::Frontend, Role::Scheduler];

/// The roles that may call a method. A method that is not in the table is denied to all.
pub(crate) fn allowed(method: &str) -> &'static [Role] {
    match method {
        "Watch" => PEOPLE,
        "Get" => PEOPLE_AND_REPLICAS,
        "Load" | "Unload" | "Move" | "Balance" | "Backup" => OPERATORS,
        "ReportRates" => FRONTENDS,
        _ => &[],
    }
}

/// Answers calls on the federation's port.
#[derive(Clone, Debug)]
pub(crate) struct FederationService {
    pub(crate) federation: String,
    pub(crate) node: u64,
    pub(crate) context: LeaderContext,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

fn authorize<T>(request: &Request<T>, method: &str) -> Result<PeerInfo, Status> {
    let (peer, allowed) = (PeerInfo::of(request)?, allowed(method));
    if !allowed.is_empty() && peer.has_role(allowed) {
        return Ok(peer);
    }
    tracing::warn!(%peer, method, "call denied");
    let roles: Vec<_> = allowed.iter().map(|role| role.label()).collect();
    Err(Status::permission_denied(format!("{peer} may not call {method}; that is for {}", roles.join(" or "))))
}

/// Counts a watch while it is open.
struct Watching(prometheus_client::metrics::gauge::Gauge);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl FederationService {
    fn answering(&self) -> Answering {
        let leader = self.leadership.borrow().leader.map_or(0, |leader| leader.get());
        Answering { federation: self.federation.clone(), replica: self.node, leader }
    }

    fn operation(&self, peer: &PeerInfo, id: &str, action: Action) -> Result<Operation, Status> {
        let id: OperationId = id.parse().map_err(|error| Status::invalid_argument(format!("operation_id: {error}")))?;
        let actor = match &peer.identity {
            Some(identity) => format!("{}/{}", identity.role, identity.name),
            None => "insecure".to_owned(),
        };
        Ok(Operation { id, actor, at_unix_ms: (self.context.wall_clock)(), action })
    }

    async fn operate(&self, operation: Operation) -> Result<pb::FederationReply, Status> {
        let Agreed { reply, .. } = self.context.agree(Command::Operate(operation)).await?;
        Ok(pb::FederationReply { plan: reply.plan })
    }

    /// The leader's state; refused on other replicas.
    async fn read(&self) -> Result<Arc<FederationState>, Status> {
        self.context.group.read_index().await.map_err(CallError::from)?;
        Ok(self.context.state())
    }

    /// The views of the clusters.
    fn views(&self, state: &FederationState) -> Result<BTreeMap<String, Arc<View>>, Status> {
        let again = || Status::unavailable("not every cluster that answers was looked at yet; try again in a second");
        self.context.views(state).ok_or_else(again)
    }

    /// Solves with these rates on its own thread; the solver gets its start time.
    async fn solve<T: Send + 'static>(
        &self,
        state: Arc<FederationState>,
        views: BTreeMap<String, Arc<View>>,
        rates: BTreeMap<String, f64>,
        solve: impl FnOnce(&Known<'_>, Instant) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let begun = Instant::now();
        let solving = tokio::task::spawn_blocking(move || {
            let known = Known { state: &state, views: &views, rates: &rates };
            solve(&known, begun)
        });
        solving.await.map_err(|error| Status::internal(format!("the search failed: {error}")))
    }

    /// Starts moves that were just found. A repetition under the same id may find other moves than the first attempt:
    /// then the outcome of the first one counts, which the group may have committed meanwhile.
    async fn begin(&self, operation: Operation, same: Same) -> Result<Begun, Status> {
        match self.context.agree(Command::Operate(operation.clone())).await {
            Ok(agreed) => Ok(Begun::Now(agreed)),
            Err(CallError::Refused(refusal @ Refusal::OperationReused { .. })) => {
                let outcome = done_before(&self.context.state(), &operation, same).unwrap_or(Err(refusal));
                Ok(Begun::Before(outcome.map_err(CallError::from)?))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether moves began by this call, or by an earlier one that it repeats.
enum Begun {
    Now(Agreed),
    Before(Reply),
}

/// Whether an operation, by its text, is what was requested under the same id before.
type Same = fn(before: &str, requested: &str) -> bool;

/// Same model and cluster; the sub-cluster is chosen again with each attempt.
fn same_move(before: &str, requested: &str) -> bool {
    before == requested
}

/// The moves are found again with each attempt.
fn any_moves(before: &str, _: &str) -> bool {
    before.starts_with("move ")
}

/// The outcome of an earlier operation of the same operator. An id that was used for something else is refused.
fn done_before(state: &FederationState, operation: &Operation, same: Same) -> Option<Outcome> {
    let kept = state.operations().iter().find(|kept| kept.id == operation.id)?;
    let repeated = kept.actor == operation.actor && same(&kept.what, &operation.action.to_string());
    let reused = Refusal::OperationReused { id: operation.id, index: kept.index };
    Some(if repeated { kept.outcome.clone() } else { Err(reused) })
}

/// Cuts an overlong name, so that it takes no more memory than a valid one.
fn cut_name(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    name
}

fn answer(outcome: Outcome) -> Result<pb::FederationReply, Status> {
    let reply = outcome.map_err(CallError::from)?;
    Ok(pb::FederationReply { plan: reply.plan })
}

#[tonic::async_trait]
impl Federation for FederationService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::FederationView, Status>> + Send>>;

    async fn watch(&self, request: Request<pb::FederationWatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        authorize(&request, "Watch")?;
        // Watchers keep the largest index, and a restored state may still be discarded.
        if self.context.group.awaits_first_leader() {
            return Err(Status::unavailable("this replica was restored from a backup and has had no leader since"));
        }
        if self.metrics.watchers.inc() >= WATCHERS_MAX {
            self.metrics.watchers.dec();
            return Err(Status::resource_exhausted(format!("{WATCHERS_MAX} processes watch this replica already")));
        }
        let (watching, service) = (Watching(self.metrics.watchers.clone()), self.clone());
        // One slot that keeps the latest state: a slow watcher costs no memory, and misses only outdated states.
        let states = WatchStream::new(self.context.state.clone());
        let views = states.map(move |state| {
            let _open = &watching;
            Ok(view(&state, &service.answering(), None))
        });
        Ok(Response::new(Box::pin(views.take_until(self.stop.clone().cancelled_owned()))))
    }

    async fn get(&self, request: Request<pb::FederationGetRequest>) -> Result<Response<pb::FederationView>, Status> {
        authorize(&request, "Get")?;
        let (state, observed) = if request.get_ref().linearizable {
            let state = self.read().await?;
            let observed = self.context.observed(&state);
            (state, Some(observed))
        } else {
            (self.context.state(), None)
        };
        let view = view(&state, &self.answering(), observed.as_ref());
        let group = &self.context.group;
        Ok(Response::new(pb::FederationView {
            log_entries: group.log_entries(),
            replicas: state.replicas().iter().copied().collect(),
            members: group.members().voters.iter().map(|node| node.get()).collect(),
            ..view
        }))
    }

    async fn backup(&self, request: Request<pb::BackupRequest>) -> Result<Response<pb::BackupReply>, Status> {
        authorize(&request, "Backup")?;
        let confirmed = !request.get_ref().stale;
        let state = if confirmed { self.read().await? } else { self.context.state() };
        let (cluster, node, term) = (self.federation.clone(), NodeId::new(self.node), self.leadership.borrow().term);
        let taken_at_unix_ms = (self.context.wall_clock)();
        let take = move || {
            let (index, release) = (state.applied_index(), env!("CARGO_PKG_VERSION").to_owned());
            Backup { cluster, release, taken_at_unix_ms, node, index, term, state: state.snapshot(), confirmed }
                .encode()
        };
        // A large state takes a tenth of a second.
        let taken = tokio::task::spawn_blocking(take).await;
        let failed = |error: &dyn std::fmt::Display| Status::internal(format!("no backup was made: {error}"));
        let backup = taken.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        Ok(Response::new(pb::BackupReply { backup }))
    }

    async fn load(&self, request: Request<pb::FederationLoadRequest>) -> Result<Response<pb::FederationReply>, Status> {
        let peer = authorize(&request, "Load")?;
        let pb::FederationLoadRequest { spec, wanted_rps, cluster, operation_id } = request.into_inner();
        let spec = spec.ok_or_else(|| Status::invalid_argument("spec: missing; expected a model"))?;
        let spec = ModelSpec::try_from(spec).map_err(|error| Status::invalid_argument(format!("spec: {error}")))?;
        // The federation's own log has no room for it.
        if matches!(spec.source, ModelSource::OnnxUnshared(_)) {
            let reason = "spec.own_trunk: true; a federation does not carry it, load the model on a cluster";
            return Err(Status::invalid_argument(reason));
        }
        let wanted_mrps = wanted_rps * 1000.0;
        if !(0.0..=WANTED_MRPS_MAX as f64).contains(&wanted_mrps) {
            let most = WANTED_MRPS_MAX / 1000;
            return Err(Status::invalid_argument(format!("wanted_rps: {wanted_rps}; expected 0 to {most}")));
        }
        let action = Action::LoadModel { spec, wanted_mrps: wanted_mrps as u64, cluster };
        let operation = self.operation(&peer, &operation_id, action)?;
        Ok(Response::new(self.operate(operation).await?))
    }

    async fn unload(
        &self,
        request: Request<pb::FederationUnloadRequest>,
    ) -> Result<Response<pb::FederationReply>, Status> {
        let peer = authorize(&request, "Unload")?;
        let pb::FederationUnloadRequest { name, operation_id } = request.into_inner();
        let operation = self.operation(&peer, &operation_id, Action::UnloadModel { name })?;
        Ok(Response::new(self.operate(operation).await?))
    }

    async fn r#move(
        &self,
        request: Request<pb::FederationMoveRequest>,
    ) -> Result<Response<pb::FederationReply>, Status> {
        let peer = authorize(&request, "Move")?;
        let pb::FederationMoveRequest { model: name, to, operation_id } = request.into_inner();
        let state = self.read().await?;
        let (loaded_at, subcluster) = (0, "any".to_owned());
        let mut requested = HomeMove { model: name.clone(), loaded_at, from: None, to: to.clone(), subcluster };
        let action = |moves| Action::Move { moves, cause: Cause::Operator };
        let operation = self.operation(&peer, &operation_id, action(vec![requested.clone()]))?;
        if let Some(before) = done_before(&state, &operation, same_move) {
            return answer(before).map(Response::new);
        }
        let unknown = || Refusal::UnknownModel { model: name.clone() };
        let model = state.models().get(&name).cloned().ok_or_else(unknown).map_err(CallError::from)?;
        // A command that the state would refuse is refused before a place is searched.
        requested.loaded_at = model.loaded_at;
        requested.from = model.home.as_ref().map(|home| home.cluster.clone());
        state.movable(&requested).map_err(CallError::from)?;
        let (views, rates) = (self.views(&state)?, self.context.rates.all(Instant::now()));
        let found = self.solve(state, views, rates, move |known, begun| {
            let posed = known.pose().ok_or_else(|| "no cluster answers that has a GPU".to_owned())?;
            let there: Vec<_> = (0..posed.places.len()).filter(|&part| posed.places[part].cluster == to).collect();
            let (posed, plan) = one(known, &posed, &model, &there, &|| begun.elapsed() >= SOLVES_WITHIN)?;
            wanted(&posed, &plan, &model).ok_or_else(|| "the plan has no place for it".to_owned())
        });
        let moves =
            vec![found.await?.map_err(|why| Status::failed_precondition(format!("it has no place there: {why}")))?];
        let (Begun::Now(Agreed { reply, .. }) | Begun::Before(reply)) =
            self.begin(Operation { action: action(moves), ..operation }, same_move).await?;
        Ok(Response::new(pb::FederationReply { plan: reply.plan }))
    }

    async fn balance(
        &self,
        request: Request<pb::FederationBalanceRequest>,
    ) -> Result<Response<pb::FederationBalanceReply>, Status> {
        let peer = authorize(&request, "Balance")?;
        let pb::FederationBalanceRequest { adopt, operation_id } = request.into_inner();
        let state = self.read().await?;
        let repeated = || {
            let what = "this was done before; see `symphony get clusters`".to_owned();
            Ok(Response::new(pb::FederationBalanceReply { what, moves: Vec::new() }))
        };
        let action = |moves| Action::Move { moves, cause: Cause::Balance };
        // A dry run needs no id.
        if let Ok(operation) = self.operation(&peer, &operation_id, action(Vec::new()))
            && let Some(before) = done_before(&state, &operation, any_moves)
        {
            answer(before)?;
            return repeated();
        }
        let moved_bytes_max = self.context.balance.moved_bytes_max;
        let views = self.views(&state)?;
        let Demand { rates, silent } = self.context.demand(&views);
        let found = self.solve(state, views, rates, move |known, begun| {
            let (together, all) =
                (|| begun.elapsed() >= SOLVES_WITHIN, || begun.elapsed() >= SOLVES_WITHIN + PICKS_WITHIN);
            balance(known, moved_bytes_max, &Stop { together: &together, all: &all })
        });
        let Division { mut what, moves } = found.await?.map_err(Status::failed_precondition)?;
        if !silent.is_empty() {
            what +=
                &format!("; {} frontends are silent: of them what they said last counts, if anything", silent.len());
        }
        let shown = moves.iter().map(|wanted| pb::FederatedMove {
            model: wanted.model.clone(),
            from: wanted.from.clone().unwrap_or_default(),
            to: wanted.to.clone(),
        });
        let mut shown: Vec<_> = shown.collect();
        if adopt && !moves.is_empty() {
            let operation = self.operation(&peer, &operation_id, action(moves))?;
            let Begun::Now(Agreed { index, .. }) = self.begin(operation, any_moves).await? else { return repeated() };
            let (proposed, state) = (shown.len(), self.context.state());
            let begun: BTreeSet<&str> = begun_at(&state, index).collect();
            shown.retain(|moved| begun.contains(moved.model.as_str()));
            if shown.len() < proposed {
                what +=
                    &format!("; {} of them were refused, since something changed meanwhile", proposed - shown.len());
            }
        }
        Ok(Response::new(pb::FederationBalanceReply { what, moves: shown }))
    }

    async fn report_rates(
        &self,
        request: Request<pb::FederationRatesRequest>,
    ) -> Result<Response<pb::FederationRatesReply>, Status> {
        let peer = authorize(&request, "ReportRates")?;
        let leadership = *self.leadership.borrow();
        if !leadership.is_leader {
            return Err(CallError::NotLeader(leadership.leader).into());
        }
        let pb::FederationRatesRequest { rates, frontend: named } = request.into_inner();
        let frontend = match &peer.identity {
            Some(identity) => identity.name.clone(),
            // Without certificates the caller is unknown.
            None if named.is_empty() => peer.addr.to_string(),
            None => cut_name(named),
        };
        let rates = rates.into_iter().map(|rate| (rate.model, rate.rps));
        self.context.rates.report(frontend, rates, Instant::now());
        Ok(Response::new(pb::FederationRatesReply {}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Scene;

    #[test]
    fn every_method_is_in_the_table_and_what_is_not_is_denied() {
        let proto = include_str!("../../../../proto/symphony/v1/federation.proto");
        let methods = proto.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
        let methods: Vec<_> = methods.map(str::trim).collect();
        assert_eq!(methods.len(), 8);
        for method in methods {
            assert!(!allowed(method).is_empty(), "nobody may call {method}");
        }
        assert!(allowed("Destroy").is_empty());
        for method in ["Load", "Unload", "Move", "Balance", "Backup"] {
            assert_eq!(allowed(method), [Role::Operator]);
        }
    }
    #[test]
    fn a_repeated_move_has_the_outcome_of_the_first_and_an_id_is_nobody_elses() {
        let mut scene = Scene::new(&["a", "b"]);
        scene.load("m", 0);
        let loaded_at = scene.state.models()["m"].loaded_at;
        let operation = |actor: &str, to: &str, subcluster: &str| Operation {
            id: OperationId::new(77),
            actor: actor.into(),
            at_unix_ms: 0,
            action: Action::Move {
                moves: vec![HomeMove {
                    model: "m".into(),
                    loaded_at,
                    from: None,
                    to: to.into(),
                    subcluster: subcluster.into(),
                }],
                cause: Cause::Operator,
            },
        };
        let first = operation("operator/ann", "a", "s");
        assert_eq!(done_before(&scene.state, &first, same_move), None);
        scene.done(&Command::Operate(first.clone()));
        // For the state another sub-cluster is another command; for the operator, who asked for a cluster, it is the
        // same.
        let again = operation("operator/ann", "a", "t");
        let index = scene.state.applied_index() + 1;
        let reused = scene.state.apply(index, &Command::Operate(again.clone()));
        assert!(matches!(reused, Err(Refusal::OperationReused { .. })), "{reused:?}");
        assert!(matches!(done_before(&scene.state, &again, same_move), Some(Ok(_))));
        let refused = |operation: &Operation, same: Same| {
            matches!(done_before(&scene.state, operation, same), Some(Err(Refusal::OperationReused { .. })))
        };
        assert!(refused(&operation("operator/bob", "a", "s"), same_move));
        assert!(refused(&operation("operator/ann", "b", "s"), same_move));
        let balance = operation("operator/ann", "b", "s");
        assert!(matches!(done_before(&scene.state, &balance, any_moves), Some(Ok(_))));
        let unload = Operation { id: OperationId::new(78), action: Action::UnloadModel { name: "m".into() }, ..first };
        scene.done(&Command::Operate(unload));
        let other = Operation { id: OperationId::new(78), ..balance };
        let other = done_before(&scene.state, &other, any_moves);
        assert!(matches!(other, Some(Err(Refusal::OperationReused { .. }))), "{other:?}");
    }
}
