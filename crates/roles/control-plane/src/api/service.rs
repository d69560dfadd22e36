//! `symphony.v1.Control`, as any replica serves it.

mod level_checks;
mod models;
mod pipelines;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures::{Stream, StreamExt, stream};
use prost::Message;
use symphony_cluster_state::{
    Action, Command, GPUS_MAX, MODELS_MAX, Operation, Outcome, Reply, SUBCLUSTERS_MAX, encode_outcome,
};
use symphony_net::{PeerInfo, Role};
use symphony_protocol::control as pb;
use symphony_protocol::control::control_server::Control;
use symphony_protocol::view::{BackendScope, SortedView, View};
use symphony_scheduler::PolicyRegistry;
use symphony_types::{BackendId, BootId, FrontendId, Level, Member, Nanos, NodeId};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response, Status};

use crate::api::backup;
use crate::api::convert;
use crate::api::explain::{self, Memory};
use crate::api::operations::{self, OperationOrigin, Operations};
use crate::api::publish::Viewer;
use crate::api::watches::{CutWatch, Watching};
use crate::error::CallError;
use crate::group::membership::Membership;
use crate::group::propose::{Accepted, AttemptError, FORWARDED, Proposer};
use crate::initiatives::frontend_reaper::FrontendPresence;
use crate::metrics::Metrics;
use crate::planning::{Ask, LEARNT_MAX, Reported, decode_learnt};

/// Answers calls on the control port.
#[derive(Clone, Debug)]
pub(crate) struct ControlService {
    pub(crate) cluster: Arc<str>,
    pub(crate) proposer: Proposer,
    pub(crate) membership: Membership,
    pub(crate) operations: Operations,
    pub(crate) viewer: Viewer,
    pub(crate) views: watch::Receiver<Arc<View>>,
    /// The views, sorted, for watches that cut a part from them.
    pub(crate) sorted: watch::Receiver<Arc<SortedView>>,
    pub(crate) memory: Memory,
    pub(crate) reported: Arc<Mutex<Reported>>,
    pub(crate) epochs: mpsc::Sender<Ask>,
    /// How many bytes a backend loads per second, for plans that operators ask for.
    pub(crate) load_bytes_per_s: u64,
    /// Delays of every request besides its batch.
    pub(crate) request_delays: Nanos,
    /// The policies for sub-clusters that this program adds.
    pub(crate) policies: PolicyRegistry,
    /// The frontends that watch this replica.
    pub(crate) presence: FrontendPresence,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

impl ControlService {
    async fn propose(&self, command: Command) -> Result<Accepted, Status> {
        Ok(self.proposer.propose(&command).await?)
    }

    /// Checks that the caller is the member that it acts for.
    fn check_is_member<T>(&self, request: &Request<T>, member: Member) -> Result<(), Status> {
        let peer = PeerInfo::of(request)?;
        let state = self.viewer.state.read();
        // Another replica may know the member already.
        let unknown = || Status::unavailable(format!("{member} is not known here yet"));
        match member {
            Member::Scheduler(id) => check_identity(&peer, Role::Scheduler, &id.get().to_string()),
            Member::Backend(id) => {
                let backend = state.backends().get(&id).ok_or_else(unknown)?;
                check_identity(&peer, Role::Backend, &backend.name)
            }
            Member::Frontend(id) => {
                let frontend = state.frontends().get(&id).ok_or_else(unknown)?;
                check_identity(&peer, Role::Frontend, &frontend.name)
            }
        }
    }

    /// Makes the cluster agree on the caller's action.
    async fn operate<T>(&self, request: &Request<T>, id: &str, action: Action) -> Result<Reply, Status> {
        let operation = self.operations.client_operation(&PeerInfo::of(request)?, id, action)?;
        Ok(self.propose(Command::Operate(operation)).await?.reply)
    }

    /// Changes the control group if this replica leads it. A caller that disconnects does not interrupt the change.
    async fn change_here(&self, operation: Operation) -> Result<Response<pb::ChangeReplicasReply>, AttemptError> {
        let membership = self.membership.clone();
        let change = tokio::spawn(async move { membership.change(&operation).await });
        let voters =
            change.await.map_err(|error| AttemptError::Retry(format!("the change ended early: {error}")))??;
        Ok(Response::new(pb::ChangeReplicasReply { voters: voters.into_iter().map(NodeId::get).collect() }))
    }

