//! A backend with one GPU: the production fence, a queue of plans, and what it remembers of those that ended.

use std::collections::VecDeque;

use symphony_types::{GPU_PLANS_MAX, Token};

use crate::broken::Broken;
use crate::fence::Fence;
use crate::log::{Entry, Log, backend, boot_id};
use crate::world::{Order, Request, ToBackend, ToLeader, World};
use crate::{Boot, Mutation, Scope};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Backend {
    /// Boots of the process. The registered boot is behind it where a restart does not register.
    pub(crate) incarnation: Boot,
    pub(crate) boot: Boot,
    pub(crate) fence: Fence,
    pub(crate) pending: VecDeque<(Order, Request)>,
    pub(crate) recent: Vec<Request>,
    /// Observer: the latest assignment that registered, sealed, or gave an order that was taken.
    latest: u64,
}

impl Backend {
    pub(crate) fn new(log: &Log, which: u8) -> Self {
        Self::born(log, which, 0, 0)
    }

    fn born(log: &Log, which: u8, incarnation: Boot, boot: Boot) -> Self {
        // What its registration answered: the binding.
        let gpu = backend(log.head(), which).and_then(|b| b.gpus.first());
        let promised = gpu.map(|gpu| gpu.binding).unwrap_or_default();
        let fence = Fence::new(boot_id(boot), promised, GPU_PLANS_MAX);
        Self { incarnation, boot, fence, pending: VecDeque::new(), recent: Vec::new(), latest: promised.get() }
    }
}

impl World {
    /// A backend dies and is back: its memory is gone, its links are reset.
    pub(crate) fn restart_backend(&mut self, scope: &Scope, which: u8) {
        let old = &self.backends[which as usize];
        let (incarnation, latest) = (old.incarnation + 1, old.latest);
        let mut boot = old.boot;
        if !scope.has(Mutation::RestartWithoutRegistration) {
            boot += 1;
            self.log.append(Entry::BackendUp(which, boot));
        }
        let new = Backend::born(&self.log, which, incarnation, boot);
        self.backends[which as usize] = Backend { latest: new.latest.max(latest), ..new };
        for connection in self.connections.iter_mut().filter(|c| c.backend == which) {
            connection.reset = true;
            connection.to_backend.clear();
            connection.to_leader.clear();
        }
        self.sweep();
    }

    /// A message arrives on a connection.
    pub(crate) fn backend_hears(&mut self, scope: &Scope, id: u8, message: ToBackend) {
        match message {
            ToBackend::Seal => self.seal(scope, id),
            ToBackend::Execute { sequence, request, informed } => self.execute(scope, id, sequence, request, informed),
        }
        self.sweep();
    }

    fn seal(&mut self, scope: &Scope, id: u8) {
        let Some(connection) = self.connections.iter_mut().find(|c| c.id == id) else { return };
        let backend = &mut self.backends[connection.backend as usize];
        let promised = backend.fence.seal(u64::from(id), Token::new(connection.token), scope.mutation);
        connection.granted = promised.get() == connection.token;
        let latest = connection.granted_at >= backend.latest;
        if connection.granted {
            backend.latest = backend.latest.max(connection.granted_at);
            connection.reported = backend.pending.iter().map(|(order, _)| *order).collect();
        }
        if connection.open {
            connection.to_leader.push(ToLeader::Sealed {
                boot: backend.boot,
                promised: promised.get(),
                in_flight: backend.pending.iter().map(|&(_, request)| request).collect(),
                finished: backend.recent.clone(),
            });
        }
        let (granted, which) = (connection.granted, connection.backend);
        if granted {
            // The former holder of the promise no longer has it; the observer expects nothing of its connection.
            for other in self.connections.iter_mut().filter(|c| c.backend == which && c.id != id) {
                other.granted = false;
            }
        } else if latest {
            self.breaks(Broken::LatestLeadNotSealed);
        }
    }

    fn execute(&mut self, scope: &Scope, id: u8, sequence: u8, request: Request, informed: bool) {
        let Some(connection) = self.connections.iter_mut().find(|c| c.id == id) else { return };
        let backend = &mut self.backends[connection.backend as usize];
        let taken = backend.fence.accept(
            u64::from(id),
            Token::new(connection.token),
            boot_id(connection.expected),
            u64::from(sequence),
            scope.mutation,
        );
        let mut broken = None;
        match taken {
            Ok(()) => {
                let known = |order: &Order| order.connection == id || informed && connection.reported.contains(order);
                if connection.granted_at < backend.latest {
                    broken = Some(Broken::OldLeadObeyed);
                } else if sequence != connection.taken + 1 {
                    broken = Some(Broken::OrderRunAgain);
                } else if !backend.pending.iter().all(|(order, _)| known(order)) {
                    broken = Some(Broken::PlannedBlindly);
                }
                connection.taken = sequence;
                backend.latest = backend.latest.max(connection.granted_at);
                backend.pending.push_back((Order { connection: id, sequence }, request));
            }
            Err(refusal) => {
                use symphony_protocol::execute::Refusal;
                let fenced = matches!(refusal, Refusal::Fenced { .. });
                let in_turn = sequence == connection.taken + 1;
                if connection.granted && in_turn && refusal != Refusal::QueueFull {
                    broken = Some(Broken::PromiseNotKept);
                }
                if connection.open {
                    connection.to_leader.push(ToLeader::Refused { sequence, fenced });
                }
            }
        }
        if let Some(broken) = broken {
            self.breaks(broken);
        }
    }

    /// The GPU is done with its first plan: the result leaves, and the leader is notified.
    pub(crate) fn finish(&mut self, which: u8) {
        let backend = &mut self.backends[which as usize];
        let Some((order, request)) = backend.pending.pop_front() else { return };
        backend.fence.finished();
        backend.recent.push(request);
        backend.recent.sort_unstable();
        backend.recent.dedup();
        self.results.push(request);
        self.results.sort_unstable();
        if let Some(connection) = self.connection(order.connection).filter(|c| c.open) {
            connection.to_leader.push(ToLeader::Done { sequence: order.sequence });
        }
    }
}
