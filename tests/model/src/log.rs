//! The replicated log as one sequence that every process appends to: Raft's promise, without its protocol.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use symphony_cluster_state::{
    Backend, BackendRegistration, ClusterState, Command, FrontendRegistration, GpuOffer, NodeRegistration, Reply,
    Subcluster,
};
use symphony_types::{BackendId, BootId, NodeId, SubclusterId, Token};

use crate::{Boot, NODES};

const SUBCLUSTER: &str = "s";

/// An entry. Nodes and backends are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A scheduler registers.
    NodeUp(u8, Boot),
    /// A scheduler is declared down.
    NodeDown(u8, Boot),
    /// A backend registers.
    BackendUp(u8, Boot),
    /// A backend is declared down.
    BackendDown(u8, Boot),
    /// The frontend registers.
    FrontendUp(Boot),
}

/// The log, and the production state after every entry. States follow from entries, so only these are compared.
#[derive(Clone)]
pub struct Log {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    entries: Vec<Entry>,
    states: Vec<Arc<ClusterState>>,
}

impl Log {
    /// All processes have registered; node 0 leads.
    pub(crate) fn founded(backends: u8) -> Self {
        let mut log = Self { inner: Arc::new(Inner { entries: Vec::new(), states: vec![Arc::default()] }) };
        for node in 0..NODES {
            log.append(Entry::NodeUp(node as u8, 0));
        }
        for backend in 0..backends {
            log.append(Entry::BackendUp(backend, 0));
        }
        log.append(Entry::FrontendUp(0));
        log
    }

    /// Index of the last entry.
    pub(crate) fn last(&self) -> u8 {
        self.inner.entries.len() as u8
    }

    /// The state after entry `index`.
    pub(crate) fn state(&self, index: u8) -> &ClusterState {
        &self.inner.states[index as usize]
    }

    /// The state after everything.
    pub(crate) fn head(&self) -> &ClusterState {
        self.state(self.last())
    }

    /// Agrees on an entry and applies it: the production code decides what it means. Nothing if it was refused.
    pub(crate) fn append(&mut self, entry: Entry) -> Option<Reply> {
        let inner = Arc::make_mut(&mut self.inner);
        let mut state = ClusterState::clone(&inner.states[inner.entries.len()]);
        inner.entries.push(entry);
        let reply = state.apply(inner.entries.len() as u64, &entry.command()).outcome.ok();
        inner.states.push(Arc::new(state));
        reply
    }
}

impl Entry {
    fn command(self) -> Command {
        match self {
            Self::NodeUp(node, boot) => Command::RegisterNode(NodeRegistration {
                node: node_id(node),
                boot: boot_id(boot),
                control_addr: format!("n{node}:1"),
                dispatch_addr: format!("n{node}:2"),
                beat_addr: format!("n{node}:3"),
                disk: 1,
                avoid: None,
            }),
            Self::NodeDown(node, boot) => Command::NodeDown { node: node_id(node), boot: boot_id(boot), avoid: None },
            Self::BackendUp(backend, boot) => Command::RegisterBackend(BackendRegistration {
                name: format!("b{backend}"),
                boot: boot_id(boot),
                exec_addr: format!("b{backend}:1"),
                subcluster: SUBCLUSTER.into(),
                executor: "emulated".into(),
                gpus: vec![GpuOffer { kind: "gpu".into(), memory_bytes: 0 }],
                avoid: None,
            }),
            Self::BackendDown(backend, boot) => {
                Command::BackendDown { backend: backend_id(backend), boot: boot_id(boot) }
            }
            Self::FrontendUp(boot) => Command::RegisterFrontend(FrontendRegistration {
                name: "f".into(),
                boot: boot_id(boot),
                data_addr: "f:1".into(),
                console_addr: "f:2".into(),
            }),
        }
    }
}

pub(crate) const fn node_id(node: u8) -> NodeId {
    NodeId::new(node as u64 + 1)
}

/// Backends register in this order, which gives them these ids.
const fn backend_id(backend: u8) -> BackendId {
    BackendId::new(backend as u32 + 1)
}

/// Zero is no boot.
pub(crate) const fn boot_id(boot: Boot) -> BootId {
    BootId::new(boot as u64 + 1)
}

/// The one sub-cluster of a state.
pub(crate) fn subcluster(state: &ClusterState) -> Option<&Subcluster> {
    state.subclusters().get(&SubclusterId::new(1))
}

/// A backend of a state.
pub(crate) fn backend(state: &ClusterState, backend: u8) -> Option<&Backend> {
    state.backends().get(&backend_id(backend))
}

/// The token of a backend's GPU, as `View::gpu_token` has it: the younger of assignment and binding.
pub(crate) fn gpu_token(state: &ClusterState, of: u8, assigned: Token) -> Token {
    let binding = backend(state, of).and_then(|b| b.gpus.first()).map_or(Token::default(), |gpu| gpu.binding);
    binding.max(assigned)
}

impl PartialEq for Log {
    fn eq(&self, other: &Self) -> bool {
        self.inner.entries == other.inner.entries
    }
}

impl Eq for Log {}

impl Hash for Log {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.entries.hash(state);
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.inner.entries).finish()
    }
}