    /// The answer to a replica that has forwarded a command.
    fn forwarded(&self, index: u64, outcome: &Outcome) -> pb::ForwardReply {
        pb::ForwardReply { index, response: encode_outcome(outcome, self.proposer.cluster_level().written()) }
    }

    /// A command forwarded by another replica.
    fn carried(&self, request: &Request<pb::ForwardRequest>) -> Result<Command, Status> {
        let (peer, request) = (PeerInfo::of(request)?, request.get_ref());
        if request.cluster != *self.cluster {
            return Err(Status::failed_precondition(format!(
                "command for cluster `{}` reached cluster `{}`: check the replicas' addresses",
                request.cluster, self.cluster
            )));
        }
        let mut command = Command::decode(&request.command).map_err(CallError::from)?;
        operations::set_insecure_actor(&peer, &mut command);
        command.validate().map_err(CallError::from)?;
        Ok(command)
    }
}

/// Checks that the caller has the role and the name that it claims. With roles alone, one stolen certificate could act
/// for every process of its role.
fn check_identity(peer: &PeerInfo, role: Role, name: &str) -> Result<(), Status> {
    if peer.may_be(role, name) {
        Ok(())
    } else {
        Err(Status::permission_denied(format!("{peer} may not speak for {role} {name}")))
    }
}

/// The answer to a reply of the wrong kind, which only a mix of releases can cause.
fn unexpected_reply(reply: &Reply) -> Status {
    Status::internal(format!("the cluster answered {reply:?} to another question: run one release on every replica"))
}

/// A leader's error, as the answer to a client whose call this replica forwarded. The client was authorized here; if
/// the leader denies the call it means this replica, which was removed and does not know it yet. The client should try
/// another replica.
fn of_this_replica(leader: NodeId, status: Status) -> Status {
    match status.code() {
        Code::PermissionDenied => Status::unavailable(format!("{leader}: {}; ask another replica", status.message())),
        _ => status,
    }
}

#[tonic::async_trait]
impl Control for ControlService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::ClusterView, Status>> + Send>>;

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        // A watcher keeps the view with the greatest index. This one may still be discarded for another restore, with
        // smaller indexes.
        if self.proposer.group().awaits_first_leader() {
            return Err(Status::unavailable("this replica was restored from a backup and has had no leader since"));
        }
        let peer = request.remote_addr();
        let watching = Watching::begin(&self.metrics.watchers)?;
        tracing::debug!(watcher = request.get_ref().watcher, ?peer, "watch begins");
        let peer_info = PeerInfo::of(&request)?;
        self.admits_watch(request.get_ref())?;
        let is_frontend = peer_info.has_role(&[Role::Frontend]);
        let open_watch = request.get_ref().frontend.filter(|_| is_frontend).map(|announced| {
            self.presence.begin(Instant::now(), (FrontendId::new(announced.frontend), BootId::new(announced.boot_id)))
        });
        // One slot that keeps the latest view: a slow watcher costs no memory, and misses only outdated views.
        let cut =
            request.get_ref().backend.map(|scope| CutWatch::begin(self.sorted.clone(), BackendScope::from(scope)));
        let views = match cut {
            None => WatchStream::new(self.views.clone()).map(|view| pb::ClusterView::from(&*view)).boxed(),
            Some(cut) => {
                let next = |mut cut: CutWatch| async move { Some((cut.next().await?, cut)) };
                stream::unfold(cut, next).map(|view| pb::ClusterView::from(&view)).boxed()
            }
        };
        let (metrics, stop) = (self.metrics.clone(), self.stop.clone().cancelled_owned());
        let level = self.level_of_watcher(&peer_info, request.get_ref().process.as_ref());
        let views = views.map(move |view| {
            let _open = (&watching, &open_watch, &level);
            metrics.view_bytes.inc_by(view.encoded_len() as u64);
            Ok(view)
        });
        Ok(Response::new(Box::pin(views.take_until(stop))))
    }

    async fn get(&self, request: Request<pb::GetRequest>) -> Result<Response<pb::ClusterView>, Status> {
        if !request.get_ref().linearizable {
            let log_entries = self.proposer.group().log_entries();
            return Ok(Response::new(pb::ClusterView { log_entries, ..(&self.viewer.whole()).into() }));
        }
        let forwarded = request.metadata().contains_key(FORWARDED);
        let elsewhere = self.proposer.linearize(forwarded).await?;
        Ok(Response::new(elsewhere.unwrap_or_else(|| (&self.viewer.view_with_group()).into())))
    }

    async fn backup(&self, request: Request<pb::BackupRequest>) -> Result<Response<pb::BackupReply>, Status> {
        let confirmed = !request.get_ref().stale;
        if confirmed {
            backup::catch_up(&self.proposer, self.views.clone()).await?;
        }
        let backup = backup::take(&self.viewer, &self.proposer, confirmed).await?;
        Ok(Response::new(pb::BackupReply { backup }))
    }

    async fn register_backend(
        &self,
        request: Request<pb::RegisterBackendRequest>,
    ) -> Result<Response<pb::RegisterBackendReply>, Status> {
        check_identity(&PeerInfo::of(&request)?, Role::Backend, &request.get_ref().name)?;
        let (who, announced) = (format!("backend `{}`", request.get_ref().name), request.get_ref().level);
        let (reply, level) = self.register(&who, announced, convert::register_backend(request.into_inner())).await?;
        let Reply::Backend { backend, subcluster, gpus, token } = reply else { return Err(unexpected_reply(&reply)) };
        Ok(Response::new(pb::RegisterBackendReply {
            backend: backend.get(),
            subcluster: subcluster.get(),
            gpus: gpus.iter().map(|g| g.get()).collect(),
            token: token.get(),
            level: level.get().into(),
        }))
    }

    async fn register_frontend(
        &self,
        request: Request<pb::RegisterFrontendRequest>,
    ) -> Result<Response<pb::RegisterFrontendReply>, Status> {
        check_identity(&PeerInfo::of(&request)?, Role::Frontend, &request.get_ref().name)?;
        let (who, announced) = (format!("frontend `{}`", request.get_ref().name), request.get_ref().level);
        let (reply, level) = self.register(&who, announced, convert::register_frontend(request.into_inner())).await?;
        let Reply::Frontend { frontend } = reply else { return Err(unexpected_reply(&reply)) };
        Ok(Response::new(pb::RegisterFrontendReply { frontend: frontend.get(), level: level.get().into() }))
    }

    async fn load_model(&self, request: Request<pb::LoadModelRequest>) -> Result<Response<pb::LoadModelReply>, Status> {
        models::load(self, &request).await
    }

    async fn unload_model(
        &self,
        request: Request<pb::UnloadModelRequest>,
    ) -> Result<Response<pb::UnloadModelReply>, Status> {
        models::unload(self, &request).await
    }

    async fn change_model(
        &self,
        request: Request<pb::ChangeModelRequest>,
    ) -> Result<Response<pb::ChangeModelReply>, Status> {
        models::change(self, &request).await
    }

    async fn load_pipeline(
        &self,
        request: Request<pb::LoadPipelineRequest>,
    ) -> Result<Response<pb::LoadPipelineReply>, Status> {
        pipelines::load(self, &request).await
    }

    async fn unload_pipeline(
        &self,
        request: Request<pb::UnloadPipelineRequest>,
    ) -> Result<Response<pb::UnloadPipelineReply>, Status> {
        pipelines::unload(self, &request).await
    }

    async fn report_pipelines(
        &self,
        request: Request<pb::ReportPipelinesRequest>,
    ) -> Result<Response<pb::ReportPipelinesReply>, Status> {
        pipelines::report(self, request)
    }

    async fn set_traffic(
        &self,
        request: Request<pb::SetTrafficRequest>,
    ) -> Result<Response<pb::SetTrafficReply>, Status> {
        models::set_traffic(self, &request).await
    }

    async fn set_policy(&self, request: Request<pb::SetPolicyRequest>) -> Result<Response<pb::SetPolicyReply>, Status> {
        self.needs(Level::WITH_POLICIES, "policies of sub-clusters")?;
        let pb::SetPolicyRequest { subcluster, policy, .. } = request.get_ref().clone();
        convert::check_policy(&self.policies, &policy)?;
        let action = Action::SetPolicy { subcluster, policy };
        self.operate(&request, &request.get_ref().operation_id, action).await?;
        Ok(Response::new(pb::SetPolicyReply {}))
    }

    async fn report_model(
        &self,
        request: Request<pb::ReportModelRequest>,
    ) -> Result<Response<pb::ReportModelReply>, Status> {
        models::report(self, request).await
    }

    async fn report_cuts(
        &self,
        request: Request<pb::ReportCutsRequest>,
    ) -> Result<Response<pb::ReportCutsReply>, Status> {
        models::report_cuts(self, &request).await
    }

    async fn report_backend_down(
        &self,
        request: Request<pb::ReportBackendDownRequest>,
    ) -> Result<Response<pb::ReportBackendDownReply>, Status> {
        // Only replicas report on backends, and each backend on itself.
        if !PeerInfo::of(&request)?.has_role(&[Role::Scheduler]) {
            self.check_is_member(&request, Member::Backend(BackendId::new(request.get_ref().backend)))?;
        }
        self.propose(convert::backend_down(request.into_inner())).await?;
        Ok(Response::new(pb::ReportBackendDownReply {}))
    }

    async fn set_duty(&self, request: Request<pb::SetDutyRequest>) -> Result<Response<pb::SetDutyReply>, Status> {
        let action = convert::set_duty(request.get_ref())?;
        self.operate(&request, &request.get_ref().operation_id, action).await?;
        Ok(Response::new(pb::SetDutyReply {}))
    }

    async fn leave(&self, request: Request<pb::LeaveRequest>) -> Result<Response<pb::LeaveReply>, Status> {
        let member = convert::member(request.get_ref().member)?;
        self.check_is_member(&request, member)?;
        self.propose(Command::Leave { member, boot: BootId::new(request.get_ref().boot_id) }).await?;
        Ok(Response::new(pb::LeaveReply {}))
    }

    async fn report_drained(
        &self,
        request: Request<pb::ReportDrainedRequest>,
    ) -> Result<Response<pb::ReportDrainedReply>, Status> {
        let member = convert::member(request.get_ref().member)?;
        self.check_is_member(&request, member)?;
        self.propose(Command::ReportDrained { member, boot: BootId::new(request.get_ref().boot_id) }).await?;
        Ok(Response::new(pb::ReportDrainedReply {}))
    }

    async fn change_replicas(
        &self,
        request: Request<pb::ChangeReplicasRequest>,
    ) -> Result<Response<pb::ChangeReplicasReply>, Status> {
        let (peer, change) = (PeerInfo::of(&request)?, request.get_ref());
        let operation = self.operations.client_operation(&peer, &change.operation_id, convert::change(change))?;
        let command = Command::Operate(operation.clone());
        command.validate().map_err(CallError::from)?;
        match self.proposer.leader_elsewhere()? {
            None => Ok(self.change_here(operation).await?),
            Some(leader) => {
                let level = self.proposer.cluster_level().written();
                let command = command.encode_at(level).map_err(CallError::from)?;
                let request = pb::ForwardRequest { cluster: self.cluster.to_string(), command };
                self.proposer
                    .client(leader)?
                    .forward_change(request)
                    .await
                    .map_err(|status| of_this_replica(leader, status))
            }
        }
    }

    async fn remove_frontend(
        &self,
        request: Request<pb::RemoveFrontendRequest>,
    ) -> Result<Response<pb::RemoveFrontendReply>, Status> {
        let action = Action::RemoveFrontend { frontend: FrontendId::new(request.get_ref().frontend) };
        self.operate(&request, &request.get_ref().operation_id, action).await?;
        Ok(Response::new(pb::RemoveFrontendReply {}))
    }

    async fn raise_level(
        &self,
        request: Request<pb::RaiseLevelRequest>,
    ) -> Result<Response<pb::RaiseLevelReply>, Status> {
        let forwarded = is_forwarded(&request)?;
        let peer = PeerInfo::of(&request)?;
        let pb::RaiseLevelRequest { operation_id, actor } = request.into_inner();
        let origin = match forwarded {
            true => self.operations.carried(&peer, &operation_id, &actor)?,
            false => self.operations.origin(&peer, &operation_id)?,
        };
        if let Some(leader) = self.proposer.leader_elsewhere()?.filter(|_| !forwarded) {
            let (operation_id, actor) = (origin.id.to_string(), origin.actor);
            let mut onward = Request::new(pb::RaiseLevelRequest { operation_id, actor });
            onward.metadata_mut().insert(FORWARDED, MetadataValue::from_static("1"));
            let raised = self.proposer.client(leader)?.raise_level(onward).await;
            return raised.map_err(|status| of_this_replica(leader, status));
        }
        // A replica that does not lead has received no reports, and a deposed leader may not know that it is deposed,
        // nor what has come since.
        self.proposer.linearize_once(true).await?;
        let level = self.proposer.cluster_level().newest();
        let behind = self.viewer.view_with_group().behind(level);
        if !behind.is_empty() {
            return Err(Status::failed_precondition(format!(
                "the upgrade to level {level} is not finished, since not every process knows it: {}",
                in_part(&behind)
            )));
        }
        let OperationOrigin { id, actor, at_unix_ms } = origin;
        let action = Action::RaiseLevel { level };
        let command = Command::Operate(Operation { id, actor, at_unix_ms, avoid: None, action });
        command.validate().map_err(CallError::from)?;
        // Once, and here: another leader would have to look at who is behind for itself.
        self.proposer.propose_here(&command).await?;
        Ok(Response::new(pb::RaiseLevelReply { level: level.get().into() }))
    }

    async fn propose_plan(
        &self,
        request: Request<pb::ProposePlanRequest>,
    ) -> Result<Response<pb::ProposePlanReply>, Status> {
        let action = convert::propose_plan(request.get_ref(), self.load_bytes_per_s)?;
        let reply = self.operate(&request, &request.get_ref().operation_id, action).await?;
        let Reply::Plan { plan } = reply else { return Err(unexpected_reply(&reply)) };
        Ok(Response::new(pb::ProposePlanReply { plan }))
    }

    async fn review_plan(
        &self,
        request: Request<pb::ReviewPlanRequest>,
    ) -> Result<Response<pb::ReviewPlanReply>, Status> {
        let pb::ReviewPlanRequest { plan, approve, .. } = *request.get_ref();
        self.operate(&request, &request.get_ref().operation_id, Action::ReviewPlan { plan, approve }).await?;
        Ok(Response::new(pb::ReviewPlanReply {}))
    }

    async fn plan_epoch(&self, request: Request<pb::PlanEpochRequest>) -> Result<Response<pb::PlanEpochReply>, Status> {
        let (peer, forwarded) = (PeerInfo::of(&request)?, is_forwarded(&request)?);
        let pb::PlanEpochRequest { adopt, operation_id, actor } = request.into_inner();
        let origin = match forwarded {
            true => self.operations.carried(&peer, &operation_id, &actor)?,
            false => self.operations.origin(&peer, &operation_id)?,
        };
        if let Some(leader) = self.proposer.leader_elsewhere()?.filter(|_| !forwarded) {
            let (operation_id, actor) = (origin.id.to_string(), origin.actor);
            let mut onward = Request::new(pb::PlanEpochRequest { adopt, operation_id, actor });
            onward.metadata_mut().insert(FORWARDED, MetadataValue::from_static("1"));
            let planned = self.proposer.client(leader)?.plan_epoch(onward).await;
            return planned.map_err(|status| of_this_replica(leader, status));
        }
        let (answer, answered) = oneshot::channel();
        let busy = |_| Status::resource_exhausted("another epoch is being planned; ask again in a moment");
        self.epochs.try_send(Ask { adopt, origin, answer }).map_err(busy)?;
        match answered.await {
            Ok(Ok(what)) => Ok(Response::new(pb::PlanEpochReply { what })),
            Ok(Err(reason)) => Err(Status::failed_precondition(reason)),
            Err(_) => Err(Status::unavailable("this replica ends")),
        }
    }

    async fn report_load(
        &self,
        request: Request<pb::ReportLoadRequest>,
    ) -> Result<Response<pb::ReportLoadReply>, Status> {
        if let Some(leader) = self.proposer.leader_elsewhere()? {
            return Err(Status::failed_precondition(format!("{leader} leads the control group")));
        }
        let subclusters = request.into_inner().subclusters;
        let most = [SUBCLUSTERS_MAX, MODELS_MAX, GPUS_MAX, LEARNT_MAX];
        let count = |of: fn(&pb::SubclusterLoad) -> usize| subclusters.iter().map(of).sum::<usize>();
        let learnt = count(|load| load.learnt.len());
        let sent = [subclusters.len(), count(|load| load.models.len()), count(|load| load.gpus.len()), learnt];
        if sent.iter().zip(&most).any(|(sent, most)| sent > most) {
            return Err(Status::invalid_argument(format!(
                "loads of {sent:?} sub-clusters, models, GPUs and learnt profiles; expected at most {most:?}"
            )));
        }
        for learnt in subclusters.iter().flat_map(|load| &load.learnt) {
            let wrong = |error| format!("learnt profile of model {} on {}: {error}", learnt.model, learnt.gpu_kind);
            decode_learnt(learnt).map_err(|error| Status::invalid_argument(wrong(error)))?;
        }
        let state = self.viewer.state.read();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.take(Instant::now(), &state, &subclusters);
        drop((reported, state));
        Ok(Response::new(pb::ReportLoadReply {}))
    }

    async fn share_quotas(
        &self,
        request: Request<pb::ShareQuotasRequest>,
    ) -> Result<Response<pb::ShareQuotasReply>, Status> {
        let from = FrontendId::new(request.get_ref().frontend);
        self.check_is_member(&request, Member::Frontend(from))?;
        if let Some(leader) = self.proposer.leader_elsewhere()? {
            // The frontend asks the next replica.
            return Err(Status::unavailable(format!("{leader} leads the control group")));
        }
        let demands = convert::demands(request.into_inner().tenants)?;
        let frontends = self.presence.with_quota_shares(Instant::now(), &self.viewer.state.read());
        let quotas = Arc::clone(&self.reported.lock().unwrap_or_else(PoisonError::into_inner).quotas);
        let shares = quotas.lock().unwrap_or_else(PoisonError::into_inner).report(from, &frontends, &demands);
        let share = |(name, share): (String, symphony_quotas::TenantShare)| pb::TenantShare {
            name,
            items: share.items,
            gpu_seconds: share.gpu_seconds,
        };
        Ok(Response::new(pb::ShareQuotasReply { tenants: shares.into_iter().map(share).collect() }))
    }

    async fn explain(&self, request: Request<pb::ExplainRequest>) -> Result<Response<pb::ExplainReply>, Status> {
        Ok(Response::new(explain::answer(&self.memory, request.into_inner()).await?))
    }

    async fn forward(&self, request: Request<pb::ForwardRequest>) -> Result<Response<pb::ForwardReply>, Status> {
        let command = self.carried(&request)?;
        match self.proposer.propose_here(&command).await {
            Ok(Accepted { index, reply }) => Ok(Response::new(self.forwarded(index, &Ok(reply)))),
            // The refusal is forwarded whole, so that the replica in between can answer with it.
            Err(AttemptError::Fatal(CallError::Refused(refusal))) => {
                Ok(Response::new(self.forwarded(0, &Err(refusal))))
            }
            Err(AttemptError::Fatal(error)) => Err(error.into()),
            Err(AttemptError::Retry(reason)) => Err(Status::unavailable(reason)),
        }
    }

    async fn forward_change(
        &self,
        request: Request<pb::ForwardRequest>,
    ) -> Result<Response<pb::ChangeReplicasReply>, Status> {
        match (self.carried(&request)?, self.proposer.leader_elsewhere()?) {
            (Command::Operate(operation), None) => Ok(self.change_here(operation).await?),
            (Command::Operate(_), Some(leader)) => {
                Err(AttemptError::Retry(format!("{leader} leads the control group by now")).into())
            }
            (other, _) => Err(Status::invalid_argument(format!("{} is no operator's command", other.label()))),
        }
    }
}

/// Whether another replica has forwarded the call: only a replica is trusted with the name of the caller.
fn is_forwarded<T>(request: &Request<T>) -> Result<bool, Status> {
    let peer = PeerInfo::of(request)?;
    Ok(request.metadata().contains_key(FORWARDED)
        && peer.identity.as_ref().is_none_or(|identity| identity.role == Role::Scheduler))
}

/// The most processes that a refusal names.
const NAMED_MAX: usize = 10;

/// A list, or its beginning and how many more there are.
fn in_part(list: &[String]) -> String {
    let (named, others) = list.split_at(list.len().min(NAMED_MAX));
    match others.len() {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_a_replica_that_was_removed_is_told_to_ask_another_one() {
        let passed_on = |status| of_this_replica(NodeId::new(3), status);
        let denied = passed_on(Status::permission_denied("n1 was removed from the cluster"));
        assert_eq!(denied.code(), Code::Unavailable);
        assert_eq!(denied.message(), "n3: n1 was removed from the cluster; ask another replica");
        assert_eq!(passed_on(Status::failed_precondition("no")).code(), Code::FailedPrecondition);
    }
}
