//! Fake executors with behaviour set by the test, on the port of all executors.

use std::fmt;
use std::sync::{Arc, Mutex};

use symphony_executor::{
    BatchInputs, ExecuteError, MemoryUse, ModelExecutor, PartShares, Segment, SharingExecutor, StagedExecutor,
    item_checksum,
};
use symphony_types::{CutDigest, Signature};

use super::scene::{ITEM_BYTES, emulated};

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

/// Answers as an emulated GPU does, and shares a trunk with its likes.
#[derive(Debug)]
pub(super) struct Sibling {
    like: Box<dyn ModelExecutor>,
    /// The segments of each batch that ran through the trunk.
    ran: Arc<Mutex<Vec<Vec<Segment>>>>,
}

impl Sibling {
    pub(super) fn sharing(ran: &Arc<Mutex<Vec<Vec<Segment>>>>) -> Box<dyn ModelExecutor> {
        Box::new(Self { like: emulated(), ran: Arc::clone(ran) })
    }
}

impl ModelExecutor for Sibling {
    fn run(&mut self, batch: &BatchInputs<'_>, outputs: &mut Vec<Vec<u8>>) -> Result<(), ExecuteError> {
        self.like.run(batch, outputs)
    }

    fn signature(&self) -> &Signature {
        self.like.signature()
    }

    fn batch_max(&self) -> u32 {
        self.like.batch_max()
    }

    fn kind(&self) -> &'static str {
        "a sibling"
    }

    fn in_family(&self) -> Option<&dyn SharingExecutor> {
        Some(self)
    }
}

impl SharingExecutor for Sibling {
    fn trunk(&self) -> CutDigest {
        CutDigest::new(7)
    }

    fn trunk_place(&self) -> usize {
        Arc::as_ptr(&self.ran).addr()
    }

    fn trunk_memory(&self) -> MemoryUse {
        MemoryUse::default()
    }

    fn shares(&self) -> PartShares {
        PartShares { trunk: 900_000, suffix: 200_000 }
    }

    fn run_mixed(
        &self,
        batch: &BatchInputs<'_>,
        segments: &[Segment],
        outputs: &mut Vec<Vec<Vec<u8>>>,
    ) -> Result<(), ExecuteError> {
        self.ran.lock().unwrap().push(segments.to_vec());
        let mut rows = batch.tensors[0].chunks_exact(ITEM_BYTES);
        let answer = |segment: &Segment| {
            let rows = rows.by_ref().take(segment.rows as usize);
            vec![rows.flat_map(|row| item_checksum([row]).to_le_bytes()).collect()]
        };
        *outputs = segments.iter().map(answer).collect();
        Ok(())
    }
}
