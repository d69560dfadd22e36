//! How far a search goes: what may go wrong, and how often.

use crate::mutation::Mutation;

/// Bounds of the explored worlds. Two schedulers, one or two backends of one GPU each, one frontend; within these
/// numbers everything happens in every order.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Backends, at most [`BACKENDS`](crate::BACKENDS).
    pub backends: u8,
    /// Requests of each boot of the frontend.
    pub requests: u8,
    /// Schedulers declared down, rightly or not.
    pub node_downs: u8,
    /// Schedulers that crash and are back at once.
    pub node_restarts: u8,
    /// Backends declared down, rightly or not.
    pub backend_downs: u8,
    /// Backends that crash and are back at once.
    pub backend_restarts: u8,
    /// Frontends that crash and are back at once.
    pub frontend_restarts: u8,
    /// Connections cut, on the way of the leader: what it sent may still arrive.
    pub cuts: u8,
    /// Messages lost. On the execute link only if it is unordered; otherwise the link is cut instead.
    pub losses: u8,
    /// Messages doubled. On the execute link only if it is unordered.
    pub doubles: u8,
    /// Requests whose deadline passes before their answer.
    pub deadlines: u8,
    /// Linearizable reads.
    pub reads: u8,
    /// Whether messages of one connection may overtake each other, as on a network worse than TCP.
    pub unordered: bool,
    /// Connections made in all: a scheduler with an old view tries for ever.
    pub connections_max: u8,
    /// The bug planted, if any.
    pub mutation: Option<Mutation>,
}

impl Scope {
    /// One request or more and nothing that goes wrong.
    pub const CALM: Self = Self {
        backends: 2,
        requests: 1,
        node_downs: 0,
        node_restarts: 0,
        backend_downs: 0,
        backend_restarts: 0,
        frontend_restarts: 0,
        cuts: 0,
        losses: 0,
        doubles: 0,
        deadlines: 0,
        reads: 0,
        unordered: false,
        connections_max: 6,
        mutation: None,
    };

    /// This scope, with a bug.
    #[must_use]
    pub const fn with(self, mutation: Mutation) -> Self {
        Self { mutation: Some(mutation), ..self }
    }

    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
