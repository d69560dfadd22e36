//! The owner's side of the data link: backends READ inputs here and bring results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_protocol::Frame;
use symphony_protocol::data::{FromOwner, ResultBytes, ToOwner};
use symphony_protocol::dispatch::EndReason;
use symphony_transport::accept_link;
use symphony_types::BootId;
use tokio::net::{TcpListener, TcpStream};
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
}

impl DataServer {
    /// Accepts backends until cancelled.
    pub(crate) async fn accept(self, listener: TcpListener, ended: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                () = ended.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let (server, ended) = (self.clone(), ended.clone());
                    tokio::spawn(async move {
                        tokio::select! {
                            () = ended.cancelled() => {}
                            () = server.serve(stream, peer.to_string()) => {}
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a backend");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    async fn serve(self, stream: TcpStream, peer: String) {
        let Ok((sender, mut receiver)) = accept_link::<FromOwner, ToOwner>(stream, peer.clone()) else { return };
        match tokio::time::timeout(HELLO_TIMEOUT, receiver.receive()).await {
            Ok(Ok(Frame { message: ToOwner::Hello { frontend_boot, .. }, .. })) => {
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
            if !self.table.end(result.sequence, ending) {
                self.ledger.discard();
            }
        }
    }
}
