//! The production fence of a GPU, as it is or with a bug planted around it.

use symphony_backend::{Connection, GpuFence};
use symphony_protocol::execute::Refusal;
use symphony_types::{BootId, Token};

use crate::mutation::Mutation;

/// A [`GpuFence`]. Bugs are planted by lying to it or by not asking it, so that no second copy of its rules exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fence {
    real: GpuFence,
    boot: BootId,
    promised: Token,
    queued_max: u32,
}

impl Fence {
    pub(crate) const fn new(boot: BootId, promised: Token, queued_max: u32) -> Self {
        Self { real: GpuFence::new(boot, promised, queued_max), boot, promised, queued_max }
    }

    pub(crate) fn seal(&mut self, by: Connection, token: Token, mutation: Option<Mutation>) -> Token {
        let asks = match mutation {
            Some(Mutation::SealOnlyAbove) => token > self.promised,
            Some(Mutation::SealOnlyUpTo) => token <= self.promised,
            _ => true,
        };
        if mutation == Some(Mutation::SealAnything) && token < self.promised {
            self.real = GpuFence::new(self.boot, token, self.queued_max);
        }
        if mutation == Some(Mutation::SealAgainCountsAnew) && token == self.promised {
            // A fence without this connection's seal takes it for a new one.
            self.real = GpuFence::new(self.boot, token, self.queued_max);
        }
        if asks {
            self.promised = self.real.seal(by, token);
        }
        self.promised
    }

    pub(crate) fn accept(
        &mut self,
        by: Connection,
        token: Token,
        boot: BootId,
        sequence: u64,
        mutation: Option<Mutation>,
    ) -> Result<(), Refusal> {
        let boot = if mutation == Some(Mutation::NoBootCheck) { self.boot } else { boot };
        match self.real.accept(by, token, boot, sequence) {
            Err(Refusal::OutOfSequence { expected }) if mutation == Some(Mutation::NoSequenceCheck) => {
                self.real.accept(by, token, boot, expected)
            }
            Err(Refusal::NeedSeal { promised }) if mutation == Some(Mutation::NoSeal) && token >= promised => {
                self.promised = self.real.seal(by, token);
                self.real.accept(by, token, boot, sequence)
            }
            answer => answer,
        }
    }

    pub(crate) const fn finished(&mut self) {
        self.real.finished();
    }
}
