//! Frontends as far as a pull needs them, and the transport that reaches them.

use std::sync::Arc;

use anyhow::{Result, ensure};
use bytes::Bytes;
use symphony_config::{PayloadTransportKind, PayloadsConfig};
use symphony_net::{Authority, Credentials, Identity, Incoming, Net, Port, Role};
use symphony_protocol::view::{FrontendView, View};
use symphony_transport::{
    FrontendEnd, LinkedPayloads, PayloadFrontend, PayloadTransport as _, PlacedInput, ReturnedResult, SharedInputs,
};
use symphony_types::{BackendId, BootId, FrontendId};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const BOOT: BootId = BootId::new(1);
const BACKEND: BackendId = BackendId::new(1);
/// Connections to one owner: one is used.
const CONNECTIONS_MAX: usize = 4;

/// The inputs of one frontend, numbered from 0.
struct Owner(Vec<Bytes>);

impl PayloadFrontend for Owner {
    fn input(&self, sequence: u64) -> Option<Bytes> {
        self.0.get(usize::try_from(sequence).ok()?).cloned()
    }

    fn returned(&self, _: ReturnedResult) {}
}

/// Some frontends, and a backend's way to them.
pub(super) struct Owners {
    transport: LinkedPayloads,
    frontends: Vec<FrontendId>,
    sharing: Vec<Option<Arc<SharedInputs>>>,
    ended: CancellationToken,
    placed: Vec<PlacedInput>,
    _view: watch::Sender<Arc<View>>,
    _pki: tempfile::TempDir,
}

impl Owners {
    /// One frontend for each list of inputs. Its work is done by the runtime that this is called in.
    pub(super) async fn start(inputs: &[Vec<Bytes>], kind: PayloadTransportKind, secured: bool) -> Result<Self> {
        let pki = tempfile::tempdir()?;
        let authority = Authority::create(pki.path(), "pull")?;
        let net = |role, name: &str| {
            let issued = authority.issue(&Identity::new("pull", role, name)?, 1)?;
            Ok::<_, anyhow::Error>(match secured {
                true => Net::secured(Arc::new(Credentials::load(issued.files)?)),
                false => Net::plaintext(),
            })
        };
        let ended = CancellationToken::new();
        let (mut view, mut frontends, mut sharing) = (View::default(), Vec::new(), Vec::new());
        for (id, own) in (1..).zip(inputs) {
            let (id, name) = (FrontendId::new(id), format!("frontend-{id}"));
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let data_addr = listener.local_addr()?.to_string();
            view.frontends.insert(id, FrontendView { name: name.clone(), boot: BOOT, data_addr, ..Default::default() });
            let bytes = own.iter().map(|input| input.len().next_power_of_two() as u64).sum::<u64>();
            let shared = match kind {
                PayloadTransportKind::Tcp => None,
                PayloadTransportKind::Rdma => {
                    Some(SharedInputs::over_rdma(2 * bytes + (1 << 20), own.len(), true, None)?)
                }
                _ => Some(SharedInputs::start(2 * bytes + (1 << 20), own.len(), true, ended.clone())?),
            };
            let incoming = Incoming::new(
                listener,
                net(Role::Frontend, &name)?,
                Port::new("pull", &[Role::Backend], CONNECTIONS_MAX),
            );
            let serving = serve(incoming, Arc::new(Owner(own.clone())), shared.clone());
            let ends = ended.clone();
            tokio::spawn(async move { ends.run_until_cancelled(serving).await });
            frontends.push(id);
            sharing.push(shared);
        }
        let (view_sender, views) = watch::channel(Arc::new(view));
        let config = PayloadsConfig {
            transport: kind,
            required: true,
            // What is read by RDMA lands there, in blocks of powers of two.
            pool_mb: inputs
                .iter()
                .flatten()
                .map(|input| input.len().next_power_of_two() as u64)
                .sum::<u64>()
                .div_ceil(1 << 20)
                + 1,
            rdma_device: String::new(),
        };
        let transport = LinkedPayloads::new(BACKEND, BOOT, net(Role::Backend, "backend")?, config, views);
        Ok(Self { transport, frontends, sharing, ended, placed: Vec::new(), _view: view_sender, _pki: pki })
    }

    /// Makes the links; their work at the backend's side is done by the runtime that this is called in.
    pub(super) async fn link(mut self, inputs: &[Vec<Bytes>]) -> Result<Self> {
        let first = self.pull(0).await;
        ensure!(first.iter().all(Option::is_some), "the first read makes the links");
        // Inputs are shared with the backends that are linked when they come.
        let placed = self.sharing.iter().zip(inputs).flat_map(|(shared, own)| {
            let shared = shared.as_ref();
            (0..).zip(own).filter_map(move |(sequence, input)| shared?.put(sequence, input))
        });
        self.placed = placed.collect();
        Ok(self)
    }

    /// Input `sequence` of every frontend, all at once.
    pub(super) async fn pull(&self, sequence: u64) -> Vec<Option<Bytes>> {
        let reads = self.frontends.iter().map(|&frontend| self.transport.read(frontend, BOOT, vec![sequence]));
        futures::future::join_all(reads).await.concat()
    }

    pub(super) const fn transport(&self) -> &LinkedPayloads {
        &self.transport
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

async fn serve(mut incoming: Incoming, owner: Arc<Owner>, shared: Option<Arc<SharedInputs>>) {
    let mut links = tokio::task::JoinSet::new();
    while let Some(connection) = incoming.next().await {
        let (owner, shared) = (Arc::clone(&owner), shared.clone());
        links.spawn(async move {
            if let Some(link) = FrontendEnd::greeted(connection).await {
                link.serve(BOOT, owner.as_ref(), shared.as_ref()).await;
            }
        });
    }
}
