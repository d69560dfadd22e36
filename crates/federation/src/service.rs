//! `symphony.v1.Federation`, as any replica serves it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use symphony_consensus::Leadership;
use symphony_federation_state::{Action, Cause, Command, FederationState, Operation, WANTED_MRPS_MAX, WantedMove};
use symphony_net::{PeerInfo, Role};
use symphony_protocol::control as pb;
use symphony_protocol::control::federation_server::Federation;
use symphony_types::OperationId;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::metrics::Metrics;
use crate::places::{balance, one, wanted};
use crate::problem::Known;
use crate::propose::propose;
use crate::steward::Office;
use crate::view::{Answering, view};

/// Watches open at a time.
const WATCHERS_MAX: i64 = 8192;
/// How long the search for a place or a more even division may take.
const SOLVES_WITHIN: Duration = Duration::from_secs(1);

/// Who looks after the federation, and who may see it.
const PEOPLE: &[Role] = &[Role::Operator, Role::Viewer, Role::Frontend];
const OPERATORS: &[Role] = &[Role::Operator];
const FRONTENDS: &[Role] = &[Role::Frontend];

/// The roles that may call a method. What is not in the table is denied to everybody.
pub(crate) fn allowed(method: &str) -> &'static [Role] {
    match method {
        "Watch" | "Get" => PEOPLE,
        "Load" | "Unload" | "Move" | "Balance" => OPERATORS,
        "ReportRates" => FRONTENDS,
        _ => &[],
    }
}

/// Answers calls on the federation's port.
#[derive(Clone, Debug)]
pub(crate) struct FederationService {
    pub(crate) federation: String,
    pub(crate) node: u64,
    pub(crate) office: Office,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) wall_clock: fn() -> u64,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

fn admit<T>(request: &Request<T>, method: &str) -> Result<PeerInfo, Status> {
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
        Ok(Operation { id, actor, at_unix_ms: (self.wall_clock)(), action })
    }

    async fn operate(&self, operation: Operation) -> Result<pb::FederationReply, Status> {
        let reply = propose(&self.office.group, &Command::Operate(operation)).await?;
        Ok(pb::FederationReply { plan: reply.plan })
    }

    /// What the leader decides by; only the leader has it.
    async fn read(&self) -> Result<Arc<FederationState>, Status> {
        self.office.group.read_index().await.map_err(crate::propose::CallError::from)?;
        Ok(self.office.state())
    }

    /// Solves on a thread of its own.
    async fn solve<T: Send + 'static>(
        &self,
        state: Arc<FederationState>,
        solve: impl FnOnce(&Known<'_>, &dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let again = || Status::unavailable("not every cluster that answers was looked at yet; try again in a second");
        let (views, rates) = (self.office.views(&state).ok_or_else(again)?, self.office.rates.all(Instant::now()));
        let give_up = Instant::now() + SOLVES_WITHIN;
        let solving = tokio::task::spawn_blocking(move || {
            let known = Known { state: &state, views: &views, rates: &rates };
            solve(&known, &|| Instant::now() >= give_up)
        });
        solving.await.map_err(|error| Status::internal(format!("the search failed: {error}")))
    }

    /// The outcome of an operation that was given before.
    fn done_before(&self, state: &FederationState, operation: &str) -> Option<Result<pb::FederationReply, Status>> {
        let id: OperationId = operation.parse().ok()?;
        let kept = state.operations().iter().find(|kept| kept.id == id)?;
        let reply = kept.outcome.clone().map(|reply| pb::FederationReply { plan: reply.plan });
        Some(reply.map_err(|refusal| crate::propose::CallError::from(refusal).into()))
    }
}

