//! Fake executors with behaviour set by the test, on the port of all executors.

use std::fmt;

use symphony_executor::{BatchInputs, ExecuteError, ModelExecutor, StagedExecutor};
use symphony_types::Signature;

use super::scene::emulated;

/// An emulated GPU with a test's interference.
#[derive(Debug)]
pub(super) struct Meddled<M> {
    /// It runs first.
    with: M,
    executor: Box<dyn ModelExecutor>,
}

/// A test's interference.
pub(super) trait Meddles: Send + fmt::Debug {
    fn run(
        &mut self,
        executor: &mut dyn ModelExecutor,
        batch: &BatchInputs<'_>,
        outputs: &mut Vec<Vec<u8>>,
    ) -> Result<(), ExecuteError> {
        executor.run(batch, outputs)
    }
}

impl<M: Meddles + 'static> Meddled<M> {
    pub(super) fn with(with: M) -> Box<dyn ModelExecutor> {
        Box::new(Self { with, executor: emulated() })
    }
}

impl<M: Meddles> ModelExecutor for Meddled<M> {
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        self.with.run(self.executor.as_mut(), batch, outputs)
    }

    fn signature(&self) -> &Signature {
        self.executor.signature()
    }

    fn batch_max(&self) -> u32 {
        self.executor.batch_max()
    }

    fn kind(&self) -> &'static str {
        "meddled with"
    }
}

/// Accepts and returns what an emulated GPU does, and runs in steps only.
#[derive(Debug)]
pub(super) struct InSteps<S> {
    like: Box<dyn ModelExecutor>,
    steps: S,
}

impl<S: StagedExecutor + Send + fmt::Debug + 'static> InSteps<S> {
    pub(super) fn of(steps: S) -> Box<dyn ModelExecutor> {
        Box::new(Self { like: emulated(), steps })
    }
}

impl<S: StagedExecutor + Send + fmt::Debug> ModelExecutor for InSteps<S> {
    fn run(&mut self, _: &BatchInputs<'_>, _: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        unreachable!("it is run in steps")
    }

    fn signature(&self) -> &Signature {
        self.like.signature()
    }

    fn batch_max(&self) -> u32 {
        self.like.batch_max()
    }

    fn kind(&self) -> &'static str {
        "in steps"
    }

    fn in_steps(&mut self) -> Option<&mut dyn StagedExecutor> {
        Some(&mut self.steps)
    }
}
