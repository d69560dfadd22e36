//! The owner's side of the data link: backends READ inputs here and bring results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_net::{Connection, Incoming, PeerInfo, Role};
use symphony_protocol::Frame;
use symphony_protocol::data::{FromOwner, ResultBytes, ToOwner};
use symphony_protocol::dispatch::EndReason;
use symphony_transport::{ViewReceiver, link_over};
use symphony_types::{BackendId, BootId};
use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;
use crate::request_table::{Ending, RequestTable};

/// How long a connection may stay without saying hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct DataServer {
    pub(crate) boot: BootId,
    pub(crate) table: Arc<RequestTable>,
    pub(crate) ledger: Arc<Ledger>,
    /// Who is called what.
    pub(crate) view: ViewReceiver,
}

impl DataServer {
    /// Accepts backends until cancelled.
    pub(crate) async fn accept(self, mut incoming: Incoming, ended: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                () = ended.cancelled() => return,
                accepted = incoming.next() => accepted,
            };
            let Some(backend) = accepted else { return };
            let (server, ended) = (self.clone(), ended.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = ended.cancelled() => {}
                    () = server.serve(backend) => {}
                }
            });
        }
    }

    /// Whether the peer is the backend it says. One that this frontend has not heard of yet asks again in a moment.
    fn is(&self, connection: &PeerInfo, backend: BackendId) -> bool {
        let view = self.view.borrow();
        let name = view.backends.get(&backend).map_or("", |backend| backend.name.as_str());
        connection.may_be(Role::Backend, name)
    }

    async fn serve(self, backend: Connection) {
        let peer = backend.peer().clone();
        let (sender, mut receiver) = link_over::<FromOwner, ToOwner>(backend);
        match tokio::time::timeout(HELLO_TIMEOUT, receiver.receive()).await {
            Ok(Ok(Frame { message: ToOwner::Hello { backend, frontend_boot, .. }, .. })) => {
                if !self.is(&peer, backend) {
                    return tracing::warn!(%peer, %backend, "a backend presents another one's id, or an unknown one");
                }
                let _ = sender.send(FromOwner::Welcome { boot: self.boot });
                if frontend_boot != self.boot {
                    return tracing::debug!(%peer, "backend asked for a former life");
                }
            }
            _ => return tracing::debug!(%peer, "data link did not begin with hello"),
        }
        loop {
            let frame = match receiver.receive().await {
                Ok(frame) => frame,
                Err(error) => return tracing::debug!(%error, "data link ended"),
            };
            match frame.message {
                ToOwner::Read { read, sequences } => {
                    let payloads: Vec<_> = sequences.iter().map(|&s| self.table.payload(s)).collect();
                    let lengths = payloads.iter().map(|p| p.as_ref().map(|p| p.len() as u32)).collect();
                    let tail = payloads.into_iter().flatten().collect();
                    if sender.send_with(FromOwner::Payloads { read, lengths }, tail).is_err() {
                        return;
                    }
                }
                ToOwner::Results { results } => self.results(&results, frame.tail),
                ToOwner::Hello { .. } => return tracing::warn!(%peer, "second hello"),
            }
        }
    }

    fn results(&self, results: &[symphony_protocol::data::RequestResult], mut tail: Bytes) {
        let at = Instant::now();
        for result in results {
            let ending = match result.outcome {
                ResultBytes::Answer(length) if length as usize <= tail.len() => Ending::Answer {
                    payload: tail.split_to(length as usize),
                    batch: result.batch,
                    execution_ns: result.execution,
                    at,
                },
                ResultBytes::Answer(_) => Ending::Ended(EndReason::Failed(symphony_types::FailReason::ExecutionFailed)),
                ResultBytes::Failed(reason) => Ending::Ended(EndReason::Failed(reason)),
            };
            let first = self.table.end(result.sequence, ending);
            self.ledger.result(first);
        }
    }
}
