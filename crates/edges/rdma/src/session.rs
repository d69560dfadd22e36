//! One connection and its pending work.

mod stream;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{oneshot, watch};

use crate::engine::{CompletionHandler, Engine};
use crate::error::{Broken, RdmaError};
use crate::landing::Credits;
use crate::verbs::{Completion, Finished, Kind, Piece, QueuePair, Window};

pub(crate) use self::stream::StreamState;
pub use self::stream::{StreamReader, StreamWriter};

/// A connection that is made; a handle. It ends with [`Pair::end`], or with the last handle, stream and read.
#[derive(Clone, Debug)]
pub struct Pair(pub(crate) Arc<Session>);

impl Pair {
    /// The stream of bytes over this connection. Call it once.
    #[must_use]
    pub fn split(&self) -> (StreamReader, StreamWriter) {
        (StreamReader::new(Arc::clone(&self.0)), StreamWriter::new(Arc::clone(&self.0)))
    }

    /// Ends it: reads fail, the stream ends with an error at both ends.
    pub fn end(&self) {
        self.0.fail(Broken::Ended);
    }

    /// Whether a READ of the peer's memory is in progress.
    #[must_use]
    pub fn is_read(&self) -> bool {
        !lock(&self.0.reads).is_empty()
    }

    /// Why the connection is broken; none while it works.
    #[must_use]
    pub fn broken(&self) -> Option<Broken> {
        self.0.broken()
    }

    /// Resolves when the connection breaks.
    pub async fn ended(&self) -> Broken {
        let mut broken = self.0.broken.subscribe();
        let broken = broken.wait_for(Option::is_some).await;
        broken.ok().and_then(|broken| *broken).unwrap_or(Broken::Ended)
    }
}

/// A READ in progress: its waiter, and its credits, which are released when it completes.
type Read = (oneshot::Sender<Piece>, Credits);

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) queue: QueuePair,
    engine: Arc<Engine<Self>>,
    reads: Mutex<HashMap<u64, Read>>,
    binds: Mutex<HashMap<u64, oneshot::Sender<()>>>,
    pub(crate) stream: Mutex<StreamState>,
    broken: watch::Sender<Option<Broken>>,
}

impl Session {
    /// A session that receives completions, with buffers for the peer's SENDs.
    pub(crate) fn start(
        engine: &Arc<Engine<Self>>,
        queue: QueuePair,
        stream: StreamState,
    ) -> Result<Arc<Self>, RdmaError> {
        let (reads, binds, broken) = Default::default();
        let number = queue.number();
        let stream = Mutex::new(stream);
        let session = Arc::new(Self { queue, engine: Arc::clone(engine), reads, binds, stream, broken });
        engine.join(number, &session)?;
        session.offer_buffers()?;
        Ok(session)
    }

    pub(crate) fn broken(&self) -> Option<Broken> {
        *self.broken.borrow()
    }

    /// Dispatches all completions up to now, for all connections.
    pub(crate) fn dispatch_completions(&self) {
        self.engine.dispatch_completions();
    }

    /// Copies `length` bytes of the peer's memory into the piece.
    pub(crate) async fn read(
        &self,
        piece: Piece,
        length: usize,
        address: u64,
        key: u32,
        credits: Credits,
    ) -> Result<Piece, Broken> {
        let (tell, done) = oneshot::channel();
        self.posting(&self.reads, || self.queue.read(piece, length, address, key), (tell, credits))?;
        done.await.map_err(|_| self.why())
    }

    /// Lets the peer read through the window.
    pub(crate) async fn bind(&self, window: &Window) -> Result<(), Broken> {
        let (tell, done) = oneshot::channel();
        self.posting(&self.binds, || self.queue.bind(window), tell)?;
        done.await.map_err(|_| self.why())
    }

    fn posting<W>(
        &self,
        waiting: &Mutex<HashMap<u64, W>>,
        post: impl FnOnce() -> io::Result<u64>,
        waiter: W,
    ) -> Result<(), Broken> {
        // Locked over both steps, so that the work does not complete before its waiter is registered.
        let mut waiting = lock(waiting);
        // A failure clears the list after setting its reason, so no waiter is left behind.
        if let Some(broken) = self.broken() {
            return Err(broken);
        }
        match post() {
            Ok(id) => {
                waiting.insert(id, waiter);
                Ok(())
            }
            Err(error) => {
                drop(waiting);
                Err(self.refused(&error))
            }
        }
    }

    /// The device refused work: the connection is broken.
    pub(crate) fn refused(&self, error: &io::Error) -> Broken {
        self.fail(Broken::refused(error));
        self.why()
    }

    fn why(&self) -> Broken {
        self.broken().unwrap_or(Broken::Ended)
    }
}

impl CompletionHandler for Session {
    fn done(&self, completion: &Completion) {
        match self.queue.finish(completion) {
            Finished::Unknown => {}
            Finished::Failed(status) => self.fail(Broken::Failed(status)),
            Finished::Well { id, kind: Kind::Read, piece, .. } => {
                if let (Some((tell, _credits)), Some(piece)) = (lock(&self.reads).remove(&id), piece) {
                    // The waiter may have given up.
                    let _ = tell.send(piece);
                }
            }
            Finished::Well { id, kind: Kind::Bind, .. } => {
                if let Some(tell) = lock(&self.binds).remove(&id) {
                    let _ = tell.send(());
                }
            }
            Finished::Well { kind: Kind::Send, piece, .. } => self.sent(piece),
            Finished::Well { kind: Kind::Receive, piece, bytes, .. } => self.came(piece, bytes),
        }
    }

    fn fail(&self, reason: Broken) {
        let first = self.broken.send_if_modified(|broken| {
            let first = broken.is_none();
            broken.get_or_insert(reason);
            first
        });
        if !first {
            return;
        }
        if let Err(error) = self.queue.end() {
            tracing::debug!(%error, "a queue pair does not stop");
        }
        lock(&self.reads).clear();
        lock(&self.binds).clear();
        lock(&self.stream).wake();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.engine.leave(self.queue.number());
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
