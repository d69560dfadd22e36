//! The folder of this process's tapes (docs/adr/0009-tapes.md: the runtime can record what its objects decide).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use symphony_tape::{TAPE_BYTES_MAX, TapeHeader, TapeOrigin};
use tokio_util::task::TaskTracker;

use crate::records::tape_recorder::TapeRecorder;
use crate::records::tape_writer::{TapeWriter, WriterEnd};
use crate::workers::counters::count;
use crate::workers::worker_metrics::WorkerMetrics;

/// The most tapes of one run of a process: leads come and go, but disk space is finite. Enough for 64 leads with one
/// worker, or 16 leads with a rank worker and three model workers.
const TAPES_MAX: u32 = 64;

/// A folder for tapes, one file for each worker of each lead.
#[derive(Clone, Debug)]
pub struct Tapes {
    dir: PathBuf,
    bytes_max: u64,
    begun: Arc<AtomicU32>,
    writers: TaskTracker,
}

impl Tapes {
    /// Tapes in `dir`, which is created if necessary, each of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn in_dir(dir: &Path, bytes_max: u64) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let bytes_max = bytes_max.min(TAPE_BYTES_MAX);
        Ok(Self { dir: dir.to_owned(), bytes_max, begun: Arc::default(), writers: TaskTracker::new() })
    }

    /// Waits until every tape that was begun is written. A tape ends with its lead.
    pub async fn written(&self) {
        self.writers.close();
        self.writers.wait().await;
        self.writers.reopen();
    }

    /// Begins the tape of one worker. An error here never fails the lead: it is logged and counted, and there is no
    /// tape.
    pub(crate) fn record(&self, origin: TapeOrigin, worker: &str, metrics: &Arc<WorkerMetrics>) -> TapeRecorder {
        if self.begun.fetch_add(1, Ordering::Relaxed) >= TAPES_MAX {
            tracing::warn!(worker, "no tape: {TAPES_MAX} were begun since this process started; that is the limit");
            count(&metrics.counters.tapes_cut, 1);
            return TapeRecorder::default();
        }
        let TapeOrigin { boot, subcluster, token, .. } = origin;
        let path = self.dir.join(format!("{subcluster}-{token}-{:x}-{worker}.tape", boot.get()));
        let header = TapeHeader { origin, worker: worker.to_owned() };
        match self.start(&path, &header) {
            Ok(writer) => {
                tracing::info!(tape = %path.display(), bytes_max = self.bytes_max, "records");
                TapeRecorder::new(writer, self.bytes_max, Arc::clone(metrics))
            }
            Err(error) => {
                tracing::error!(tape = %path.display(), %error, "no tape");
                count(&metrics.counters.tapes_cut, 1);
                TapeRecorder::default()
            }
        }
    }

    fn start(&self, path: &Path, header: &TapeHeader) -> io::Result<WriterEnd> {
        let mut file: File = OpenOptions::new().write(true).create_new(true).open(path)?;
        let header = header.to_bytes();
        file.write_all(&header)?;
        TapeWriter::start(file, path.to_owned(), header.len() as u64, self.writers.token())
    }
}
