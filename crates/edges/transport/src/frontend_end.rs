//! The frontend's side of one data link: a backend READs inputs and returns results.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use symphony_net::{Connection, PeerInfo};
use symphony_protocol::data::{FromDataServer, RdmaEndpoint, RdmaOffer, RequestResult, ResultBytes, ToDataServer};
use symphony_protocol::{Frame, PAYLOAD_BYTES_MAX};
use symphony_types::{BackendId, BootId, FailReason};
use tokio::time::Instant;

use crate::echo::EchoTimes;
use crate::frames::in_frames;
use crate::link::{HELLO_WITHIN, LinkReceiver, LinkSender, data_link_over, link_over_streams};
use crate::payload::{INPUT_WITHIN, InputState, PayloadFrontend, Payloads, ReturnedResult, inputs_now, wait};
use crate::rdma::RdmaPeer;
use crate::sharing::{PendingOffer, SHARED_PAYLOAD_BYTES_MAX, SharedInputs};
use crate::stuck::{data_echo, stuck};
use crate::until::until;

/// How long data that came by RDMA may take to be read after the backend's link has ended.
const DRAINED_WITHIN: Duration = Duration::from_millis(200);

/// A data link whose backend has said hello; the frontend checks the claim before it serves.
#[derive(Debug)]
pub struct FrontendEnd {
    sender: LinkSender<FromDataServer>,
    receiver: LinkReceiver<ToDataServer>,
    backend: BackendId,
    means: BootId,
    shares: bool,
    rdma: Option<RdmaEndpoint>,
    /// The echo requests to the backend.
    echo: EchoTimes,
}

impl FrontendEnd {
    /// Waits for the backend's hello. None if it does not come.
    pub async fn greeted(connection: Connection) -> Option<Self> {
        let (sender, mut receiver) = data_link_over::<FromDataServer, ToDataServer>(connection);
        match tokio::time::timeout(HELLO_WITHIN, receiver.receive()).await {
            Ok(Ok(Frame { message: ToDataServer::Hello { backend, frontend_boot, shares, rdma, .. }, .. })) => {
                Some(Self { sender, receiver, backend, means: frontend_boot, shares, rdma, echo: data_echo() })
            }
            _ => {
                tracing::debug!(peer = %receiver.peer(), "data link did not begin with hello");
                None
            }
        }
    }

    /// The identity that the backend claims.
    #[must_use]
    pub const fn backend(&self) -> BackendId {
        self.backend
    }

    /// The authenticated peer.
    #[must_use]
    pub const fn peer(&self) -> &PeerInfo {
        self.receiver.peer()
    }

    /// Welcomes the backend, and serves it in boot `boot` until the link ends or gets stuck.
    pub async fn serve(mut self, boot: BootId, frontend: &impl PayloadFrontend, inputs: Option<&Arc<SharedInputs>>) {
        let (peer, echo) = (self.peer().clone(), self.echo);
        let watched = self.receiver.watch(echo);
        tokio::select! {
            () = self.serve_watched(boot, frontend, inputs) => {}
            () = stuck(watched, echo) => tracing::warn!(%peer, "the data link does not move; it ends"),
        }
    }

    async fn serve_watched(
        mut self,
        boot: BootId,
        frontend: &impl PayloadFrontend,
        inputs: Option<&Arc<SharedInputs>>,
    ) {
        let peer = self.peer().clone();
        let (rdma, mut rdma_peer) = self.rdma_offer(inputs).await.unzip();
        let shared = inputs.filter(|inputs| self.shares && inputs.rdma().is_none());
        let (sharing, mut pending) = shared.map(SharedInputs::offer).unzip();
        let required = inputs.is_some_and(|inputs| inputs.required());
        if required && sharing.is_none() && rdma.is_none() {
            return self.refuse(inputs);
        }
        let _ = self.sender.send(FromDataServer::Welcome { boot, sharing, rdma });
        if self.means != boot {
            return tracing::debug!(%peer, "backend asked for a former boot");
        }
        // Whether the backend has said that it shares memory, and it does.
        let mut joined = false;
        loop {
            let frame = match self.receiver.receive().await {
                Ok(frame) => frame,
                Err(error) => return tracing::debug!(%error, "data link ended"),
            };
            match frame.message {
                ToDataServer::Joined { shares } => {
                    if let (true, Some(rdma), Some(inputs)) = (shares, rdma_peer.take(), inputs) {
                        tracing::debug!(%peer, "RDMA");
                        return self.serve_by_rdma(frontend, &rdma, inputs).await;
                    }
                    joined = shares && pending.as_mut().is_some_and(|pending| pending.sharing_backend().is_some());
                    if !joined {
                        // Its memory, or the offer, cannot be used any more.
                        pending = None;
                    }
                    tracing::debug!(%peer, joined, "shared memory");
                    if required && !joined {
                        return self.refuse(inputs);
                    }
                }
                // There is no other carrier.
                _ if required && !joined => return self.refuse(inputs),
                message => {
                    if !handle(frontend, &self.sender, &peer, message, frame.tail, pending.as_mut()).await {
                        return;
                    }
                }
            }
        }
    }

