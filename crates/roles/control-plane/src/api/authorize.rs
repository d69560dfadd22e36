//! The roles that may call each method of the control port. A method that is not in the table is denied to all.

use std::task::{Context, Poll};

use futures::future::{Either, Ready, ready};
use symphony_net::{PeerInfo, Role};
use symphony_types::NodeId;
use tonic::Status;
use tonic::codegen::http::{Request, Response};
use tower::{Layer, Service};

use crate::group::state_machine::SharedState;

/// Calls between scheduler replicas.
const REPLICAS: &[Role] = &[Role::Scheduler];
/// Every role with a certificate of the cluster.
const EVERYBODY: &[Role] = &Role::ALL;
/// Roles that may change the cluster.
const OPERATORS: &[Role] = &[Role::Operator];
/// Roles that may load and unload models.
const LOADERS: &[Role] = &[Role::Operator, Role::Federation];
/// Roles of people and their tools.
const PEOPLE: &[Role] = &[Role::Operator, Role::Viewer];
/// Roles that may see single requests and decisions: people, and processes for the people at their consoles.
const READERS: &[Role] = &[Role::Operator, Role::Viewer, Role::Scheduler, Role::Backend, Role::Frontend];

/// The roles that may call a method, by its path.
pub(crate) fn allowed(path: &str) -> &'static [Role] {
    if let Some(method) = path.strip_prefix("/symphony.v1.Raft/") {
        return match method {
            "Replicate" | "Vote" | "PreVote" | "InstallSnapshot" | "TransferLeader" => REPLICAS,
            _ => &[],
        };
    }
    if let Some(method) = path.strip_prefix("/externalscaler.ExternalScaler/") {
        return match method {
            // Replicas forward the calls that they receive.
            "GetMetrics" => &[Role::Operator, Role::Viewer, Role::Scheduler],
            "IsActive" | "StreamIsActive" | "GetMetricSpec" => PEOPLE,
            _ => &[],
        };
    }
    match path.strip_prefix("/symphony.v1.Control/").unwrap_or_default() {
        // These carry the name of the original caller, as the called replica saw it: only replicas are trusted with
        // that.
        "Forward" | "ForwardChange" | "ReportLoad" => REPLICAS,
        "ReportBackendDown" => &[Role::Scheduler, Role::Backend],
        "Leave" => &[Role::Scheduler, Role::Backend, Role::Frontend],
        "ReportDrained" => &[Role::Backend, Role::Frontend],
        "Watch" | "Get" => EVERYBODY,
        "RegisterBackend" | "ReportModel" | "ReportCuts" => &[Role::Backend],
        "RegisterFrontend" | "ShareQuotas" | "ReportPipelines" => &[Role::Frontend],
        "LoadModel" | "UnloadModel" | "ChangeModel" | "SetTraffic" => LOADERS,
        "LoadPipeline" | "UnloadPipeline" => OPERATORS,
        "Backup" | "SetDuty" | "ChangeReplicas" | "RemoveFrontend" | "ProposePlan" | "ReviewPlan" | "SetPolicy" => {
            OPERATORS
        }
        // A replica forwards these calls to the Raft leader.
        "PlanEpoch" | "RaiseLevel" => &[Role::Operator, Role::Scheduler],
        "Explain" => READERS,
        _ => &[],
    }
}

/// Puts [`Authorize`] in front of a service.
#[derive(Clone, Debug)]
pub(crate) struct AuthorizeLayer {
    /// Knows the removed replicas.
    pub(crate) state: SharedState,
}

impl<S> Layer<S> for AuthorizeLayer {
    type Service = Authorize<S>;

    fn layer(&self, inner: S) -> Authorize<S> {
        Authorize { inner, state: self.state.clone() }
    }
}

/// Refuses callers whose role does not allow the call, and removed replicas.
#[derive(Clone, Debug)]
pub(crate) struct Authorize<S> {
    inner: S,
    state: SharedState,
}

impl<S, B, R> Service<Request<B>> for Authorize<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Response<R>, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let removed = |node: NodeId| self.state.read().removed_nodes().contains(&node);
        match check(request.extensions().get(), request.uri().path(), removed) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(status) => Either::Right(ready(Ok(status.into_http()))),
        }
    }
}

fn check(peer: Option<&PeerInfo>, path: &str, removed: impl Fn(NodeId) -> bool) -> Result<(), Status> {
    let Some(peer) = peer else { return Err(Status::unauthenticated("the caller was not identified")) };
    let allowed = allowed(path);
    // A removed replica may still call the methods that are open to all: they tell it that it was removed.
    if allowed != EVERYBODY
        && let Some(node) = replica(peer).filter(|node| removed(*node))
    {
        tracing::warn!(%peer, path, "call of a removed replica denied");
        return Err(Status::permission_denied(format!("{node} was removed from the cluster")));
    }
    if !allowed.is_empty() && peer.has_role(allowed) {
        return Ok(());
    }
    tracing::warn!(%peer, path, "call denied");
    if allowed.is_empty() {
        return Err(Status::unimplemented(format!("{path} is no method of this port")));
    }
    let roles: Vec<_> = allowed.iter().map(|role| role.label()).collect();
    Err(Status::permission_denied(format!("{peer} may not call {path}; that is for {}", roles.join(" or "))))
}

