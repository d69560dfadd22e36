//! Writes a tape in a thread of its own.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crossbeam::channel::{Receiver, Sender, bounded};
use symphony_tape::{Chunk, TapeEnd};
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Chunk size: a few milliseconds of decisions at a million requests per second.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// The most chunks that wait for the disk: with [`CHUNK_BYTES`] 16 MiB, which bounds the stall that a tape survives.
pub(crate) const CHUNKS_WAITING_MAX: usize = 64;

/// The recorder's connection to the writer of its tape. Dropping it ends the tape.
#[derive(Debug)]
pub(crate) struct WriterEnd {
    /// Filled chunks; at its limit when the disk does not keep up.
    pub(crate) full: Sender<Chunk>,
    /// Written chunks, for reuse.
    pub(crate) empty: Receiver<Chunk>,
    /// Why the tape ended; set before this is dropped.
    pub(crate) end: Arc<OnceLock<TapeEnd>>,
    /// Bytes already on the tape.
    pub(crate) written: u64,
}

/// The thread that writes one tape.
#[derive(Debug)]
pub(crate) struct TapeWriter {
    file: File,
    path: PathBuf,
    full: Receiver<Chunk>,
    empty: Sender<Chunk>,
    end: Arc<OnceLock<TapeEnd>>,
}

impl TapeWriter {
    /// Starts the thread; `token` is held until the tape is written.
    pub(crate) fn start(file: File, path: PathBuf, written: u64, token: TaskTrackerToken) -> io::Result<WriterEnd> {
        let (full_in, full) = bounded(CHUNKS_WAITING_MAX);
        let (empty, empty_out) = bounded(CHUNKS_WAITING_MAX);
        let end = Arc::new(OnceLock::new());
        let mut writer = Self { file, path, full, empty, end: Arc::clone(&end) };
        std::thread::Builder::new().name("tape".to_owned()).spawn(move || {
            let _token = token;
            match writer.run() {
                Ok(end) => tracing::info!(tape = %writer.path.display(), ?end, "recorded"),
                // The recorder finds the channel closed and stops.
                Err(error) => tracing::error!(tape = %writer.path.display(), %error, "tape cut"),
            }
        })?;
        Ok(WriterEnd { full: full_in, empty: empty_out, end, written })
    }

    fn run(&mut self) -> io::Result<TapeEnd> {
        while let Ok(mut chunk) = self.full.recv() {
            self.file.write_all(chunk.seal())?;
            chunk.clear();
            // If the channel has enough spare chunks, this one is freed.
            let _ = self.empty.try_send(chunk);
        }
        let end = self.end.get().copied().unwrap_or(TapeEnd::Stopped);
        let mut last = Chunk::with_capacity(2);
        last.end(end);
        self.file.write_all(last.seal())?;
        Ok(end)
    }
}