    /// The offer to a backend that wants RDMA, if this frontend has it. Only an authenticated peer learns keys.
    async fn rdma_offer(&self, inputs: Option<&Arc<SharedInputs>>) -> Option<(RdmaOffer, RdmaPeer)> {
        let (rdma, wanted) = (inputs?.rdma()?, self.rdma?);
        let peer = self.peer();
        if peer.identity.is_none() {
            tracing::warn!(%peer, "no RDMA: keys are handed out over mutual TLS only");
            return None;
        }
        match rdma.offer(wanted).await {
            Ok(offer) => Some(offer),
            Err(reason) => {
                tracing::warn!(%peer, reason, "no RDMA with this backend");
                None
            }
        }
    }

    /// Serves a backend whose frames come over its RDMA connection. This link only shows that it lives.
    async fn serve_by_rdma(mut self, frontend: &impl PayloadFrontend, rdma: &RdmaPeer, inputs: &Arc<SharedInputs>) {
        let peer = self.peer().clone();
        self.receiver.carried_by_rdma();
        let level = self.receiver.level().clone();
        let (sender, mut receiver) =
            link_over_streams::<FromDataServer, ToDataServer>(rdma.streams(), peer.clone(), level);
        let _reads = inputs.read();
        let mut silent_at: Option<Instant> = None;
        loop {
            let frame = tokio::select! {
                biased;
                frame = receiver.receive() => frame,
                end = self.receiver.receive(), if silent_at.is_none() => {
                    if end.is_ok() {
                        return tracing::warn!(%peer, "a frame came over the data link beside RDMA");
                    }
                    // What it sent before it ended has arrived already, and only has to be read.
                    silent_at = Some(Instant::now() + DRAINED_WITHIN);
                    continue;
                }
                () = until(silent_at) => return tracing::debug!(%peer, "data link ended"),
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return tracing::debug!(%error, "data link ended"),
            };
            if !handle(frontend, &sender, &peer, frame.message, frame.tail, None).await {
                return;
            }
        }
    }

    fn refuse(self, inputs: Option<&Arc<SharedInputs>>) {
        let (peer, backend) = (self.peer(), self.backend);
        let refusal = if inputs.is_some_and(|inputs| inputs.rdma().is_some()) {
            tracing::warn!(%peer, %backend,
                "backend refused: frontend.payloads requires RDMA, and it has none, or does not want to");
            FromDataServer::MustUseRdma
        } else {
            tracing::warn!(%peer, %backend,
                "backend refused: frontend.payloads requires shared memory, and it does not share this host's, or does not want to");
            FromDataServer::MustShare
        };
        let _ = self.sender.send(refusal);
    }
}

/// Handles a frame. Returns whether the link can still be used.
async fn handle(
    frontend: &impl PayloadFrontend,
    sender: &LinkSender<FromDataServer>,
    peer: &PeerInfo,
    message: ToDataServer,
    tail: Bytes,
    pending: Option<&mut PendingOffer>,
) -> bool {
    match message {
        ToDataServer::Read { read, sequences } => {
            let found = inputs_now(frontend, &sequences);
            let is_here = found.iter().all(|input| matches!(input, InputState::Here(_)));
            let sender = sender.clone();
            let answer = async move {
                let started = Instant::now();
                let payloads = wait(found, INPUT_WITHIN).await;
                let waited = if is_here { 0 } else { u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX) };
                answers(payloads).into_iter().all(|payloads| {
                    let lengths = payloads.iter().map(|p| p.as_ref().map(|p| p.len() as u32)).collect();
                    let tail = payloads.into_iter().flatten().collect();
                    sender.send_with(FromDataServer::Payloads { read, lengths, waited }, tail).is_ok()
                })
            };
            if is_here {
                return answer.await;
            }
            // Waiting for an input delays only the reader that asked for it; the input comes within a second, or never.
            tokio::spawn(answer);
            true
        }
        ToDataServer::Results { results } => {
            let sequences = take_results(frontend, &results, tail, pending);
            sequences.is_empty() || sender.send(FromDataServer::Taken { sequences }).is_ok()
        }
        ToDataServer::Hello { .. } | ToDataServer::Joined { .. } => {
            tracing::warn!(%peer, "a greeting in the middle of a data link");
            false
        }
    }
}