/// The calling replica, by its certificate.
fn replica(peer: &PeerInfo) -> Option<NodeId> {
    let identity = peer.identity.as_ref().filter(|identity| identity.role == Role::Scheduler)?;
    identity.name.parse().ok().map(NodeId::new)
}

#[cfg(test)]
mod tests {
    use symphony_net::Identity;
    use tonic::Code;

    use super::*;

    fn peer(role: Role) -> PeerInfo {
        let identity = Identity::new("blue", role, "1").unwrap();
        PeerInfo { addr: ([127, 0, 0, 1], 1).into(), identity: Some(identity) }
    }

    #[test]
    fn every_method_is_in_the_table() {
        let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../proto/symphony/v1");
        for (file, service) in [("control.proto", "Control"), ("raft.proto", "Raft")] {
            let text = std::fs::read_to_string(format!("{proto}/{file}")).unwrap();
            let methods = text.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
            let methods: Vec<_> = methods.map(|method| format!("/symphony.v1.{service}/{}", method.trim())).collect();
            assert!(methods.len() > 4, "{file} has methods");
            for method in methods {
                assert!(!allowed(&method).is_empty(), "nobody may call {method}");
            }
        }
    }

    fn check(peer: Option<&PeerInfo>, path: &str) -> Result<(), Status> {
        super::check(peer, path, |_| false)
    }

    #[test]
    fn a_removed_replica_may_only_ask_what_everybody_may() {
        let removed = |node| node == NodeId::new(1);
        for path in ["/symphony.v1.Control/Forward", "/symphony.v1.Raft/Vote", "/symphony.v1.Control/ReportBackendDown"]
        {
            let scheduler = peer(Role::Scheduler);
            assert!(super::check(Some(&scheduler), path, |node| node == NodeId::new(2)).is_ok());
            let denied = super::check(Some(&scheduler), path, removed).unwrap_err();
            assert!(denied.message().contains("n1 was removed"), "{denied}");
        }
        assert!(super::check(Some(&peer(Role::Scheduler)), "/symphony.v1.Control/Get", removed).is_ok());
        assert!(super::check(Some(&peer(Role::Backend)), "/symphony.v1.Control/ReportModel", removed).is_ok());
    }

    #[test]
    fn roles_decide_and_what_is_unknown_is_denied() {
        let load = "/symphony.v1.Control/LoadModel";
        assert!(check(Some(&peer(Role::Operator)), load).is_ok());
        for role in [Role::Viewer, Role::Backend, Role::Frontend, Role::Scheduler] {
            assert_eq!(check(Some(&peer(role)), load).unwrap_err().code(), Code::PermissionDenied);
        }
        let federation = Some(peer(Role::Federation));
        for (method, may) in
            [("LoadModel", true), ("UnloadModel", true), ("Get", true), ("SetDuty", false), ("Forward", false)]
        {
            let called = check(federation.as_ref(), &format!("/symphony.v1.Control/{method}"));
            assert_eq!(called.is_ok(), may, "{method}: {called:?}");
        }
        let explain = "/symphony.v1.Control/Explain";
        for role in [Role::Operator, Role::Viewer, Role::Scheduler, Role::Backend, Role::Frontend] {
            assert!(check(Some(&peer(role)), explain).is_ok(), "the console of {role:?} explains");
        }
        assert_eq!(check(federation.as_ref(), explain).unwrap_err().code(), Code::PermissionDenied);
        let change = "/symphony.v1.Control/ChangeReplicas";
        assert!(check(Some(&peer(Role::Operator)), change).is_ok());
        assert_eq!(check(Some(&peer(Role::Scheduler)), change).unwrap_err().code(), Code::PermissionDenied);
        for carry in ["/symphony.v1.Control/Forward", "/symphony.v1.Control/ForwardChange"] {
            assert!(check(Some(&peer(Role::Scheduler)), carry).is_ok());
            let denied = check(Some(&peer(Role::Operator)), carry).unwrap_err();
            assert_eq!(denied.code(), Code::PermissionDenied, "who carries a command says who gave it");
        }
        assert_eq!(
            check(Some(&peer(Role::Operator)), "/symphony.v1.Raft/Replicate").unwrap_err().code(),
            Code::PermissionDenied
        );
        assert_eq!(
            check(Some(&peer(Role::Operator)), "/symphony.v1.Control/Destroy").unwrap_err().code(),
            Code::Unimplemented
        );
        assert_eq!(check(None, load).unwrap_err().code(), Code::Unauthenticated);
    }
}
