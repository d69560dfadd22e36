//! Payloads within one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use symphony_protocol::data::ResultBytes;
use symphony_types::{BootId, FailReason, FrontendId};

use crate::payload::{PayloadFrontend, PayloadTransport, Payloads, ResultToFrontend, ReturnedResult, inputs};

/// [`PayloadTransport`] to frontends in the same process: inputs are handed over without a copy.
#[derive(Clone, Default)]
pub struct LocalPayloads {
    frontends: Arc<Mutex<Frontends>>,
}

#[derive(Default)]
struct Frontends {
    here: HashMap<FrontendId, (BootId, Arc<dyn PayloadFrontend>)>,
    finished: bool,
}

impl std::fmt::Debug for LocalPayloads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalPayloads").field("frontends", &self.lock().here.len()).finish()
    }
}

impl LocalPayloads {
    /// Registers this boot of a frontend; a former boot is not reachable any more.
    pub fn join(&self, frontend: FrontendId, boot: BootId, port: Arc<dyn PayloadFrontend>) {
        self.lock().here.insert(frontend, (boot, port));
    }

    /// Removes a frontend.
    pub fn leave(&self, frontend: FrontendId) {
        self.lock().here.remove(&frontend);
    }

    fn port(&self, frontend: FrontendId, boot: BootId) -> Option<Arc<dyn PayloadFrontend>> {
        let frontends = self.lock();
        frontends.here.get(&frontend).filter(|(joined, _)| *joined == boot).map(|(_, port)| Arc::clone(port))
    }

    fn lock(&self) -> MutexGuard<'_, Frontends> {
        self.frontends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PayloadTransport for LocalPayloads {
    async fn read(&self, frontend: FrontendId, boot: BootId, sequences: Vec<u64>) -> Payloads {
        match self.port(frontend, boot) {
            Some(port) => inputs(&*port, &sequences).await,
            None => vec![None; sequences.len()],
        }
    }

    fn deliver(&self, frontend: FrontendId, boot: BootId, results: Vec<ResultToFrontend>) {
        if self.lock().finished {
            return tracing::warn!(%frontend, results = results.len(), "results lost: this transport has finished");
        }
        let Some(port) = self.port(frontend, boot) else {
            return tracing::warn!(%frontend, results = results.len(), "results lost: their frontend cannot be reached");
        };
        for ResultToFrontend { result, bytes } in results {
            let outcome = match result.outcome {
                ResultBytes::Answer(length) if length as usize == bytes.len() => Ok(bytes),
                ResultBytes::Answer(_) | ResultBytes::Shared => Err(FailReason::ExecutionFailed),
                ResultBytes::Failed(reason) => Err(reason),
            };
            let (sequence, batch, execution_ns, run) = (result.sequence, result.batch, result.execution, result.run);
            port.returned(ReturnedResult { sequence, outcome, batch, execution_ns, run });
        }
    }

    async fn finish(&self) {
        self.lock().finished = true;
    }

    fn name(&self) -> &'static str {
        "in-process"
    }
}