/// Splits inputs among frames. An input that fits into no frame is missing in its batch; the others arrive.
fn answers(mut payloads: Payloads) -> Vec<Payloads> {
    for payload in &mut payloads {
        if let Some(large) = payload.take_if(|payload| payload.len() > PAYLOAD_BYTES_MAX) {
            tracing::error!(bytes = large.len(), limit = PAYLOAD_BYTES_MAX, "an input is too large for a frame");
        }
    }
    in_frames(payloads, |payload| payload.as_ref().map_or(0, Bytes::len))
}

/// Hands results to their frontend; returns those that were in shared memory.
fn take_results(
    frontend: &impl PayloadFrontend,
    results: &[RequestResult],
    mut tail: Bytes,
    mut pending: Option<&mut PendingOffer>,
) -> Vec<u64> {
    let mut taken = Vec::new();
    for &RequestResult { sequence, outcome, batch, execution, run } in results {
        let outcome = match outcome {
            ResultBytes::Answer(length) if length as usize <= tail.len() => Ok(tail.split_to(length as usize)),
            ResultBytes::Answer(_) => Err(FailReason::ExecutionFailed),
            ResultBytes::Failed(reason) => Err(reason),
            ResultBytes::Shared => {
                taken.push(sequence);
                let sharing_backend = pending.as_mut().and_then(|pending| pending.sharing_backend());
                let read = sharing_backend
                    .map(|sharing_backend| sharing_backend.results.read(sequence, SHARED_PAYLOAD_BYTES_MAX));
                read.and_then(Result::ok).ok_or_else(|| {
                    tracing::warn!(sequence, "a result is not in shared memory, or damaged");
                    FailReason::PayloadLost
                })
            }
        };
        frontend.returned(ReturnedResult { sequence, outcome, batch, execution_ns: execution, run });
    }
    taken
}

#[cfg(test)]
mod tests {
    use symphony_net::Net;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::link_over;

    const BOOT: BootId = BootId::new(4);

    struct Nobody;

    impl PayloadFrontend for Nobody {
        fn input(&self, _: u64) -> Option<Bytes> {
            Some(Bytes::from_static(b"input"))
        }

        fn returned(&self, _: ReturnedResult) {}
    }

    /// Has input 1, is making input 2, and never makes input 3.
    struct Making {
        coming: std::sync::Mutex<Option<tokio::sync::oneshot::Receiver<Bytes>>>,
    }

    impl PayloadFrontend for Making {
        fn input(&self, sequence: u64) -> Option<Bytes> {
            (sequence == 1).then(|| Bytes::from_static(b"here"))
        }

        fn pending_input(&self, sequence: u64) -> Option<tokio::sync::oneshot::Receiver<Bytes>> {
            (sequence == 2).then(|| self.coming.lock().unwrap().take()).flatten()
        }

        fn returned(&self, _: ReturnedResult) {}
    }

