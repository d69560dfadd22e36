//! The span of a batch, to which the requests that ran in it are linked: it shows who ran with whom.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};

use symphony_protocol::data::BatchRun;
use symphony_telemetry::{FinishedSpan, SpanIds};

use super::request_record::{Ran, RequestRecord};

/// Batches that are remembered, so that each is sent once: those of the last second of a busy frontend.
const REMEMBERED_MAX: usize = 4096;

/// Which batches have been sent. Each frontend sends the span of a batch; they are the same, ids included.
#[derive(Debug, Default)]
pub(super) struct BatchSpans(Mutex<VecDeque<u64>>);

/// The ids of a batch's span, which whoever knows the batch finds alike.
pub(super) fn ids(cluster: &str, run: &BatchRun) -> SpanIds {
    let hash = |part: u8| {
        let mut hasher = DefaultHasher::new();
        (part, cluster, run.gpu.get(), run.token.get(), run.plan).hash(&mut hasher);
        hasher.finish().max(1)
    };
    SpanIds { trace: u128::from(hash(0)) << 64 | u128::from(hash(1)), span: hash(2) }
}

impl BatchSpans {
    /// The span of the batch that a request ran in, unless it has been sent.
    pub(super) fn of(&self, record: &RequestRecord<'_>, ran: &Ran) -> Option<FinishedSpan> {
        let ids = ids(&record.cluster, &ran.run);
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.contains(&ids.span) {
            return None;
        }
        sent.push_back(ids.span);
        if sent.len() > REMEMBERED_MAX {
            sent.pop_front();
        }
        drop(sent);
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
