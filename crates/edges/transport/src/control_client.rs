//! The client of the control surface. Any replica can answer, so the first answer is taken.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use symphony_net::{Net, Role};
use symphony_protocol::control::control_client::ControlClient as Grpc;
use symphony_protocol::control::{self as pb, WatchRequest};
use symphony_protocol::view::{BackendScope, VIEW_BYTES_MAX, View, ViewError};
use symphony_types::{BootId, FrontendId, Level, Member, OperationId};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// How long one call to one replica may take.
pub const CONTROL_CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a cluster or a federation may take to agree to one change: several attempts, and a new leader's election.
pub const AGREE_WITHIN: Duration = Duration::from_secs(10);
/// How long after a failed round over all replicas the next one begins.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Pause before a broken watch is opened again. While another replica is watched, the pause doubles with each failure
/// up to [`WATCH_AGAIN_MAX`]: a cluster must not dial a dead replica all the time, nor all at once when it is back.
const WATCH_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// The longest pause. Each watcher's own is between a half of it and this.
const WATCH_AGAIN_MAX: Duration = Duration::from_secs(1);
/// A connection that is silent for this long is probed. A replica answers all backends of its cluster: at this pace a
/// thousand of them cost it a hundred answers a second.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// A probe that is not answered for this long ends the connection.
const KEEP_ALIVE_ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// Why a call was not answered.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No address was given.
    #[error("no control address was given; expected host:port of at least one scheduler replica")]
    NoAddress,
    /// An address is not `host:port`.
    #[error("control address `{addr}` is not host:port: {reason}")]
    Address {
        /// The given text.
        addr: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No replica answered in time.
    #[error("no scheduler replica answered within {} s (asked {addrs}); last error: {last}", .within.as_secs_f64())]
    Unreachable {
        /// The called replicas.
        addrs: String,
        /// The time given.
        within: Duration,
        /// The last error.
        last: String,
    },
    /// The cluster refused.
    #[error("{}", .0.message())]
    Refused(Status),
    /// The answer is malformed.
    #[error(transparent)]
    View(#[from] ViewError),
}

impl ControlError {
    /// Whether the refusal is about the caller itself, independent of the cluster's state: a name, a certificate or a
    /// release. Another refusal may pass when a model is unloaded or a process forgotten.
    #[must_use]
    pub fn is_for_good(&self) -> bool {
        let Self::Refused(status) = self else { return false };
        matches!(
            status.code(),
            Code::InvalidArgument
                | Code::AlreadyExists
                | Code::PermissionDenied
                | Code::Unauthenticated
                | Code::Unimplemented
        )
    }
}

/// The newest view; changes when the cluster does.
pub type ViewReceiver = watch::Receiver<Arc<View>>;

/// The most known replicas: configured ones, and ones that were added later. A cluster has at most 64 at a time.
const REPLICAS_MAX: usize = 128;

/// Calls a cluster's scheduler replicas: the configured ones, and those that appear in the views it watches. So a
/// cluster can replace all of its replicas and clients still find it.
#[derive(Clone, Debug)]
pub struct ControlClient {
    net: Net,
    replicas: Arc<Mutex<Vec<(String, Channel)>>>,
    configured: usize,
}

impl ControlClient {
    /// For the control addresses (`host:port`) of the replicas; connects when first used.
    ///
    /// # Errors
    /// If there is no address or one cannot be parsed.
    pub fn new(net: &Net, addrs: &[String]) -> Result<Self, ControlError> {
        if addrs.is_empty() {
            return Err(ControlError::NoAddress);
        }
        let mut replicas = Vec::with_capacity(addrs.len());
        for addr in addrs {
            replicas.push((addr.clone(), channel(net, addr)?));
        }
        Ok(Self { net: net.clone(), configured: replicas.len(), replicas: Arc::new(Mutex::new(replicas)) })
    }

    fn replicas(&self) -> Vec<(String, Channel)> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes the level of the cluster.
    pub fn update_level(&self, level: Level) {
        self.net.level().update(level);
    }

    /// The newest level that this process knows, as it reports it to the cluster.
    #[must_use]
    pub fn newest_level(&self) -> u32 {
        self.net.level().newest().get().into()
    }

    /// Adds replicas that are new in the view, and forgets those added earlier that are no longer in it.
    fn learn(&self, view: &View) {
        self.update_level(view.level);
        let shown = |addr: &String| view.nodes.values().any(|n| n.control_addr == *addr);
        let mut replicas = self.replicas.lock().unwrap_or_else(PoisonError::into_inner);
        let mut index = 0;
        replicas.retain(|(addr, _)| {
            index += 1;
            index <= self.configured || shown(addr)
        });
        for node in view.nodes.values() {
            let new = !node.control_addr.is_empty() && !replicas.iter().any(|(addr, _)| *addr == node.control_addr);
            if new
                && replicas.len() < REPLICAS_MAX
                && let Ok(channel) = channel(&self.net, &node.control_addr)
            {
                replicas.push((node.control_addr.clone(), channel));
            }
        }
    }

    /// Calls replicas in turn until one answers, for at most `within`. A replica that does not answer may still have
    /// executed the call: operators' calls carry an id ([`fresh_operation_id`]), the others may be repeated.
    ///
    /// # Errors
    /// If none answers in time, or one refuses the call for good.
    pub async fn call<T, F, R>(&self, within: Duration, call: F) -> Result<T, ControlError>
    where
        F: Fn(Grpc<Channel>) -> R,
        R: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.call_for(within, CONTROL_CALL_TIMEOUT.min(within), call).await
    }

    /// The same for a call with a large answer: each replica has `each` for it.
    ///
    /// # Errors
    /// As [`ControlClient::call`].
    pub async fn call_for<T, F, R>(&self, within: Duration, each: Duration, call: F) -> Result<T, ControlError>
    where
        F: Fn(Grpc<Channel>) -> R,
        R: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let call = |channel| call(Grpc::new(channel).max_decoding_message_size(VIEW_BYTES_MAX));
        let answered = call_in_turn(|| self.replicas(), within, each, call).await;
        if let Err(ControlError::Refused(status)) = &answered {
            self.net.level().update_by_refusal(status);
        }
        answered
    }

    /// The same, beginning with the replica at this control address, if it is known. None has more than half of the
    /// time, so that one that hangs leaves some for the others.
    ///
    /// # Errors
    /// As [`ControlClient::call`].
    pub async fn call_first<T, F, R>(&self, first: Option<&str>, within: Duration, call: F) -> Result<T, ControlError>
    where
        F: Fn(Grpc<Channel>) -> R,
        R: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let call = |channel| call(Grpc::new(channel).max_decoding_message_size(VIEW_BYTES_MAX));
        let each = CONTROL_CALL_TIMEOUT.min(within / 2);
        call_in_turn(|| beginning_with(first, self.replicas()), within, each, call).await
    }

    /// Fetches the cluster's view once.
    ///
    /// # Errors
    /// As [`ControlClient::call`].
    pub async fn get(&self, linearizable: bool, within: Duration) -> Result<View, ControlError> {
        self.get_for(linearizable, within, CONTROL_CALL_TIMEOUT.min(within)).await
    }

    /// The same where each replica has `each` for it.
    ///
    /// # Errors
    /// As [`ControlClient::call`].
    pub async fn get_for(&self, linearizable: bool, within: Duration, each: Duration) -> Result<View, ControlError> {
        let get = |mut client: Grpc<Channel>| async move { client.get(pb::GetRequest { linearizable }).await };
        Ok(View::try_from(self.call_for(within, each, get).await?)?)
    }

    /// Watches every replica and keeps the newest view, so that the death of any one replica has no effect. Ends when
    /// the receivers are gone. `watcher` appears in the replicas' logs.
    #[must_use]
    pub fn watch(&self, watcher: &str) -> ViewReceiver {
        self.watch_scope(WatchRequest { watcher: watcher.to_owned(), ..WatchRequest::default() })
    }

    /// As [`watch`](Self::watch), with views that are cut to what a backend needs ([`SortedView::for_backend`]).
    ///
    /// [`SortedView::for_backend`]: symphony_protocol::view::SortedView::for_backend
    #[must_use]
    pub fn watch_as_backend(&self, watcher: &str, scope: BackendScope, boot: BootId) -> ViewReceiver {
        self.watch_scope(WatchRequest {
            watcher: watcher.to_owned(),
            backend: Some(scope.into()),
            process: Some(self.process(Member::Backend(scope.backend), boot)),
            ..WatchRequest::default()
        })
    }

    /// The same as [`watch`](Self::watch) for a frontend: the watch also shows the cluster that this boot of it is
    /// alive.
    #[must_use]
    pub fn watch_as_frontend(&self, watcher: &str, frontend: FrontendId, boot: BootId) -> ViewReceiver {
        let frontend_boot = pb::FrontendBoot { frontend: frontend.get(), boot_id: boot.get() };
        self.watch_scope(WatchRequest {
            watcher: watcher.to_owned(),
            frontend: Some(frontend_boot),
            process: Some(self.process(Member::Frontend(frontend), boot)),
            ..WatchRequest::default()
        })
    }

    /// The watching process, and what it knows.
    fn process(&self, member: Member, boot: BootId) -> pb::WatchingProcess {
        pb::WatchingProcess { member: Some(member.into()), boot_id: boot.get(), level: self.newest_level() }
    }

    fn watch_scope(&self, request: WatchRequest) -> ViewReceiver {
        let (sender, receiver) = watch::channel(Arc::new(View::default()));
        let watching =
            Watching { client: self.clone(), request, sender, watched: Arc::default(), open: Arc::default() };
        watching.watch_new_replicas();
        receiver
    }
}

