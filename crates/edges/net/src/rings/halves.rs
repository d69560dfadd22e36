//! The two directions of a pair of rings, as ordinary streams.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use symphony_shared_memory::{Available, RingError, RingReceiver, RingSender};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;

use super::peer_waker::{PeerWaker, Side};

/// Shared by both directions of a pair.
#[derive(Debug)]
pub(super) struct RingPair {
    waker: PeerWaker,
    /// The peer is gone, or no longer trusted.
    gone: AtomicBool,
    /// How often this process woke peers.
    wake_ups: Arc<AtomicU64>,
    _place: OwnedSemaphorePermit,
}

impl RingPair {
    pub(super) fn new(socket: Arc<UnixStream>, wake_ups: Arc<AtomicU64>, place: OwnedSemaphorePermit) -> Self {
        Self { waker: PeerWaker::new(socket), gone: AtomicBool::new(false), wake_ups, _place: place }
    }

    fn wake_if(&self, sleeps: bool) {
        if sleeps {
            self.wake_ups.fetch_add(1, Ordering::Relaxed);
            if self.waker.wake().is_err() {
                self.gone.store(true, Ordering::Relaxed);
            }
        }
    }

    fn poll_woken(&self, cx: &Context<'_>, side: Side, seen: &mut u64) -> Poll<()> {
        self.waker.poll_woken(cx, side, seen).map(|woken| self.note_failure(woken))
    }

    /// Sends an owed wake-up.
    fn poll_owed(&self, cx: &Context<'_>, side: Side) -> Poll<()> {
        self.waker.poll_owed(cx, side).map(|sent| self.note_failure(sent))
    }

    fn note_failure(&self, result: io::Result<()>) {
        if let Err(error) = result {
            self.gone.store(true, Ordering::Relaxed);
            tracing::debug!(%error, "the other end of a ring is gone");
        }
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

pub(super) fn ring_streams(
    (sender, receiver): (RingSender, RingReceiver),
    pair: Arc<RingPair>,
    spin: Duration,
) -> (RingReader, RingWriter) {
    let reader = RingReader { receiver, pair: Arc::clone(&pair), seen: 0, spin, spins_until: None };
    (reader, RingWriter { sender, pair, seen: 0, ended: false })
}

/// Reads what the peer writes. It ends after the last bytes when the peer has finished or is gone.
#[derive(Debug)]
pub struct RingReader {
    receiver: RingReceiver,
    pair: Arc<RingPair>,
    /// This direction's count of wake-ups.
    seen: u64,
    spin: Duration,
    /// It polls until then.
    spins_until: Option<Instant>,
}

impl RingReader {
    /// Whether it is too early to sleep; then it is polled again at once, after other tasks.
    fn spins(&mut self, cx: &Context<'_>) -> bool {
        if self.spin.is_zero() {
            return false;
        }
        let now = Instant::now();
        let spins = now < *self.spins_until.get_or_insert(now + self.spin);
        if spins {
            cx.waker().wake_by_ref();
        }
        spins
    }
}

impl AsyncRead for RingReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            // Read before the ring is checked: a peer that is gone writes nothing more.
            let gone = this.pair.is_gone();
            match this.receiver.available().map_err(invalid_data)? {
                Available::End => return Poll::Ready(Ok(())),
                Available::Bytes(0) if gone => return Poll::Ready(Ok(())),
                Available::Bytes(0) => {}
                Available::Bytes(count) => {
                    this.spins_until = None;
                    let into = buf.initialize_unfilled_to(count.min(buf.remaining()));
                    let moved = this.receiver.receive(into).map_err(invalid_data)?;
                    this.pair.wake_if(moved.wake);
                    buf.advance(moved.bytes);
                    return Poll::Ready(Ok(()));
                }
            }
            if this.spins(cx) {
                return Poll::Pending;
            }
            if this.receiver.sleeps().map_err(invalid_data)? {
                // For freed room: an owed wake-up is sent when the socket accepts it, while this side waits.
                let _ = this.pair.poll_owed(cx, Side::Reader);
                ready!(this.pair.poll_woken(cx, Side::Reader, &mut this.seen));
                this.receiver.woken();
            }
        }
    }
}

/// Writes to the peer.
#[derive(Debug)]
pub struct RingWriter {
    sender: RingSender,
    pair: Arc<RingPair>,
    /// This direction's count of wake-ups.
    seen: u64,
    ended: bool,
}

impl AsyncWrite for RingWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            if this.ended || this.pair.is_gone() {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let moved = this.sender.send(bytes).map_err(invalid_data)?;
            this.pair.wake_if(moved.wake);
            if moved.bytes > 0 || bytes.is_empty() {
                return Poll::Ready(Ok(moved.bytes));
            }
            if this.sender.sleeps().map_err(invalid_data)? {
                let _ = this.pair.poll_owed(cx, Side::Writer);
                ready!(this.pair.poll_woken(cx, Side::Writer, &mut this.seen));
                this.sender.woken();
            }
        }
    }

    /// The bytes are visible at once; this waits until a sleeping peer is woken.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pair.poll_owed(cx, Side::Writer).map(Ok)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().end();
        Poll::Ready(Ok(()))
    }
}

impl RingWriter {
    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            let sleeps = self.sender.end();
            self.pair.wake_if(sleeps);
        }
    }
}

impl Drop for RingWriter {
    /// As with a socket, the reader is notified.
    fn drop(&mut self) {
        self.end();
    }
}

fn invalid_data(error: RingError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
