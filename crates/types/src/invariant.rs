//! The catalogue of invariants (docs/internals/invariants.md): an id and a sentence each. The predicates stand next to
//! the state that they check; every violation is reported under one of these names.

use std::fmt;

/// A property that holds in the simulator, in tests and in production.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// A GPU never has two overlapping batch plans.
    S1,
    /// A dispatched batch is predicted to meet its earliest deadline.
    S2,
    /// An accepted request has exactly one outcome.
    S3,
    /// A grant is used or returned.
    S4,
    /// Counts and queues stay within their limits.
    S5,
    /// Epochs and tokens only grow.
    C1,
    /// In an epoch a GPU and a model belong to one sub-cluster.
    C2,
    /// A plan fits memory.
    C3,
    /// Solving again from the adopted plan changes nothing.
    C4,
    /// No frontend routes by an epoch that the leader has not adopted.
    C5,
    /// Equal applied index, equal state bytes.
    C6,
    /// At most one leader per sub-cluster is obeyed at any time.
    C7,
    /// Backends of at most one cluster are given a request's input.
    F1,
    /// The federation's plan only grows, and a model has one home in it.
    F2,
    /// A cluster unloads a model only if it is not the model's home, and no copy is forgotten.
    F3,
    /// Memory of a device's pipeline is reused only after its previous use has ended.
    D1,
    /// A batch on a device is computed from its own inputs, and answered with its own outputs.
    D2,
    /// No stage request outlives the request that it is part of.
    P1,
    /// No stage's deadline lies beyond its request's less what is needed downstream.
    P2,
    /// A stage's result is used once.
    P3,
}

impl Invariant {
    /// Every invariant, in order.
    pub const ALL: [Self; 20] = [
        Self::S1,
        Self::S2,
        Self::S3,
        Self::S4,
        Self::S5,
        Self::C1,
        Self::C2,
        Self::C3,
        Self::C4,
        Self::C5,
        Self::C6,
        Self::C7,
        Self::F1,
        Self::F2,
        Self::F3,
        Self::D1,
        Self::D2,
        Self::P1,
        Self::P2,
        Self::P3,
    ];

    /// The stable id, also the metric label.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::S1 => "S1",
            Self::S2 => "S2",
            Self::S3 => "S3",
            Self::S4 => "S4",
            Self::S5 => "S5",
            Self::C1 => "C1",
            Self::C2 => "C2",
            Self::C3 => "C3",
            Self::C4 => "C4",
            Self::C5 => "C5",
            Self::C6 => "C6",
            Self::C7 => "C7",
            Self::F1 => "F1",
            Self::F2 => "F2",
            Self::F3 => "F3",
            Self::D1 => "D1",
            Self::D2 => "D2",
            Self::P1 => "P1",
            Self::P2 => "P2",
            Self::P3 => "P3",
        }
    }

    /// The property, in one sentence.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::S1 => "a GPU never has two overlapping batch plans",
            Self::S2 => "a dispatched batch is predicted to meet its earliest deadline",
            Self::S3 => "an accepted request has exactly one outcome",
            Self::S4 => "a grant is used or returned",
            Self::S5 => "counts and queues stay within their limits",
            Self::C1 => "epochs and tokens only grow",
            Self::C2 => "in an epoch a GPU and a model belong to one sub-cluster",
            Self::C3 => "a plan fits memory",
            Self::C4 => "solving again from the adopted plan changes nothing",
            Self::C5 => "no frontend routes by an epoch that the leader has not adopted",
            Self::C6 => "equal applied index, equal state bytes",
            Self::C7 => "at most one leader per sub-cluster is obeyed at any time",
            Self::F1 => "backends of at most one cluster are given a request's input",
            Self::F2 => "the federation's plan only grows, and a model has one home in it",
            Self::F3 => "a cluster lets go of a model only where it is not at home, and no copy is forgotten",
            Self::D1 => "a memory of a device's pipeline is used again only after what used it before",
            Self::D2 => "a batch on a device is computed from its own inputs, and answered with its own outputs",
            Self::P1 => "no stage request outlives the request that it is part of",
            Self::P2 => "no stage's deadline lies beyond its request's less what is needed downstream",
            Self::P3 => "a stage's result is used once",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id(), self.sentence())
    }
}