/// The others stay in their order.
fn beginning_with<T>(first: Option<&str>, mut replicas: Vec<(String, T)>) -> Vec<(String, T)> {
    replicas.sort_by_key(|(addr, _)| Some(addr.as_str()) != first);
    replicas
}

/// Calls replicas in turn, by the list at the beginning of each round, until one answers, for at most `within`,
/// each for at most `each`.
pub(crate) async fn call_in_turn<T, F, R>(
    replicas: impl Fn() -> Vec<(String, Channel)>,
    within: Duration,
    each: Duration,
    call: F,
) -> Result<T, ControlError>
where
    F: Fn(Channel) -> R,
    R: Future<Output = Result<tonic::Response<T>, Status>>,
{
    let give_up = Instant::now() + within;
    loop {
        for (addr, channel) in replicas() {
            let last = match tokio::time::timeout(each, call(channel)).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) if may_pass(status.code()) => format!("{addr}: {}", status.message()),
                Ok(Err(status)) => return Err(ControlError::Refused(status)),
                Err(_) => format!("{addr}: no answer within {} s", each.as_secs_f64()),
            };
            if Instant::now() >= give_up {
                let addrs: Vec<_> = replicas().into_iter().map(|(addr, _)| addr).collect();
                return Err(ControlError::Unreachable { addrs: addrs.join(", "), within, last });
            }
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

pub(crate) fn channel(net: &Net, addr: &str) -> Result<Channel, ControlError> {
    let endpoint = Endpoint::from_shared(format!("http://{addr}"))
        .map_err(|e| ControlError::Address { addr: addr.to_owned(), reason: e.to_string() })?
        .connect_timeout(crate::CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_ANSWERED_WITHIN)
        .keep_alive_while_idle(true);
    Ok(net.channel(&endpoint, Role::Scheduler.into()))
}

/// A new id for an operator's command. Every attempt at the command carries the same id, also after
/// [`ControlClient::call`] has given up: then it is executed once.
#[must_use]
pub fn fresh_operation_id() -> OperationId {
    OperationId::new(rand::random_range(1..=u128::MAX))
}

/// Whether another replica, or the same one later, may give a better answer.
fn may_pass(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Aborted)
}

