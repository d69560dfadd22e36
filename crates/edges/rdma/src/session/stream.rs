//! A stream of bytes over SENDs: cut into segments, each sent only when the peer has a buffer for it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::engine::CompletionHandler as _;
use crate::error::{Broken, RdmaError};
use crate::flow::Flow;
use crate::purpose::{Purpose, RECEIVE_BUFFERS, SEND_BUFFERS};
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentKind};
use crate::verbs::{Arena, Device, Piece};

use super::{Session, lock};

/// Send buffers reserved for segments without data.
const SEND_BUFFERS_KEPT: usize = 2;
/// How often a writer that waits for room checks that the peer lives. A dead peer's device does not acknowledge, and
/// the connection breaks within a few seconds.
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct StreamState {
    flow: Flow,
    /// Bytes of data in one segment at most.
    data_bytes: usize,
    /// Buffers to send from.
    free: Vec<Piece>,
    /// SENDs in progress.
    sending: usize,
    /// The number of the next segment.
    next: u64,
    end_sent: bool,
    writer: Option<Waker>,
    /// Buffers to be posted for the peer's SENDs.
    spare: Vec<Piece>,
    /// Unread data: its range within each buffer.
    arrived: VecDeque<(Piece, std::ops::Range<usize>)>,
    /// The number of the segment that comes next.
    expects: u64,
    end_came: bool,
    reader: Option<Waker>,
}

impl StreamState {
    /// With memory of its own.
    pub(crate) fn new(device: &Arc<Device>, purpose: Purpose) -> Result<Self, RdmaError> {
        let arena = Arena::new(device, purpose.stream_bytes())?;
        let pieces = |count: usize| (0..count).filter_map(|_| arena.take(purpose.segment_bytes())).collect::<Vec<_>>();
        let (free, spare) = (pieces(SEND_BUFFERS), pieces(RECEIVE_BUFFERS));
        debug_assert_eq!(free.len() + spare.len(), SEND_BUFFERS + RECEIVE_BUFFERS, "the arena is made for them");
        Ok(Self {
            flow: Flow::default(),
            data_bytes: purpose.segment_bytes() - SEGMENT_HEADER_BYTES,
            free,
            sending: 0,
            next: 0,
            end_sent: false,
            writer: None,
            spare,
            arrived: VecDeque::new(),
            expects: 0,
            end_came: false,
            reader: None,
        })
    }

    /// Wakes the waiting tasks.
    pub(crate) fn wake(&mut self) {
        self.writer.take().into_iter().chain(self.reader.take()).for_each(Waker::wake);
    }

    /// Sends a segment with data from that buffer, and all owed credits.
    fn send(&mut self, session: &Session, mut piece: Piece, kind: SegmentKind, data: &[u8]) -> io::Result<()> {
        let length = SEGMENT_HEADER_BYTES + data.len();
        let buffer = &mut piece.bytes_mut()[..length];
        buffer[SEGMENT_HEADER_BYTES..].copy_from_slice(data);
        Segment { kind, number: self.next, credits: self.flow.take_owed() }.write(buffer);
        session.queue.send(piece, length)?;
        self.next += 1;
        self.sending += 1;
        Ok(())
    }

    /// Sends credits, if they are due and no other segment carries them.
    fn send_owed_credits(&mut self, session: &Session) -> io::Result<()> {
        if !self.flow.owes_credits() {
            return Ok(());
        }
        match self.free.pop() {
            Some(piece) => self.send(session, piece, SegmentKind::Credits, &[]),
            // Checked again when a SEND completes.
            None => Ok(()),
        }
    }

