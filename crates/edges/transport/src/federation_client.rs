//! The client of a federation's surface: frontends watch its view, operators and tools send requests.

use std::sync::Arc;
use std::time::Duration;

use symphony_net::Net;
use symphony_protocol::control::federation_client::FederationClient as Grpc;
use symphony_protocol::control::{self as pb, FederationWatchRequest};
use symphony_protocol::federation::FederationView;
use symphony_protocol::view::VIEW_BYTES_MAX;
use tokio::sync::watch;
use tonic::Status;
use tonic::transport::Channel;

use crate::control_client::{CONTROL_CALL_TIMEOUT, ControlError, call_in_turn, channel};

/// Pause before a broken watch is opened again.
const WATCH_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The newest view of a federation; changes when the federation does. It stays as it is while no replica of the top
/// level answers.
pub type FederationViewReceiver = watch::Receiver<Arc<FederationView>>;

/// Calls the replicas of a federation's group.
#[derive(Clone, Debug)]
pub struct FederationClient {
    replicas: Arc<Vec<(String, Channel)>>,
}

impl FederationClient {
    /// For the addresses (`host:port`) of the replicas; connects when first used.
    ///
    /// # Errors
    /// If there is no address or one cannot be parsed.
    pub fn new(net: &Net, addrs: &[String]) -> Result<Self, ControlError> {
        if addrs.is_empty() {
            return Err(ControlError::NoAddress);
        }
        let replicas = addrs.iter().map(|addr| Ok((addr.clone(), channel(net, addr)?)));
        Ok(Self { replicas: Arc::new(replicas.collect::<Result<_, ControlError>>()?) })
    }

    /// Calls replicas in turn until one answers, for at most `within`: one that does not lead says so, and the next is
    /// called.
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

    /// The same for calls that take longer than most: each replica has the time `each`.
    ///
    /// # Errors
    /// As [`FederationClient::call`].
    pub async fn call_for<T, F, R>(&self, within: Duration, each: Duration, call: F) -> Result<T, ControlError>
    where
        F: Fn(Grpc<Channel>) -> R,
        R: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let call = |channel| call(Grpc::new(channel).max_decoding_message_size(VIEW_BYTES_MAX));
        call_in_turn(|| self.replicas.to_vec(), within, each, call).await
    }

    /// Fetches the federation's view once.
    ///
    /// # Errors
    /// As [`FederationClient::call`].
    pub async fn get(&self, linearizable: bool, within: Duration) -> Result<FederationView, ControlError> {
        let call =
            |mut client: Grpc<Channel>| async move { client.get(pb::FederationGetRequest { linearizable }).await };
        Ok(FederationView::try_from(self.call(within, call).await?)?)
    }

    /// Watches every replica and keeps the newest view. Ends when the receivers are gone. `watcher` appears in the
    /// replicas' logs.
    #[must_use]
    pub fn watch(&self, watcher: &str) -> FederationViewReceiver {
        let (sender, receiver) = watch::channel(Arc::new(FederationView::default()));
        let sender = Arc::new(sender);
        for (addr, channel) in self.replicas.iter().cloned() {
            tokio::spawn(watch_replica(addr, channel, watcher.to_owned(), Arc::clone(&sender)));
        }
        receiver
    }
}

async fn watch_replica(
    addr: String,
    channel: Channel,
    watcher: String,
    sender: Arc<watch::Sender<Arc<FederationView>>>,
) {
    let mut client = Grpc::new(channel).max_decoding_message_size(VIEW_BYTES_MAX);
    while !sender.is_closed() {
        if let Ok(stream) = client.watch(FederationWatchRequest { watcher: watcher.clone() }).await {
            let mut stream = stream.into_inner();
            loop {
                let next = tokio::select! {
                    next = stream.message() => next,
                    () = sender.closed() => return,
                };
                match next {
                    Ok(Some(view)) => match FederationView::try_from(view) {
                        Ok(view) => publish(&sender, view),
                        Err(error) => {
                            tracing::debug!(%addr, %error, "view of the federation not understood");
                            break;
                        }
                    },
                    Ok(None) => break,
                    Err(status) => {
                        tracing::debug!(%addr, reason = status.message(), "watch of the federation ended");
                        break;
                    }
                }
            }
        }
        tokio::time::sleep(WATCH_AGAIN_AFTER).await;
    }
}

/// Keeps the newest view: a lagging replica shows an old plan, and no reader goes back to it (invariant F2).
fn publish(sender: &watch::Sender<Arc<FederationView>>, view: FederationView) {
    sender.send_if_modified(|current| {
        let newer = view.applied_index > current.applied_index;
        if newer {
            if view.plan < current.plan {
                let what = format!("plan {} after plan {}", view.plan, current.plan);
                symphony_telemetry::violated(symphony_types::Invariant::F2, &what);
                return false;
            }
            *current = Arc::new(view);
        }
        newer
    });
}

#[cfg(test)]
mod tests {
    use symphony_telemetry::violations;
    use symphony_types::Invariant;

    use super::*;

    #[test]
    fn an_old_plan_is_never_gone_back_to() {
        let (sender, receiver) = watch::channel(Arc::new(FederationView::default()));
        let view = |applied_index, plan| FederationView { applied_index, plan, ..FederationView::default() };
        let now = || (receiver.borrow().applied_index, receiver.borrow().plan);
        publish(&sender, view(7, 3));
        publish(&sender, view(5, 2));
        assert_eq!((now(), violations(Invariant::F2)), ((7, 3), 0), "a replica that lags");
        // F2, planted: a later view with an earlier plan.
        publish(&sender, view(8, 2));
        assert_eq!((now(), violations(Invariant::F2)), ((7, 3), 1));
        publish(&sender, view(9, 4));
        assert_eq!(now(), (9, 4));
    }
}
