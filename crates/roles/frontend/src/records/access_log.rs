//! The access log: a line of JSON for each request, on standard output.

use std::io::{BufWriter, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use symphony_telemetry::Registry;

use super::request_record::RequestRecord;
use crate::metrics;

/// Lines that wait to be written, about 4 MB. Requests are not held up: a further line is lost, and counted.
const LINES_WAITING_MAX: usize = 16 << 10;

/// How often it is looked whether there is room for the word that ends the log.
const ROOM_POLL: Duration = Duration::from_millis(1);

/// Writes lines from a thread of its own.
#[derive(Debug)]
pub(super) struct AccessLog {
    /// None is the end.
    lines: SyncSender<Option<String>>,
    /// Hears the end of the thread.
    written: Mutex<Receiver<()>>,
    lost: Counter,
}

/// A line, as its readers know it: docs/operating/operations.md.
#[derive(Serialize)]
struct Line<'a> {
    at_unix_ms: u64,
    request: Option<String>,
    client_id: &'a str,
    tenant: &'a str,
    model: &'a str,
    items: u32,
    outcome: &'static str,
    reason: &'static str,
    latency_ms: f64,
    batch: Option<u32>,
    execution_ms: Option<f64>,
    cluster: &'a str,
    subcluster: &'a str,
    backend: &'a str,
    gpu: Option<String>,
    trace: Option<String>,
}

impl AccessLog {
    pub(super) fn start(out: impl Write + Send + 'static, registry: &Registry) -> Self {
        let (lines, waiting) = sync_channel(LINES_WAITING_MAX);
        let (writing, written) = channel();
        let lost = registry.register(&metrics::ACCESS_LINES_LOST, Counter::default());
        let thread = std::thread::Builder::new().name("access-log".into()).spawn(move || {
            if let Err(error) = write_all(&waiting, out) {
                tracing::error!(%error, "the access log cannot be written and ends");
            }
            drop(writing);
        });
        if let Err(error) = thread {
            tracing::error!(%error, "no thread for the access log: nothing is logged");
        }
        Self { lines, written: Mutex::new(written), lost }
    }

    pub(super) fn write(&self, record: &RequestRecord<'_>) {
        let millis = |seconds: f64| (seconds * 1e6).round() / 1e3;
        let line = Line {
            at_unix_ms: record.ended_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            request: record.request.map(|id| id.to_string()),
            client_id: &record.context.id,
            tenant: record.context.caller.name(),
            model: record.model,
            items: record.items,
            outcome: record.outcome,
            reason: record.reason,
            latency_ms: millis(record.latency().as_secs_f64()),
            batch: record.ran.map(|ran| ran.batch),
            execution_ms: record.ran.map(|ran| millis(ran.execution.as_secs_f64())),
            cluster: &record.cluster,
            subcluster: &record.subcluster,
            backend: &record.backend,
            gpu: record.ran.map(|ran| ran.run.gpu.to_string()),
            trace: record.span.map(|span| format!("{:032x}", span.context.trace)),
        };
        // Texts and numbers in memory always serialise.
        let Ok(text) = serde_json::to_string(&line) else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.lines.try_send(Some(text)) {
            self.lost.inc();
        }
    }

    /// Waits until all lines are written, in at most `within`: a reader that has stopped holds nothing up.
    pub(super) fn finish(&self, within: Duration) {
        let until = Instant::now() + within;
        while let Err(TrySendError::Full(_)) = self.lines.try_send(None) {
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(ROOM_POLL);
        }
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is sent: the other end goes with the thread.
        let _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// Writes until the log ends or is gone, or its reader is.
fn write_all(waiting: &Receiver<Option<String>>, out: impl Write) -> std::io::Result<()> {
    let mut out = BufWriter::new(out);
    while let Ok(Some(first)) = waiting.recv() {
        let (mut next, mut ends) = (Some(first), false);
        while let Some(line) = next {
            writeln!(out, "{line}")?;
            let more = waiting.try_recv().ok();
            ends = matches!(more, Some(None));
            next = more.flatten();
        }
        out.flush()?;
        if ends {
            break;
        }
    }
    Ok(())
}