    /// Handles a received segment, and wakes its waiter.
    fn take(&mut self, session: &Session, piece: Piece, bytes: usize) -> Result<(), Broken> {
        let came = piece.bytes().get(..bytes).unwrap_or(piece.bytes());
        let (segment, data) = Segment::parse(came)?;
        let data = SEGMENT_HEADER_BYTES..SEGMENT_HEADER_BYTES + data.len();
        if segment.number != self.expects {
            return Err(Broken::Order { came: segment.number, expected: self.expects });
        }
        self.expects += 1;
        self.flow.given_back(segment.credits)?;
        if segment.credits > 0 {
            self.writer.take().into_iter().for_each(Waker::wake);
        }
        match segment.kind {
            SegmentKind::Data => {
                self.flow.received()?;
                self.arrived.push_back((piece, data));
            }
            SegmentKind::Credits | SegmentKind::Proof | SegmentKind::End => {
                self.end_came |= segment.kind == SegmentKind::End;
                session.queue.receive(piece).map_err(|error| Broken::refused(&error))?;
            }
        }
        self.reader.take().into_iter().for_each(Waker::wake);
        Ok(())
    }
}

impl Session {
    /// Posts all receive buffers, before the peer can send.
    pub(crate) fn offer_buffers(&self) -> Result<(), RdmaError> {
        let spare = std::mem::take(&mut lock(&self.stream).spare);
        for piece in spare {
            self.queue.receive(piece).map_err(|error| RdmaError::system("no buffer can be offered", error))?;
        }
        Ok(())
    }

    /// A SEND has completed.
    pub(crate) fn sent(&self, piece: Option<Piece>) {
        let mut stream = lock(&self.stream);
        stream.sending -= 1;
        stream.free.extend(piece);
        stream.writer.take().into_iter().for_each(Waker::wake);
        let result = stream.send_owed_credits(self);
        drop(stream);
        if let Err(error) = result {
            self.refused(&error);
        }
    }

    /// A SEND of the peer has arrived.
    pub(crate) fn came(&self, piece: Option<Piece>, bytes: usize) {
        let Some(piece) = piece else { return };
        let taken = lock(&self.stream).take(self, piece, bytes);
        if let Err(broken) = taken {
            self.fail(broken);
        }
    }

    fn poll_read(&self, cx: &Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(read) = self.read_arrived(None, into) {
            return Poll::Ready(read);
        }
        // Processes completions up to now, also those that the thread has not reached: a reader that learns otherwise
        // of the peer's end polls once more, and finds everything.
        self.dispatch_completions();
        self.read_arrived(Some(cx), into).map_or(Poll::Pending, Poll::Ready)
    }

    /// Reads what has arrived, if anything. Otherwise the waiter is woken when something arrives.
    fn read_arrived(&self, waits: Option<&Context<'_>>, into: &mut ReadBuf<'_>) -> Option<io::Result<()>> {
        let mut stream = lock(&self.stream);
        let Some((piece, mut left)) = stream.arrived.pop_front() else {
            if stream.end_came {
                return Some(Ok(()));
            }
            if let Some(broken) = self.broken() {
                return Some(Err(broken.into()));
            }
            stream.reader = waits.map(|cx| cx.waker().clone());
            return None;
        };
        let count = left.len().min(into.remaining());
        into.put_slice(&piece.bytes()[left.start..left.start + count]);
        left.start += count;
        if !left.is_empty() {
            stream.arrived.push_front((piece, left));
            return Some(Ok(()));
        }
        // The buffer is posted before the peer learns of it.
        let offered = self.queue.receive(piece).and_then(|_| {
            stream.flow.consumed();
            stream.send_owed_credits(self)
        });
        drop(stream);
        // The bytes were read; the next call returns the error.
        if let Err(error) = offered {
            self.refused(&error);
        }
        Some(Ok(()))
    }