#[tonic::async_trait]
impl Federation for FederationService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::FederationView, Status>> + Send>>;

    async fn watch(&self, request: Request<pb::FederationWatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        admit(&request, "Watch")?;
        if self.metrics.watchers.inc() >= WATCHERS_MAX {
            self.metrics.watchers.dec();
            return Err(Status::resource_exhausted(format!("{WATCHERS_MAX} processes watch this replica already")));
        }
        let (watching, service) = (Watching(self.metrics.watchers.clone()), self.clone());
        // One slot, latest wins: a slow watcher costs no memory and misses nothing but what is out of date.
        let states = WatchStream::new(self.office.state.clone());
        let views = states.map(move |state| {
            let _open = &watching;
            Ok(view(&state, &service.answering(), None))
        });
        Ok(Response::new(Box::pin(views.take_until(self.stop.clone().cancelled_owned()))))
    }

    async fn get(&self, request: Request<pb::FederationGetRequest>) -> Result<Response<pb::FederationView>, Status> {
        admit(&request, "Get")?;
        let linearizable = request.get_ref().linearizable;
        let state = if linearizable { self.read().await? } else { self.office.state() };
        let rates = linearizable.then(|| self.office.rates.all(Instant::now()));
        Ok(Response::new(view(&state, &self.answering(), rates.as_ref())))
    }

    async fn load(&self, request: Request<pb::FederationLoadRequest>) -> Result<Response<pb::FederationReply>, Status> {
        let peer = admit(&request, "Load")?;
        let pb::FederationLoadRequest { spec, wanted_rps, cluster, operation_id } = request.into_inner();
        let spec = spec.ok_or_else(|| Status::invalid_argument("spec: missing; expected a model"))?;
        let spec = spec.try_into().map_err(|error| Status::invalid_argument(format!("spec: {error}")))?;
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
        let peer = admit(&request, "Unload")?;
        let pb::FederationUnloadRequest { name, operation_id } = request.into_inner();
        let operation = self.operation(&peer, &operation_id, Action::UnloadModel { name })?;
        Ok(Response::new(self.operate(operation).await?))
    }

    async fn r#move(
        &self,
        request: Request<pb::FederationMoveRequest>,
    ) -> Result<Response<pb::FederationReply>, Status> {
        let peer = admit(&request, "Move")?;
        let pb::FederationMoveRequest { model: name, to, operation_id } = request.into_inner();
        let state = self.read().await?;
        // The sub-cluster is chosen anew with each attempt: a repetition is known by its id alone.
        if let Some(before) = self.done_before(&state, &operation_id) {
            return before.map(Response::new);
        }
        let unknown = || symphony_federation_state::Refusal::UnknownModel { model: name.clone() };
        let model = state.models().get(&name).cloned();
        let model = model.ok_or_else(unknown).map_err(crate::propose::CallError::from)?;
        // What the state would refuse is said before a place is looked for.
        let asked = WantedMove {
            model: name,
            loaded_at: model.loaded_at,
            from: model.home.as_ref().map(|home| home.cluster.clone()),
            to: to.clone(),
            subcluster: "any".to_owned(),
        };
        state.movable(&asked).map_err(crate::propose::CallError::from)?;
        let found = self.solve(state, move |known, stop| {
            let posed = known.pose().ok_or_else(|| "no cluster answers that has a GPU".to_owned())?;
            let there: Vec<_> = (0..posed.places.len()).filter(|&part| posed.places[part].cluster == to).collect();
            let (posed, plan) = one(known, &posed, &model, &there, stop)?;
            wanted(&posed, &plan, &model).ok_or_else(|| "the plan has no place for it".to_owned())
        });
        let moves =
            vec![found.await?.map_err(|why| Status::failed_precondition(format!("it has no place there: {why}")))?];
        let operation = self.operation(&peer, &operation_id, Action::Move { moves, cause: Cause::Operator })?;
        Ok(Response::new(self.operate(operation).await?))
    }

    async fn balance(
        &self,
        request: Request<pb::FederationBalanceRequest>,
    ) -> Result<Response<pb::FederationBalanceReply>, Status> {
        let peer = admit(&request, "Balance")?;
        let pb::FederationBalanceRequest { adopt, operation_id } = request.into_inner();
        let state = self.read().await?;
        if self.done_before(&state, &operation_id).is_some() {
            let what = "this was done before; see `symphony get clusters`".to_owned();
            return Ok(Response::new(pb::FederationBalanceReply { what, moves: Vec::new() }));
        }
        let found = self.solve(state, balance).await?;
        let (what, moves) = found.map_err(Status::failed_precondition)?;
        let shown = moves.iter().map(|wanted| pb::FederatedMove {
            model: wanted.model.clone(),
            from: wanted.from.clone().unwrap_or_default(),
            to: wanted.to.clone(),
        });
        let shown = shown.collect();
        if adopt && !moves.is_empty() {
            let operation = self.operation(&peer, &operation_id, Action::Move { moves, cause: Cause::Balance })?;
            self.operate(operation).await?;
        }
        Ok(Response::new(pb::FederationBalanceReply { what, moves: shown }))
    }

    async fn report_rates(
        &self,
        request: Request<pb::FederationRatesRequest>,
    ) -> Result<Response<pb::FederationRatesReply>, Status> {
        let peer = admit(&request, "ReportRates")?;
        let leadership = *self.leadership.borrow();
        if !leadership.is_leader {
            return Err(crate::propose::CallError::NotLeader(leadership.leader).into());
        }
        let frontend = peer.identity.as_ref().map_or_else(|| peer.addr.to_string(), |identity| identity.name.clone());
        let rates = request.into_inner().rates.into_iter().map(|rate| (rate.model, rate.rps));
        self.office.rates.report(frontend, rates, Instant::now());
        Ok(Response::new(pb::FederationRatesReply {}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_in_the_table_and_what_is_not_is_denied() {
        let proto = include_str!("../../../proto/symphony/v1/federation.proto");
        let methods = proto.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
        let methods: Vec<_> = methods.map(str::trim).collect();
        assert_eq!(methods.len(), 7);
        for method in methods {
            assert!(!allowed(method).is_empty(), "nobody may call {method}");
        }
        assert!(allowed("Destroy").is_empty());
        for method in ["Load", "Unload", "Move", "Balance"] {
            assert_eq!(allowed(method), [Role::Operator]);
        }
    }
}
