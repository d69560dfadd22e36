//! The span of a batch, to which the requests that ran in it are linked: it shows which requests ran together.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use symphony_protocol::data::BatchRun;
use symphony_telemetry::{FinishedSpan, SpanIds};

use super::request_record::{Ran, RequestRecord};

/// Batches that are remembered, so that each is sent once: those of the last second of a busy frontend.
const REMEMBERED_MAX: usize = 4096;

/// Which batches have been sent. Each frontend sends the span of a batch; they are the same, ids included.
#[derive(Debug, Default)]
pub(super) struct BatchSpans(Mutex<Sent>);

#[derive(Debug, Default)]
struct Sent {
    known: HashSet<u64>,
    /// The same, the oldest first.
    order: VecDeque<u64>,
}

impl Sent {
    /// Remembers a span; false if it was known already.
    fn is_new(&mut self, span: u64) -> bool {
        if !self.known.insert(span) {
            return false;
        }
        self.order.push_back(span);
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

/// The ids of a batch's span, which are equal in all processes that know the batch, on every platform.
pub(super) fn ids(cluster: &str, run: &BatchRun) -> SpanIds {
    let mut hasher = blake3::Hasher::new();
    hasher.update(cluster.as_bytes());
    for number in [u64::from(run.gpu.get()), run.token.get(), run.plan] {
        hasher.update(&number.to_le_bytes());
    }
    let (mut trace, mut span, mut bytes) = ([0; 16], [0; 8], hasher.finalize_xof());
    bytes.fill(&mut trace);
    bytes.fill(&mut span);
    // Ids of zeros are invalid.
    SpanIds { trace: u128::from_le_bytes(trace).max(1), span: u64::from_le_bytes(span).max(1) }
}

impl BatchSpans {
    /// The span of the batch that a request ran in, unless it has been sent.
    pub(super) fn of(&self, record: &RequestRecord<'_>, ran: &Ran) -> Option<FinishedSpan> {
        let ids = ids(&record.cluster, &ran.run);
        if !self.0.lock().unwrap_or_else(PoisonError::into_inner).is_new(ids.span) {
            return None;
        }
        let attributes = vec![
            ("symphony.model", record.model.to_owned()),
            ("symphony.items", ran.batch.to_string()),
            ("symphony.subcluster", record.subcluster.clone()),
            ("symphony.backend", record.backend.clone()),
            ("symphony.gpu", ran.run.gpu.to_string()),
        ];
        Some(FinishedSpan {
            ids,
            parent: None,
            name: "batch",
            serves: false,
            start: record.wall(ran.before(ran.run.started_us)),
            end: record.wall(ran.before(ran.run.ended_us)),
            attributes,
            link: None,
            error: None,
        })
    }
}
