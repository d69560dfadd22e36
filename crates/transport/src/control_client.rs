//! The client of the control surface: any replica answers, so any replica that answers will do.

use std::sync::Arc;
use std::time::Duration;

use symphony_net::{Net, Role};
use symphony_protocol::control::control_client::ControlClient as Grpc;
use symphony_protocol::control::{self as pb, WatchRequest};
use symphony_protocol::view::{View, ViewError};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

/// How long one call to one replica may take.
pub const CONTROL_CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long after a failed round over all replicas the next one begins.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// How long after a broken watch it is opened again.
const WATCH_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// A connection that is silent this long is asked whether it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// The largest view that is read.
const VIEW_BYTES_MAX: usize = 64 << 20;

/// Why a call was not answered.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No address was given.
    #[error("no control address was given; expected host:port of at least one scheduler replica")]
    NoAddress,
    /// An address is not `host:port`.
    #[error("control address `{addr}` is not host:port: {reason}")]
    Address {
        /// The address.
        addr: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No replica answered in time.
    #[error("no scheduler replica answered within {} s (asked {addrs}); last error: {last}", .within.as_secs_f64())]
    Unreachable {
        /// The replicas.
        addrs: String,
        /// The time given.
        within: Duration,
        /// The last error.
        last: String,
    },
    /// The cluster refused.
    #[error("{}", .0.message())]
    Refused(Status),
    /// The answer makes no sense.
    #[error(transparent)]
    View(#[from] ViewError),
}

/// The newest view; changes when the cluster does.
pub type ViewReceiver = watch::Receiver<Arc<View>>;

/// Talks to a cluster's scheduler replicas.
#[derive(Clone, Debug)]
pub struct ControlClient {
    replicas: Arc<Vec<(String, Channel)>>,
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
            let endpoint = Endpoint::from_shared(format!("http://{addr}"))
                .map_err(|e| ControlError::Address { addr: addr.clone(), reason: e.to_string() })?
                .connect_timeout(crate::CONNECT_TIMEOUT)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_while_idle(true);
            replicas.push((addr.clone(), net.channel(&endpoint, Role::Scheduler.into())));
        }
        Ok(Self { replicas: Arc::new(replicas) })
    }

    /// Calls replicas in turn until one answers, for at most `within`.
    ///
    /// # Errors
    /// If none answers in time, or one refuses the call for good.
    pub async fn call<T, F, R>(&self, within: Duration, call: F) -> Result<T, ControlError>
    where
        F: Fn(Grpc<Channel>) -> R,
        R: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let give_up = Instant::now() + within;
        loop {
            for (addr, channel) in self.replicas.iter() {
                let client = Grpc::new(channel.clone()).max_decoding_message_size(VIEW_BYTES_MAX);
                let last = match tokio::time::timeout(CONTROL_CALL_TIMEOUT.min(within), call(client)).await {
                    Ok(Ok(response)) => return Ok(response.into_inner()),
                    Ok(Err(status)) if may_pass(status.code()) => format!("{addr}: {}", status.message()),
                    Ok(Err(status)) => return Err(ControlError::Refused(status)),
                    Err(_) => format!("{addr}: no answer within {} s", CONTROL_CALL_TIMEOUT.as_secs()),
                };
                if Instant::now() >= give_up {
                    let addrs: Vec<_> = self.replicas.iter().map(|(addr, _)| addr.as_str()).collect();
                    return Err(ControlError::Unreachable { addrs: addrs.join(", "), within, last });
                }
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    /// The cluster's view once.
    ///
    /// # Errors
    /// As [`ControlClient::call`].
    pub async fn get(&self, linearizable: bool, within: Duration) -> Result<View, ControlError> {
        let view =
            self.call(within, |mut client| async move { client.get(pb::GetRequest { linearizable }).await }).await?;
        Ok(View::try_from(view)?)
    }

    /// Watches every replica and keeps the newest view, so that the death of any replica goes unnoticed. Ends when the
    /// receivers are gone. `watcher` shows in the replicas' logs.
    #[must_use]
    pub fn watch(&self, watcher: &str) -> ViewReceiver {
        let (sender, receiver) = watch::channel(Arc::new(View::default()));
        for (addr, channel) in self.replicas.iter() {
            let client = Grpc::new(channel.clone()).max_decoding_message_size(VIEW_BYTES_MAX);
            let watcher = watcher.to_owned();
            tokio::spawn(watch_replica(addr.clone(), client, watcher, sender.clone()));
        }
        receiver
    }
}

/// Whether another replica, or the same one later, may answer better.
fn may_pass(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Aborted)
}

async fn watch_replica(addr: String, mut client: Grpc<Channel>, watcher: String, sender: watch::Sender<Arc<View>>) {
    while !sender.is_closed() {
        let watching = client.watch(WatchRequest { watcher: watcher.clone() }).await;
        if let Ok(stream) = watching {
            let mut stream = stream.into_inner();
            loop {
                let next = tokio::select! {
                    next = stream.message() => next,
                    () = sender.closed() => return,
                };
                match next {
                    Ok(Some(view)) => publish(&addr, view, &sender),
                    Ok(None) => break,
                    Err(status) => {
                        tracing::debug!(%addr, reason = status.message(), "watch ended");
                        break;
                    }
                }
            }
        }
        tokio::time::sleep(WATCH_AGAIN_AFTER).await;
    }
}

fn publish(addr: &str, view: pb::ClusterView, sender: &watch::Sender<Arc<View>>) {
    match View::try_from(view) {
        Ok(view) => {
            sender.send_if_modified(|current| {
                // Views of one index differ only in who answers; keep the first.
                let newer = view.applied_index > current.applied_index;
                if newer {
                    *current = Arc::new(view);
                }
                newer
            });
        }
        Err(error) => tracing::error!(%addr, %error, "a replica sent a view that makes no sense"),
    }
}
