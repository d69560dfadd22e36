//! The frontend's side of the data link: backends READ inputs here and bring results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_net::{Connection, Incoming, PeerInfo, Role};
use symphony_protocol::dispatch::EndReason;
use symphony_transport::{FrontendEnd, PayloadFrontend, ReturnedResult, SharedInputs, ViewReceiver};
use symphony_types::{BackendId, BootId};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::counts::ledger::Ledger;
use crate::requests::request_table::{Ending, RequestTable};

/// How long a backend waits here until the view names it: a leader may give it plans as soon as it has registered, and
/// what it brings or wants before this frontend has heard of it must not be lost. Shorter than a backend waits for its
/// welcome.
const NAMED_WITHIN: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub(crate) struct DataServer {
    pub(crate) boot: BootId,
    pub(crate) table: Arc<RequestTable>,
    pub(crate) ledger: Arc<Ledger>,
    /// Memory that backends of this host read; none if none is shared.
    pub(crate) inputs: Option<Arc<SharedInputs>>,
    /// The names of backends.
    pub(crate) view: ViewReceiver,
    /// The backend at the other end of a link; none before there is a link.
    pub(crate) backend: Option<BackendId>,
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

    /// Whether the peer is the backend that it claims to be. Waits for a backend that this frontend does not know yet.
    async fn is(&self, connection: &PeerInfo, backend: BackendId) -> bool {
        let mut view = self.view.clone();
        // In plaintext everybody is believed.
        let named = view.wait_for(|view| connection.identity.is_none() || view.backends.contains_key(&backend));
        let Ok(Ok(view)) = tokio::time::timeout(NAMED_WITHIN, named).await else { return false };
        let name = view.backends.get(&backend).map_or("", |backend| backend.name.as_str());
        connection.may_be(Role::Backend, name)
    }

    async fn serve(self, backend: Connection) {
        let Some(link) = FrontendEnd::greeted(backend).await else { return };
        let (peer, backend) = (link.peer(), link.backend());
        if !self.is(peer, backend).await {
            return tracing::warn!(%peer, %backend, "a backend presents another one's id, or an unknown one");
        }
        let server = Self { backend: Some(backend), ..self };
        link.serve(server.boot, &server, server.inputs.as_ref()).await;
    }
}

impl PayloadFrontend for DataServer {
    fn input(&self, sequence: u64) -> Option<Bytes> {
        self.table.payload(sequence)
    }

    fn pending_input(&self, sequence: u64) -> Option<oneshot::Receiver<Bytes>> {
        self.table.pending_input(sequence)
    }

    fn returned(&self, ReturnedResult { sequence, outcome, batch, execution_ns, run }: ReturnedResult) {
        let ending = match outcome {
            Ok(payload) => {
                let at = Instant::now();
                Ending::Answer { payload, batch, execution_ns, at, run, backend: self.backend }
            }
            Err(reason) => Ending::NoResult(EndReason::Failed(reason)),
        };
        let first = self.table.end(sequence, ending);
        self.ledger.result(first);
    }
}

#[cfg(test)]
mod tests {
    use symphony_config::{PayloadTransportKind, PayloadsConfig};
    use symphony_net::{Authority, Credentials, Identity, Net, Port};
    use symphony_protocol::data::{FromDataServer, ToDataServer};
    use symphony_protocol::view::{BackendView, FrontendView, View};
    use symphony_transport::{LinkedPayloads, PayloadTransport as _, connect_link};
    use symphony_types::{FrontendId, ModelId, SubclusterId, Token};
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    use super::*;
    use crate::requests::request_table::{OpenRequest, Payload};

    const BOOT: BootId = BootId::new(4);
    const SOON: Duration = Duration::from_secs(60);

    /// A view of one backend, of that name.
    fn view(name: &str) -> Arc<View> {
        let backend = BackendView { name: name.to_owned(), ..BackendView::default() };
        Arc::new(View { backends: [(BackendId::new(1), backend)].into(), ..View::default() })
    }

