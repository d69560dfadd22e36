//! A state of the model: every process, every message under way, and what an observer of everything remembers.

use std::collections::BTreeSet;

use crate::backend::Backend;
use crate::broken::Broken;
use crate::frontend::Frontend;
use crate::leader::Scheduler;
use crate::log::Log;
use crate::{BACKENDS, Boot, NODES, Scope};

/// A request: a boot of the frontend and the number it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) boot: Boot,
    pub(crate) number: u8,
}

/// An order of a leader: its connection, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Order {
    pub(crate) connection: u8,
    pub(crate) sequence: u8,
}

/// Leader to backend. A seal asks for the connection's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ToBackend {
    Seal,
    /// `informed`: the leader had the answer to its seal when it sent this; only the observer reads it.
    Execute {
        sequence: u8,
        request: Request,
        informed: bool,
    },
}

/// Backend to leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ToLeader {
    Welcome { boot: Boot },
    Sealed { boot: Boot, promised: u64, in_flight: Vec<Request>, finished: Vec<Request> },
    Done { sequence: u8 },
    Refused { sequence: u8, fenced: bool },
}

/// An execute link from one lead to one boot of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Connection {
    pub(crate) id: u8,
    pub(crate) node: u8,
    pub(crate) backend: u8,
    /// The boot that accepted it.
    pub(crate) boot: Boot,
    /// The boot that the leader means.
    pub(crate) expected: Boot,
    /// Log index of the leader's assignment.
    pub(crate) since: u8,
    /// Observer: log index that granted the GPU to the lead; the truth about which lead is later, whatever the token
    /// says.
    pub(crate) granted_at: u64,
    pub(crate) token: u64,
    /// The leader has not let go of it. What it sent before may still arrive.
    pub(crate) open: bool,
    /// The backend has died; the leader has not noticed.
    pub(crate) reset: bool,
    pub(crate) to_backend: Vec<ToBackend>,
    pub(crate) to_leader: Vec<ToLeader>,
    /// Observer: the promise was given, and the orders that the answer named.
    pub(crate) granted: bool,
    pub(crate) reported: Vec<Order>,
    /// Observer: orders taken so far.
    pub(crate) taken: u8,
}

/// Requests on the way to a leader, on a frontend's link.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Announcement {
    pub(crate) node: u8,
    pub(crate) link: u8,
    pub(crate) requests: Vec<Request>,
    pub(crate) redriven: bool,
}

/// What has gone wrong so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Spent {
    pub(crate) node_downs: u8,
    pub(crate) node_restarts: u8,
    pub(crate) backend_downs: u8,
    pub(crate) backend_restarts: u8,
    pub(crate) frontend_restarts: u8,
    pub(crate) cuts: u8,
    pub(crate) losses: u8,
    pub(crate) doubles: u8,
    pub(crate) deadlines: u8,
    pub(crate) reads: u8,
    pub(crate) connections: u8,
    pub(crate) links: u8,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(crate) log: Log,
    pub(crate) schedulers: [Scheduler; NODES],
    pub(crate) backends: [Backend; BACKENDS],
    pub(crate) frontend: Frontend,
    pub(crate) connections: Vec<Connection>,
    pub(crate) announcements: BTreeSet<Announcement>,
    /// Results under way to the frontend.
    pub(crate) results: Vec<Request>,
    /// A read under way: the replica that serves it, and what had been agreed on when it began.
    pub(crate) read: Option<(u8, u8)>,
    /// Observer: the leaders by token.
    pub(crate) led: Vec<(u64, u8, Boot)>,
    pub(crate) spent: Spent,
    /// Something that the model is meant to reach: a request announced again was answered, two leads gave orders.
    pub(crate) redriven_answered: bool,
    pub(crate) broken: Option<Broken>,
}

impl World {
    pub(crate) fn founded(scope: &Scope) -> Self {
        let log = Log::founded(scope.backends);
        let mut world = Self {
            schedulers: std::array::from_fn(|_| Scheduler::new(log.last())),
            backends: std::array::from_fn(|backend| Backend::new(&log, backend as u8)),
            frontend: Frontend::new(0, log.last(), scope.requests),
            log,
            connections: Vec::new(),
            announcements: BTreeSet::new(),
            results: Vec::new(),
            read: None,
            led: Vec::new(),
            spent: Spent::default(),
            redriven_answered: false,
            broken: None,
        };
        for node in 0..NODES {
            world.follow(scope, node as u8);
        }
        world
    }

    /// The first broken promise is reported.
    pub(crate) fn breaks(&mut self, broken: Broken) {
        self.broken = self.broken.or(Some(broken));
    }

    pub(crate) fn connection(&mut self, id: u8) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.id == id)
    }

    /// Forgets connections that can say nothing any more.
    pub(crate) fn sweep(&mut self) {
        self.connections.retain(|c| c.open || !c.to_backend.is_empty() && !c.reset);
    }
}
