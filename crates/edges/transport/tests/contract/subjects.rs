//! The transports, each with two frontends at its other end.

use std::sync::Arc;

use symphony_config::{PayloadTransportKind, PayloadsConfig};
use symphony_net::{Authority, Credentials, Identity, Incoming, Net, Port, Role};
use symphony_protocol::view::{FrontendView, View};
use symphony_transport::{FrontendEnd, LinkedPayloads, LocalPayloads, PayloadTransport, ReadPath, SharedInputs};
use symphony_types::{BackendId, BootId, FrontendId};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::test_frontend::TestFrontend;

/// The boot of both frontends.
pub(crate) const BOOT: BootId = BootId::new(4);
pub(crate) const FRONTENDS: [FrontendId; 2] = [FrontendId::new(1), FrontendId::new(2)];

/// A transport under test.
pub(crate) trait Subject: Sized {
    type Transport: PayloadTransport + Clone;

    /// Bytes of each input of a batch of 40 that is large: no single frame holds all of it.
    const LARGE_BYTES: usize = 2 << 20;

    async fn start() -> Self;

    fn transport(&self) -> &Self::Transport;

    fn frontends(&self) -> [&Arc<TestFrontend>; 2];

    /// The process of that frontend dies.
    async fn kill(&mut self, index: usize);

    /// Asserts that this many inputs came by this transport, and none by another.
    fn came(&self, inputs: u64);
}

/// Frontends in the same process.
pub(crate) struct InProcess {
    transport: LocalPayloads,
    frontends: [Arc<TestFrontend>; 2],
}

impl Subject for InProcess {
    type Transport = LocalPayloads;

    async fn start() -> Self {
        let (transport, frontends) = (LocalPayloads::default(), [TestFrontend::new(None), TestFrontend::new(None)]);
        for (id, frontend) in FRONTENDS.into_iter().zip(&frontends) {
            transport.join(id, BOOT, Arc::clone(frontend) as _);
        }
        Self { transport, frontends }
    }

    fn transport(&self) -> &LocalPayloads {
        &self.transport
    }

    fn frontends(&self) -> [&Arc<TestFrontend>; 2] {
        self.frontends.each_ref()
    }

    async fn kill(&mut self, index: usize) {
        self.transport.leave(FRONTENDS[index]);
    }

    fn came(&self, _: u64) {}
}

/// Frontends behind data links.
pub(crate) struct Linked {
    transport: LinkedPayloads,
    frontends: [Arc<TestFrontend>; 2],
    stops: [CancellationToken; 2],
    way: ReadPath,
    _view: watch::Sender<Arc<View>>,
    _pki: Option<tempfile::TempDir>,
}