    fn poll_write(&self, cx: &Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut stream = lock(&self.stream);
        if let Some(broken) = self.broken() {
            return Poll::Ready(Err(broken.into()));
        }
        if stream.end_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = stream.flow.may_send() && stream.free.len() > SEND_BUFFERS_KEPT;
        let Some(piece) = stream.free.pop_if(|_| room) else {
            stream.writer = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let data = &data[..data.len().min(stream.data_bytes)];
        let sent = stream.send(self, piece, SegmentKind::Data, data);
        if sent.is_ok() {
            stream.flow.sent();
        }
        drop(stream);
        Poll::Ready(sent.map(|()| data.len()).map_err(|error| self.refused(&error).into()))
    }

    /// Ends the stream, and waits until the peer has everything.
    fn poll_shutdown(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = lock(&self.stream);
        if let Some(broken) = self.broken() {
            return Poll::Ready(Err(broken.into()));
        }
        if !stream.end_sent {
            let Some(piece) = stream.free.pop() else {
                stream.writer = Some(cx.waker().clone());
                return Poll::Pending;
            };
            stream.end_sent = true;
            if let Err(error) = stream.send(self, piece, SegmentKind::End, &[]) {
                drop(stream);
                return Poll::Ready(Err(self.refused(&error).into()));
            }
        }
        drop(stream);
        self.poll_taken(cx).map_err(Into::into)
    }

    /// Waits until the peer's device has everything that was sent.
    fn poll_taken(&self, cx: &Context<'_>) -> Poll<Result<(), Broken>> {
        let mut stream = lock(&self.stream);
        if let Some(broken) = self.broken() {
            return Poll::Ready(Err(broken));
        }
        if stream.sending == 0 {
            return Poll::Ready(Ok(()));
        }
        stream.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Sends a segment without content, unless one is in progress: a dead device does not acknowledge it. A proof has
    /// full length: where long packets are lost it is not acknowledged either.
    fn ask(&self, kind: SegmentKind) -> Result<(), Broken> {
        let mut stream = lock(&self.stream);
        if let Some(broken) = self.broken() {
            return Err(broken);
        }
        if stream.sending > 0 {
            return Ok(());
        }
        let Some(piece) = stream.free.pop() else { return Ok(()) };
        let filling = vec![0; if kind == SegmentKind::Proof { stream.data_bytes } else { 0 }];
        let result = stream.send(self, piece, kind, &filling);
        drop(stream);
        result.map_err(|error| self.refused(&error))
    }

    /// The peer is known to be gone. If it had ended its stream, data for it may still be read.
    fn gone(&self) {
        if !lock(&self.stream).end_came {
            self.fail(Broken::Gone);
        }
    }
}

/// Reads what the peer writes.
#[derive(Debug)]
pub struct StreamReader(Arc<Session>);

/// Writes to the peer. Only [`AsyncWrite::poll_shutdown`] waits for delivery.
#[derive(Debug)]
pub struct StreamWriter {
    session: Arc<Session>,
    /// The next check of the peer; none while there is room.
    asks: Option<Pin<Box<Sleep>>>,
}

impl StreamReader {
    pub(crate) const fn new(session: Arc<Session>) -> Self {
        Self(session)
    }

    /// To be called when the peer is known to be gone, after everything was read: waiting tasks fail. If the peer had
    /// ended its stream, it may still read.
    pub fn gone(&self) {
        self.0.gone();
    }
}

impl StreamWriter {
    pub(crate) const fn new(session: Arc<Session>) -> Self {
        Self { session, asks: None }
    }

    /// Checks that the peer is reachable with segments of full length, and answers: RDMA connections are set up
    /// without traffic, so that lost packets, or lost long ones, do not show. May take until the connection breaks;
    /// the caller bounds the time.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn prove(&mut self) -> Result<(), Broken> {
        self.session.ask(SegmentKind::Proof)?;
        poll_fn(|cx| self.session.poll_taken(cx)).await
    }

    /// Checks the peer, if that is due. Ready only if it is gone.
    fn poll_asks(&mut self, cx: &mut Context<'_>) -> Poll<Broken> {
        let asks = self.asks.get_or_insert_with(|| Box::pin(tokio::time::sleep(ASK_EVERY)));
        while asks.as_mut().poll(cx).is_ready() {
            if let Err(broken) = self.session.ask(SegmentKind::Credits) {
                return Poll::Ready(broken);
            }
            asks.as_mut().reset(Instant::now() + ASK_EVERY);
        }
        Poll::Pending
    }
}

impl AsyncRead for StreamReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read(cx, buf)
    }
}

impl AsyncWrite for StreamWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Poll::Ready(written) = this.session.poll_write(cx, buf) {
            this.asks = None;
            return Poll::Ready(written);
        }
        this.poll_asks(cx).map(|broken| Err(broken.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.poll_shutdown(cx)
    }
}
