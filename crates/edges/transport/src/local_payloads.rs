//! Payloads within one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use symphony_protocol::data::ResultBytes;
use symphony_types::{BootId, FailReason, FrontendId};

use crate::payload::{PayloadOwner, PayloadTransport, Payloads, ResultToOwner, ReturnedResult, inputs};

/// [`PayloadTransport`] to owners in the same process: inputs are handed over as they are, nothing is copied.
#[derive(Clone, Default)]
pub struct LocalPayloads {
    owners: Arc<Mutex<Owners>>,
}

#[derive(Default)]
struct Owners {
    here: HashMap<FrontendId, (BootId, Arc<dyn PayloadOwner>)>,
    finished: bool,
}

impl std::fmt::Debug for LocalPayloads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalPayloads").field("owners", &self.lock().here.len()).finish()
    }
}

impl LocalPayloads {
    /// From now on that life of that frontend is reached here; a former life no more.
    pub fn join(&self, frontend: FrontendId, boot: BootId, owner: Arc<dyn PayloadOwner>) {
        self.lock().here.insert(frontend, (boot, owner));
    }

    /// That frontend is gone.
    pub fn leave(&self, frontend: FrontendId) {
        self.lock().here.remove(&frontend);
    }

    fn owner(&self, frontend: FrontendId, boot: BootId) -> Option<Arc<dyn PayloadOwner>> {
        let owners = self.lock();
        owners.here.get(&frontend).filter(|(life, _)| *life == boot).map(|(_, owner)| Arc::clone(owner))
    }

    fn lock(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PayloadTransport for LocalPayloads {
    async fn read(&self, frontend: FrontendId, boot: BootId, sequences: Vec<u64>) -> Payloads {
        match self.owner(frontend, boot) {
            Some(owner) => inputs(&*owner, &sequences).await,
            None => vec![None; sequences.len()],
        }
    }

    fn deliver(&self, frontend: FrontendId, boot: BootId, results: Vec<ResultToOwner>) {
        if self.lock().finished {
            return tracing::warn!(%frontend, results = results.len(), "results lost: this transport has finished");
        }
        let Some(owner) = self.owner(frontend, boot) else {
            return tracing::warn!(%frontend, results = results.len(), "results lost: their owner cannot be reached");
        };
        for ResultToOwner { result, bytes } in results {
            let outcome = match result.outcome {
                ResultBytes::Answer(length) if length as usize == bytes.len() => Ok(bytes),
                ResultBytes::Answer(_) | ResultBytes::Shared => Err(FailReason::ExecutionFailed),
                ResultBytes::Failed(reason) => Err(reason),
            };
            let (sequence, batch, execution_ns) = (result.sequence, result.batch, result.execution);
            owner.returned(ReturnedResult { sequence, outcome, batch, execution_ns });
        }
    }

    async fn finish(&self) {
        self.lock().finished = true;
    }

    fn name(&self) -> &'static str {
        "in-process"
    }
}