impl Linked {
    async fn start(kind: PayloadTransportKind, secured: bool) -> Self {
        let way = match kind {
            PayloadTransportKind::Tcp => ReadPath::Tcp,
            PayloadTransportKind::Rdma => ReadPath::Rdma,
            PayloadTransportKind::Auto | PayloadTransportKind::SharedMemory => ReadPath::SharedMemory,
        };
        let pki = secured.then(|| tempfile::tempdir().unwrap());
        let authority = pki.as_ref().map(|dir| Authority::create(dir.path(), "blue").unwrap());
        let net = |role, name: &str| match &authority {
            None => Net::plaintext(),
            Some(authority) => {
                let issued = authority.issue(&Identity::new("blue", role, name).unwrap(), 1).unwrap();
                Net::secured(Arc::new(Credentials::load(issued.files).unwrap()))
            }
        };
        let (mut frontends, mut stops, mut view) = (Vec::new(), Vec::new(), View::default());
        for frontend in FRONTENDS {
            let (listener, stop) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), CancellationToken::new());
            let name = format!("frontend-{frontend}");
            let data_addr = listener.local_addr().unwrap().to_string();
            let shown = FrontendView { name: name.clone(), boot: BOOT, data_addr, ..FrontendView::default() };
            view.frontends.insert(frontend, shown);
            // Smaller than what some promises put there.
            let shared = || SharedInputs::start(16 << 20, 256, true, stop.clone()).unwrap();
            let shared = match way {
                ReadPath::SharedMemory => Some(shared()),
                ReadPath::Rdma => Some(SharedInputs::over_rdma(16 << 20, 256, true, None).unwrap()),
                ReadPath::RdmaSend | ReadPath::Tcp => None,
            };
            let frontend = TestFrontend::new(shared.clone());
            let incoming = Incoming::new(listener, net(Role::Frontend, &name), Port::new("test", &[Role::Backend], 64));
            let serving = serve(incoming, Arc::clone(&frontend), shared);
            let ends = stop.clone();
            tokio::spawn(async move { ends.run_until_cancelled(serving).await });
            frontends.push(frontend);
            stops.push(stop);
        }
        let (view_sender, views) = watch::channel(Arc::new(view));
        let config = PayloadsConfig {
            transport: kind,
            required: true,
            // What is read by RDMA lands there, and the largest input that is to come that way has 1 MiB.
            pool_mb: if way == ReadPath::Rdma { 8 } else { 1 },
            rdma_device: String::new(),
        };
        let (backend, boot) = (BackendId::new(1), BootId::new(2));
        let transport = LinkedPayloads::new(backend, boot, net(Role::Backend, "backend"), config, views);
        // Inputs are shared with the backends that are linked when they arrive.
        for frontend in FRONTENDS {
            assert_eq!(transport.read(frontend, BOOT, vec![0]).await, [None]);
        }
        let (frontends, stops) = (frontends.try_into().unwrap(), stops.try_into().unwrap());
        Self { transport, frontends, stops, way, _view: view_sender, _pki: pki }
    }
}

async fn serve(mut incoming: Incoming, frontend: Arc<TestFrontend>, shared: Option<Arc<SharedInputs>>) {
    // With this future go its links, as with a process.
    let mut links = tokio::task::JoinSet::new();
    while let Some(connection) = incoming.next().await {
        let (frontend, shared) = (Arc::clone(&frontend), shared.clone());
        links.spawn(async move {
            if let Some(link) = FrontendEnd::greeted(connection).await {
                link.serve(BOOT, frontend.as_ref(), shared.as_ref()).await;
            }
        });
    }
}

macro_rules! linked {
    ($($name:ident: $kind:ident, $secured:literal $(, large $large:expr)?;)*) => {$(
        pub(crate) struct $name(Linked);

        impl Subject for $name {
            type Transport = LinkedPayloads;
            $(const LARGE_BYTES: usize = $large;)?

            async fn start() -> Self {
                Self(Linked::start(PayloadTransportKind::$kind, $secured).await)
            }

            fn transport(&self) -> &LinkedPayloads {
                &self.0.transport
            }

            fn frontends(&self) -> [&Arc<TestFrontend>; 2] {
                self.0.frontends.each_ref()
            }

            async fn kill(&mut self, index: usize) {
                self.0.stops[index].cancel();
                // Until the other end has noticed, memory that both have may still be read.
                while self.0.transport.readings().pairs.iter().any(|pair| pair.frontend == FRONTENDS[index]) {
                    tokio::task::yield_now().await;
                }
            }

            fn came(&self, inputs: u64) {
                for (way, counts) in ReadPath::ALL.into_iter().zip(self.0.transport.readings().reads) {
                    assert_eq!(counts.inputs, if way == self.0.way { inputs } else { 0 }, "{way:?}");
                    assert_eq!(counts.times.count() > 0, way == self.0.way && inputs > 0, "{way:?}");
                }
            }
        }
    )*};
}

linked! {
    Tcp: Tcp, false;
    TcpSecured: Tcp, true;
    SharedMemory: SharedMemory, true;
}

// Needs a device: `make test-rdma` has one. That is software on an emulated processor, where 80 MB take longer than a
// read may; what is asked for is asked for in several frames all the same.
#[cfg(feature = "rdma")]
linked! {
    Rdma: Rdma, true, large 256 << 10;
}