    #[tokio::test]
    async fn a_backend_is_welcomed_once_the_view_names_it_and_no_other_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::create(dir.path(), "blue").unwrap();
        let net = |role, name| {
            let issued = authority.issue(&Identity::new("blue", role, name).unwrap(), 1).unwrap();
            Net::secured(Arc::new(Credentials::load(issued.files).unwrap()))
        };
        let (frontend, backend) = (net(Role::Frontend, "f"), net(Role::Backend, "b"));
        for (name, welcome) in [("b", true), ("c", false)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap().to_string();
            let (view_sender, views) = watch::channel(Arc::default());
            let (table, ledger) = (Arc::default(), Arc::default());
            let incoming = Incoming::new(listener, frontend.clone(), Port::new("test", &[Role::Backend], 256));
            let server = DataServer { boot: BOOT, table, ledger, inputs: None, view: views, backend: None };
            tokio::spawn(server.accept(incoming, CancellationToken::new()));

            let role = Role::Frontend.into();
            let (sender, mut receiver) =
                connect_link::<ToDataServer, FromDataServer>(&backend, &addr, &role).await.unwrap();
            let (backend, boot) = (BackendId::new(1), BootId::new(2));
            let hello = ToDataServer::Hello { backend, boot, frontend_boot: BOOT, shares: false, rdma: None };
            sender.send(hello).unwrap();
            let early = tokio::time::timeout(NAMED_WITHIN / 5, receiver.receive()).await;
            assert!(early.is_err(), "nobody has told the frontend of it: {early:?}");
            view_sender.send_replace(view(name));
            let answer = tokio::time::timeout(SOON, receiver.receive()).await.unwrap();
            let welcomed = answer
                .is_ok_and(|frame| frame.message == FromDataServer::Welcome { boot: BOOT, sharing: None, rdma: None });
            assert_eq!(welcomed, welcome, "the view names {name}");
        }
    }

    #[tokio::test]
    async fn an_input_is_in_shared_memory_until_its_request_ends() {
        let ended = CancellationToken::new();
        let inputs = SharedInputs::start(1 << 20, 16, true, ended.clone()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let data_addr = listener.local_addr().unwrap().to_string();
        let (table, ledger) = (Arc::<RequestTable>::default(), Arc::default());
        let (_told, views) = watch::channel(view("b"));
        let shared = Some(Arc::clone(&inputs));
        let server =
            DataServer { boot: BOOT, table: Arc::clone(&table), ledger, inputs: shared, view: views, backend: None };
        let incoming = Incoming::new(listener, Net::plaintext(), Port::new("test", &[Role::Backend], 256));
        tokio::spawn(server.accept(incoming, ended.clone()));

        let frontend = FrontendId::new(3);
        let seen = FrontendView { boot: BOOT, data_addr, ..FrontendView::default() };
        let seen = View { frontends: [(frontend, seen)].into(), ..View::default() };
        let (_told, seen) = watch::channel(Arc::new(seen));
        let config = PayloadsConfig {
            transport: PayloadTransportKind::SharedMemory,
            required: true,
            pool_mb: 1,
            rdma_device: String::new(),
        };
        let (backend, boot) = (BackendId::new(1), BootId::new(2));
        let backend = LinkedPayloads::new(backend, boot, Net::plaintext(), config, seen);

        let request = |input: &'static str| {
            let (waiter, _) = tokio::sync::oneshot::channel();
            OpenRequest {
                model: ModelId::new(1),
                subcluster: SubclusterId::new(1),
                items: 1,
                weight: symphony_types::RequestValue::ONE,
                payload: Payload::Here(Bytes::from_static(input.as_bytes())),
                shared: None,
                read: false,
                is_stage: false,
                hop: None,
                deadline: Instant::now(),
                withheld: false,
                announced: Token::default(),
                attempt: 0,
                panics: 0,
                waiter,
            }
        };
        let early = table.insert(request("early"));
        table.share(early, &inputs);
        assert_eq!(inputs.used_bytes(), 0, "nobody would read it there");
        assert_eq!(backend.read(frontend, BOOT, vec![early]).await, [Some(Bytes::from("early"))]);
        let late = table.insert(request("late"));
        table.share(late, &inputs);
        assert!(inputs.used_bytes() > 0);
        assert_eq!(backend.read(frontend, BOOT, vec![late]).await, [Some(Bytes::from("late"))]);
        assert_eq!(backend.readings().reads.map(|counts| counts.inputs), [1, 0, 0, 1], "one by each way");
        assert!(table.end(late, Ending::NoResult(EndReason::Failed(symphony_types::FailReason::NoAnswer))));
        assert_eq!(inputs.used_bytes(), 0);
        assert_eq!(backend.read(frontend, BOOT, vec![late, early]).await, [None, Some(Bytes::from("early"))]);
        table.share(late, &inputs);
        assert_eq!(inputs.used_bytes(), 0, "it had ended");
    }
}