    #[tokio::test]
    async fn an_input_that_is_being_made_is_waited_for_and_holds_up_nobody_else() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let accepted = Net::plaintext().accept(listener.accept().await.unwrap().0, &[]).await.unwrap();
        let (made, coming) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let frontend = Making { coming: std::sync::Mutex::new(Some(coming)) };
            FrontendEnd::greeted(accepted).await.unwrap().serve(BOOT, &frontend, None).await;
        });
        let backend = Net::plaintext().accept(stream, &[]).await.unwrap();
        let (sender, mut receiver) = link_over::<ToDataServer, FromDataServer>(backend);
        sender.send(hello(false)).unwrap();
        assert!(matches!(receiver.receive().await.unwrap().message, FromDataServer::Welcome { .. }));
        sender.send(ToDataServer::Read { read: 1, sequences: vec![1, 2, 3] }).unwrap();
        sender.send(ToDataServer::Read { read: 2, sequences: vec![1, 3] }).unwrap();
        let first = receiver.receive().await.unwrap();
        assert_eq!(first.message, FromDataServer::Payloads { read: 2, lengths: vec![Some(4), None], waited: 0 });
        // Both reads are with their frontend by now.
        let makes = Duration::from_millis(5);
        tokio::time::sleep(makes).await;
        made.send(Bytes::from_static(b"made")).unwrap();
        let second = receiver.receive().await.unwrap();
        let FromDataServer::Payloads { read: 1, lengths, waited } = second.message else {
            panic!("{:?}", second.message)
        };
        assert_eq!(lengths, [Some(4), Some(4), None]);
        assert!(waited >= makes.as_nanos() as u64, "{waited} ns are not what it took to make it");
        assert_eq!(second.tail, "heremade");
    }

    #[tokio::test]
    async fn a_read_of_what_is_never_made_ends_all_the_same() {
        let (_never, coming) = tokio::sync::oneshot::channel();
        let frontend = Making { coming: std::sync::Mutex::new(Some(coming)) };
        let payloads = wait(inputs_now(&frontend, &[1, 2]), Duration::from_millis(10)).await;
        assert_eq!(payloads, [Some(Bytes::from_static(b"here")), None]);
    }

    /// Otherwise each backend host that loses its power would leave a connection behind for ever.
    #[tokio::test]
    async fn a_backend_that_does_not_answer_any_more_is_let_go() {
        const QUICK: Duration = Duration::from_millis(200);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let accepted = Net::plaintext().accept(listener.accept().await.unwrap().0, &[]).await.unwrap();
        let (sender, mut receiver) =
            link_over::<ToDataServer, FromDataServer>(Net::plaintext().accept(stream, &[]).await.unwrap());
        sender.send(hello(false)).unwrap();
        let mut link = FrontendEnd::greeted(accepted).await.unwrap();
        let (ask_again_after, late) = (QUICK / 10, QUICK / 20);
        link.echo = EchoTimes { ask_again_after, ask_again_max: QUICK, stuck_after: QUICK, late, ..link.echo };
        let mut serving = tokio::spawn(async move { link.serve(BOOT, &Nobody, None).await });
        assert!(matches!(receiver.receive().await.unwrap().message, FromDataServer::Welcome { .. }));
        // It answers as long as it receives.
        let _ = tokio::time::timeout(2 * QUICK, receiver.receive()).await;
        assert!(!serving.is_finished());
        tokio::time::timeout(60 * 5 * QUICK, &mut serving).await.expect("nobody answers").unwrap();
    }

    /// The replies to these messages, until the backend must share, or the link ends.
    async fn hears(required: bool, says: Vec<ToDataServer>) -> Vec<FromDataServer> {
        let inputs = SharedInputs::start(1 << 20, 16, required, CancellationToken::new()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let accepted = Net::plaintext().accept(listener.accept().await.unwrap().0, &[]).await.unwrap();
        let serving = tokio::spawn(async move {
            let link = FrontendEnd::greeted(accepted).await.unwrap();
            link.serve(BOOT, &Nobody, Some(&inputs)).await;
        });
        let backend = Net::plaintext().accept(stream, &[]).await.unwrap();
        let (sender, mut receiver) = link_over::<ToDataServer, FromDataServer>(backend);
        for message in says {
            sender.send(message).unwrap();
        }
        sender.close();
        let mut received = Vec::new();
        while let Ok(frame) = receiver.receive().await {
            received.push(frame.message);
        }
        serving.await.unwrap();
        received
    }

    fn hello(shares: bool) -> ToDataServer {
        ToDataServer::Hello {
            backend: BackendId::new(1),
            boot: BootId::new(2),
            frontend_boot: BOOT,
            shares,
            rdma: None,
        }
    }

    #[tokio::test]
    async fn who_does_not_share_is_refused_where_that_is_required_and_served_elsewhere() {
        let read = || ToDataServer::Read { read: 1, sequences: vec![1] };
        let answer = FromDataServer::Payloads { read: 1, lengths: vec![Some(5)], waited: 0 };
        // It does not want to; it could not; it lies; it says nothing.
        for says in [
            vec![hello(false), read()],
            vec![hello(true), ToDataServer::Joined { shares: false }, read()],
            vec![hello(true), ToDataServer::Joined { shares: true }, read()],
            vec![hello(true), read()],
        ] {
            let received = hears(true, says.clone()).await;
            assert_eq!(received.last(), Some(&FromDataServer::MustShare), "{says:?}: {received:?}");
            assert!(!received.contains(&answer), "{says:?}: {received:?}");
            let received = hears(false, says.clone()).await;
            assert_eq!(received.last(), Some(&answer), "{says:?}: {received:?}");
        }
    }
}