/// The longest pause of a watcher: pseudo-random by its name, and the same each time.
fn longest_pause(watcher: &str) -> Duration {
    let mut hasher = DefaultHasher::new();
    watcher.hash(&mut hasher);
    let half = WATCH_AGAIN_MAX / 2;
    half + Duration::from_millis(hasher.finish() % half.as_millis() as u64)
}

/// One watch over all replicas.
#[derive(Clone)]
struct Watching {
    client: ControlClient,
    request: WatchRequest,
    sender: watch::Sender<Arc<View>>,
    /// Addresses with a watching task.
    watched: Arc<Mutex<HashSet<String>>>,
    /// Open watches.
    open: Arc<AtomicUsize>,
}

impl Watching {
    fn watch_new_replicas(&self) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        for (addr, channel) in self.client.replicas() {
            if watched.insert(addr.clone()) {
                tokio::spawn(self.clone().watch_replica(addr, channel));
            }
        }
    }

    /// Watches a replica while there are receivers and the replica belongs to the cluster.
    async fn watch_replica(self, addr: String, channel: Channel) {
        let mut client = Grpc::new(channel).max_decoding_message_size(VIEW_BYTES_MAX);
        let known = || self.client.replicas().iter().any(|(known, _)| *known == addr);
        let longest = longest_pause(&self.request.watcher);
        let mut pause = WATCH_AGAIN_AFTER;
        while !self.sender.is_closed() && known() {
            let watching = client.watch(self.request.clone()).await;
            if let Err(status) = &watching {
                self.client.net.level().update_by_refusal(status);
            }
            if let Ok(stream) = watching {
                let mut stream = stream.into_inner();
                self.open.fetch_add(1, Ordering::Relaxed);
                loop {
                    let next = tokio::select! {
                        next = stream.message() => next,
                        () = self.sender.closed() => break,
                    };
                    match next {
                        Ok(Some(view)) => {
                            pause = WATCH_AGAIN_AFTER;
                            self.publish(&addr, view);
                        }
                        Ok(None) => break,
                        Err(status) => {
                            tracing::debug!(%addr, reason = status.message(), "watch ended");
                            break;
                        }
                    }
                }
                self.open.fetch_sub(1, Ordering::Relaxed);
            }
            let others = self.open.load(Ordering::Relaxed) > 0;
            if !others {
                pause = WATCH_AGAIN_AFTER;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.sender.closed() => {}
            }
            pause = (pause * 2).min(longest);
        }
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).remove(&addr);
    }

    fn publish(&self, addr: &str, view: pb::ClusterView) {
        let view = match View::try_from(view) {
            Ok(view) => Arc::new(view),
            Err(error) => return tracing::error!(%addr, %error, "a replica sent a view that makes no sense"),
        };
        // Views of one index differ only in the replica that answers; the first one is kept.
        let published = self.sender.send_if_modified(|current| {
            let newer = view.applied_index > current.applied_index;
            if newer {
                *current = Arc::clone(&view);
            }
            newer
        });
        if published {
            self.client.learn(&view);
            self.watch_new_replicas();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_caller_is_is_refused_for_good_and_what_the_cluster_holds_is_not() {
        let refused = |code| ControlError::Refused(Status::new(code, "no")).is_for_good();
        assert!([Code::PermissionDenied, Code::Unauthenticated, Code::InvalidArgument].into_iter().all(refused));
        // A model may be unloaded that leaves no room, a backend be forgotten that takes the place.
        assert!(![Code::FailedPrecondition, Code::ResourceExhausted, Code::Internal].into_iter().any(refused));
        assert!(!ControlError::NoAddress.is_for_good());
    }

    #[test]
    fn the_one_that_is_named_is_called_first() {
        let replicas = || ["a", "b", "c"].map(|addr| (addr.to_owned(), ())).to_vec();
        let order = |first| beginning_with(first, replicas()).into_iter().map(|(addr, ())| addr).collect::<String>();
        assert_eq!([None, Some("b"), Some("d")].map(order), ["abc", "bac", "abc"]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_leaves_time_for_the_next_one() {
        let channel = || Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
        let calls = AtomicUsize::new(0);
        let call = |_: Channel| {
            let hangs = calls.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Status>(tonic::Response::new(7))
            }
        };
        let within = Duration::from_secs(1);
        let replicas = || vec![("a".to_owned(), channel()), ("b".to_owned(), channel())];
        assert_eq!(call_in_turn(replicas, within, within / 2, call).await.ok(), Some(7));
    }

    #[test]
    fn watchers_come_back_at_different_times() {
        let pauses: HashSet<_> = (0..1_000).map(|n| longest_pause(&format!("backend {n}")).as_millis()).collect();
        assert!(pauses.len() > 250, "{} different pauses of 500 possible ones", pauses.len());
        assert!(pauses.iter().all(|ms| (500..=1_000).contains(ms)));
    }
}
