//! A link: one connection between two processes, and frames of one message type each way. What carries the frames is the connection
//! itself at first, and later shared memory if the two agree on that ([`crate::carrying`]).
//!
//! Writing never waits: frames go into a bounded queue, and a task of the link's own writes everything that has
//! gathered with one system call (coalescing). A full queue means that the peer has stopped reading; the sender is told
//! and the link is given up, because a late plan or request is worth nothing.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::FutureExt as _;
use symphony_net::{Carriers, Connection, Expected, Net, PeerInfo};
use symphony_protocol::carry::Carry;
use symphony_protocol::{Echo, FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, Message};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::carrying::{Carried, Carrying, End, TURNS_MAX, Turn};
use crate::echo::{EchoTimes, EchoWatch, Movement};

/// Frames that may wait for the writer of a link. At a hundred thousand frames per second this is 80 ms of them.
pub const LINK_FRAMES_MAX: usize = 8192;

/// How long a connection may take to be made.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// How long two processes may take to agree on shared memory that is required, once they are connected: four handovers.
const SHARED_WITHIN: Duration = Duration::from_secs(1);

/// One write gathers about this much before it goes out.
const COALESCE_BYTES: usize = 256 << 10;

/// Questions and answers about a link that may wait for its writer; an end that asks waits for the answer before it asks again.
const ECHOES_MAX: usize = 8;

/// Frames that the other end may send before it hears that this one goes on through shared memory only.
const EARLY_FRAMES_MAX: usize = 8;

/// Room of the reader's buffer: one system call brings many small frames.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The connection failed.
    #[error("link to {peer}: {source}")]
    Io {
        /// The other end.
        peer: String,
        /// What happened.
        source: std::io::Error,
    },
    /// No connection within [`CONNECT_TIMEOUT`].
    #[error("link to {peer}: no connection within {} ms", CONNECT_TIMEOUT.as_millis())]
    ConnectTimeout {
        /// The other end.
        peer: String,
    },
    /// The peer sent something that is no frame of this link.
    #[error("link to {peer}: {source}")]
    Frame {
        /// The other end.
        peer: String,
        /// What is wrong with it.
        source: FrameError,
    },
    /// The peer closed the connection.
    #[error("link to {peer} was closed by the peer")]
    Closed {
        /// The other end.
        peer: String,
    },
    /// One of the two requires shared memory for frames.
    #[error("link to {peer}: shared memory for frames is required (frames.required), and the two have none: {reason}")]
    NotShared {
        /// The other end.
        peer: String,
        /// Why not.
        reason: String,
    },
}

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// [`LINK_FRAMES_MAX`] frames wait already.
    #[error("the link's queue of {LINK_FRAMES_MAX} frames is full: the peer does not read")]
    Full,
    /// The link has ended.
    #[error("the link has ended")]
    Closed,
}

/// The writing end; cheap to clone, usable from any thread.
#[derive(Debug)]
pub struct LinkSender<M> {
    pub(crate) queue: mpsc::Sender<(M, Vec<Bytes>)>,
    pub(crate) close: Arc<Notify>,
}

impl<M> Clone for LinkSender<M> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), close: Arc::clone(&self.close) }
    }
}

impl<M: Message + Send + 'static> LinkSender<M> {
    /// Hands a message over; never waits.
    ///
    /// # Errors
    /// If the queue is full or the link has ended.
    pub fn send(&self, message: M) -> Result<(), SendError> {
        self.send_with(message, Vec::new())
    }

    /// Hands a message and raw bytes over; never waits.
    ///
    /// # Errors
    /// If the queue is full or the link has ended.
    pub fn send_with(&self, message: M, tail: Vec<Bytes>) -> Result<(), SendError> {
        self.queue.try_send((message, tail)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Closed,
        })
    }

    /// Ends the link for all of its senders: what waits is written, the peer sees the end, further messages are refused.
    pub fn close(&self) {
        self.close.notify_one();
    }

    /// Resolves once the link has ended, with everything written that was sent before it was closed.
    pub async fn written(&self) {
        self.queue.closed().await;
    }

    /// Whether the link has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}

/// Whether a link that is watched rests: then the next message that is written makes the receiving end ask soon.
///
/// Each end writes its own word before it looks at the other one's, all in one order: of a message that is written while an answer
/// comes at least one of them knows.
#[derive(Debug, Default)]
struct Rest {
    /// A message was written since the last answer.
    written: AtomicBool,
    /// The other end is to be asked soon, and was not asked since.
    asked: AtomicBool,
    on: AtomicBool,
    ended: Notify,
}

impl Rest {
    /// A message is written.
    fn written(&self) {
        self.written.store(true, Ordering::SeqCst);
        self.end();
    }

    /// The other end is to be asked soon.
    fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        self.end();
    }

    fn end(&self) {
        if self.on.load(Ordering::SeqCst) && self.on.swap(false, Ordering::SeqCst) {
            self.ended.notify_one();
        }
    }
}

/// Has the other end of a watched link asked soon whether it moves, also if the link rests.
#[derive(Clone, Debug, Default)]
pub struct Asker(Arc<Rest>);

impl Asker {
    /// As if a message had been written.
    pub fn ask_soon(&self) {
        self.0.ask();
    }
}

/// The reading end.
#[derive(Debug)]
pub struct LinkReceiver<M> {
    stream: BufReader<Box<dyn Inbound>>,
    /// The connection, once something else carries frames: it only tells that the other end lives.
    beside: Option<Box<dyn Inbound>>,
    carrying: Carrying,
    /// What has arrived of the header, or of the body once `header` is known. It lives here and not in the future of
    /// [`LinkReceiver::receive`], so that a receive given up half-way loses nothing.
    partial: BytesMut,
    header: Option<FrameHeader>,
    /// What the other end said before it could hear that this one goes on through shared memory only: greetings.
    early: VecDeque<(FrameHeader, Bytes)>,
    /// To this end's writer.
    echoes: mpsc::Sender<Echo>,
    watching: Option<(EchoWatch, watch::Sender<Movement>)>,
    rest: Arc<Rest>,
    peer: String,
    info: PeerInfo,
    message: PhantomData<M>,
}

impl<M: Message> LinkReceiver<M> {
    /// From now on the other end is asked whether the link moves, as long as somebody [receives](Self::receive) here.
    pub fn watch(&mut self, times: EchoTimes) -> (watch::Receiver<Movement>, Asker) {
        let watch = EchoWatch::new(Instant::now().into_std(), times);
        let (told, movement) = watch::channel(watch.movement());
        self.watching = Some((watch, told));
        (movement, Asker(Arc::clone(&self.rest)))
    }

    /// Who is at the other end.
    #[must_use]
    pub const fn peer(&self) -> &PeerInfo {
        &self.info
    }

    /// Waits for the next frame. Cancel-safe: dropped before it is done, it goes on where it was when called again, so
    /// it may stand in a `select!`.
    ///
    /// # Errors
    /// If the connection ends or something arrives that is no frame of this link; the link is of no use then.
    pub async fn receive(&mut self) -> Result<Frame<M>, LinkError> {
        if let Some((header, body)) = self.early.pop_front() {
            return Frame::decode(header, body).map_err(|source| self.bad_frame(source));
        }
        let rest = Arc::clone(&self.rest);
        loop {
            let (header, body) = match self.watching.as_ref().map(|(watch, _)| watch.look_at()) {
                None => self.gather_frame().await?,
                Some(look_at) => tokio::select! {
                    biased;
                    frame = self.gather_frame() => frame?,
                    () = sleep_until(look_at.into()) => {
                        self.look();
                        continue;
                    }
                    () = rest.ended.notified() => {
                        self.stir();
                        continue;
                    }
                },
            };
            if header.is_echo() {
                let echo = Echo::decode(header, &body).map_err(|source| self.bad_frame(source))?;
                self.echoed(echo);
                continue;
            }
            if header.is_carry() {
                match self.carried(header, body)? {
                    Carried::Offered(offer) => self.carrying.join_beside(offer),
                    Carried::Ended => return Err(self.not_shared("the peer goes on with it only")),
                    Carried::AsBefore | Carried::Refused | Carried::Now(_) => {}
                }
                continue;
            }
            if self.carrying.refuses_messages() {
                self.carrying.refuse();
                return Err(self.not_shared("a message came without"));
            }
            if let Some((watch, _)) = &mut self.watching {
                watch.used();
                if watch.rests() {
                    self.stir();
                }
            }
            return Frame::decode(header, body).map_err(|source| self.bad_frame(source));
        }
    }

    /// Asks the other end to go on through shared memory, if this process has any: the link's user says when.
    pub(crate) fn share(&self) {
        self.carrying.ask();
    }

    /// The frames of this link's user go over RDMA; the link tells that the other end lives.
    pub(crate) fn carried_by_rdma(&self) {
        self.carrying.carried_by_rdma();
    }

    /// Asks for shared memory and waits until the other end goes on there, before any message is sent.
    async fn shared(&mut self) -> Result<(), LinkError> {
        self.carrying.ask();
        while self.beside.is_none() {
            let (header, body) = self.gather_frame().await?;
            if !header.is_carry() {
                if self.early.len() >= EARLY_FRAMES_MAX {
                    return Err(self.not_shared("it says other things"));
                }
                self.early.push_back((header, body));
                continue;
            }
            match self.carried(header, body)? {
                Carried::Offered(offer) => {
                    self.carrying.join(&offer).await.map_err(|reason| self.not_shared(&reason))?;
                }
                Carried::Refused => return Err(self.not_shared("the peer shares none; see its frames.transport")),
                Carried::Ended => return Err(self.not_shared("the peer goes on with it only")),
                Carried::AsBefore | Carried::Now(_) => {}
            }
        }
        Ok(())
    }

    /// Takes a word about what carries the link, and changes over if it says so.
    fn carried(&mut self, header: FrameHeader, body: Bytes) -> Result<Carried, LinkError> {
        let word = Frame::<Carry>::decode(header, body).map_err(|source| self.bad_frame(source))?.message;
        let carried = match self.carrying.hear(word) {
            // Whatever had come behind the word would be lost.
            Ok(Carried::Now(_)) if !self.stream.buffer().is_empty() => Err("something came behind the last frame"),
            carried => carried,
        };
        let out_of_turn = |reason: &str| FrameError::Malformed { link: Carry::LINK, reason: reason.to_owned() };
        match carried.map_err(|reason| self.bad_frame(out_of_turn(reason)))? {
            Carried::Now(inbound) => {
                let before = std::mem::replace(&mut self.stream, buffered(inbound));
                self.beside = Some(before.into_inner());
                Ok(Carried::AsBefore)
            }
            carried => Ok(carried),
        }
    }

    fn not_shared(&self, reason: &str) -> LinkError {
        LinkError::NotShared { peer: self.peer.clone(), reason: reason.to_owned() }
    }

    fn stir(&mut self) {
        let Some((watch, _)) = &mut self.watching else { return };
        // Whoever asks while a question is under way wants another one after its answer.
        if watch.rests() {
            self.rest.asked.store(false, Ordering::SeqCst);
        }
        watch.stir(Instant::now().into_std());
        self.rest.on.store(watch.rests(), Ordering::SeqCst);
    }

    fn look(&mut self) {
        let Some((watch, told)) = &mut self.watching else { return };
        // A question for which there is no room will not be answered, as it should be: the writer is stuck.
        if let Some(number) = watch.look(Instant::now().into_std()) {
            let _ = self.echoes.try_send(Echo::Ask(number));
        }
        tell(told, watch.movement());
    }

    fn echoed(&mut self, echo: Echo) {
        match (echo, &mut self.watching) {
            (Echo::Ask(number), _) => drop(self.echoes.try_send(Echo::Answer(number))),
            (Echo::Answer(number), Some((watch, told))) => {
                if self.rest.written.swap(false, Ordering::SeqCst) {
                    watch.used();
                }
                watch.answered(Instant::now().into_std(), number);
                tell(told, watch.movement());
                self.rest.on.store(watch.rests(), Ordering::SeqCst);
                // One that was written meanwhile found nobody at rest, and so did who had heard of the answer and wants another.
                if self.rest.written.load(Ordering::SeqCst) || self.rest.asked.load(Ordering::SeqCst) {
                    self.stir();
                }
            }
            (Echo::Answer(_), None) => {}
        }
    }

    async fn gather_frame(&mut self) -> Result<(FrameHeader, Bytes), LinkError> {
        let header = match self.header {
            Some(header) => header,
            None => {
                self.gather(FRAME_HEADER_BYTES).await?;
                let mut bytes = [0; FRAME_HEADER_BYTES];
                bytes.copy_from_slice(&self.partial);
                let header = FrameHeader::parse(bytes).map_err(|source| self.bad_frame(source))?;
                self.partial.clear();
                self.partial.reserve(header.length());
                self.header = Some(header);
                header
            }
        };
        self.gather(header.length()).await?;
        self.header = None;
        Ok((header, std::mem::take(&mut self.partial).freeze()))
    }

    /// Reads until `partial` has `length` bytes, and none of what follows them.
    async fn gather(&mut self, length: usize) -> Result<(), LinkError> {
        while self.partial.len() < length {
            let missing = length - self.partial.len();
            let mut into = (&mut self.partial).limit(missing);
            let read = match &mut self.beside {
                None => self.stream.read_buf(&mut into).await,
                Some(beside) => {
                    let ended = tokio::select! {
                        biased;
                        read = self.stream.read_buf(&mut into) => Ok(read),
                        ended = ended(beside) => Err(ended),
                    };
                    match ended {
                        Ok(read) => read,
                        Err(Some(reason)) => {
                            return Err(self.bad_frame(FrameError::Malformed { link: Carry::LINK, reason }));
                        }
                        // What it had written before is there, and is taken; nothing more comes.
                        Err(None) => self.stream.read_buf(&mut into).now_or_never().unwrap_or(Ok(0)),
                    }
                }
            };
            match read {
                Ok(0) => return Err(LinkError::Closed { peer: self.peer.clone() }),
                Ok(_) => {}
                Err(source) => return Err(LinkError::Io { peer: self.peer.clone(), source }),
            }
        }
        Ok(())
    }

    fn bad_frame(&self, source: FrameError) -> LinkError {
        LinkError::Frame { peer: self.peer.clone(), source }
    }
}

/// Waits for the end of a connection that carries nothing any more. Returns what is wrong if something comes.
async fn ended(beside: &mut Box<dyn Inbound>) -> Option<String> {
    match beside.read(&mut [0]).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some("something came over a connection that carries nothing any more".to_owned()),
    }
}

fn buffered(inbound: Box<dyn Inbound>) -> BufReader<Box<dyn Inbound>> {
    BufReader::with_capacity(READ_BUFFER_BYTES, inbound)
}

fn tell(told: &watch::Sender<Movement>, movement: Movement) {
    told.send_if_modified(|known| std::mem::replace(known, movement) != movement);
}

/// Opens a link to `addr` (`host:port`), where `expected` must answer. Once it is in use it goes on through shared memory if the two have
/// any and want to; where that is required, it does before its first message.
///
/// # Errors
/// If no connection is made within [`CONNECT_TIMEOUT`], somebody else answers, or required memory is not shared.
pub async fn connect_link<Out, In>(
    net: &Net,
    addr: &str,
    expected: &Expected,
) -> Result<(LinkSender<Out>, LinkReceiver<In>), LinkError>
where
    Out: Message + Send + 'static,
    In: Message,
{
    let connection = dial(net, addr, expected).await?;
    let carriers = net.carriers();
    let peer = connection.peer().to_string();
    // Whoever leads an address over another place wants the frames to pass there.
    let routed = net.through(addr) != addr && !carriers.wish().expected;
    let end = match carriers.rings() {
        Some(_) if routed => End::AsksWhenTold,
        Some(_) if carriers.must_share_with(&peer) => End::AsksFirst,
        Some(_) => End::AsksInUse,
        None => End::AsksWhenTold,
    };
    let (sender, mut receiver) = link_of::<Out, In>(connection, end);
    if end == End::AsksFirst {
        let shared = tokio::time::timeout(SHARED_WITHIN, receiver.shared()).await;
        shared.unwrap_or_else(|_| Err(receiver.not_shared("it took too long")))?;
    }
    Ok((sender, receiver))
}

/// Opens a link whose user says when it goes on through shared memory ([`LinkReceiver::share`]).
///
/// # Errors
/// If no connection is made within [`CONNECT_TIMEOUT`], or somebody else answers.
pub(crate) async fn connect_data_link<Out, In>(
    net: &Net,
    addr: &str,
    expected: &Expected,
) -> Result<(LinkSender<Out>, LinkReceiver<In>), LinkError>
where
    Out: Message + Send + 'static,
    In: Message,
{
    Ok(link_of(dial(net, addr, expected).await?, End::AsksWhenTold))
}

async fn dial(net: &Net, addr: &str, expected: &Expected) -> Result<Connection, LinkError> {
    tokio::time::timeout(CONNECT_TIMEOUT, net.dial(addr, expected))
        .await
        .map_err(|_| LinkError::ConnectTimeout { peer: addr.to_owned() })?
        .map_err(|source| LinkError::Io { peer: addr.to_owned(), source })
}

/// Makes a link of a connection that was accepted. Must be called inside a tokio runtime.
pub fn link_over<Out, In>(connection: Connection) -> (LinkSender<Out>, LinkReceiver<In>)
where
    Out: Message + Send + 'static,
    In: Message,
{
    let must = connection.carriers().wish().required;
    link_of(connection, End::Accepted { must })
}

/// The same for a link whose user says whether it goes on without shared memory.
pub(crate) fn data_link_over<Out, In>(connection: Connection) -> (LinkSender<Out>, LinkReceiver<In>)
where
    Out: Message + Send + 'static,
    In: Message,
{
    link_of(connection, End::Accepted { must: false })
}

fn link_of<Out, In>(connection: Connection, end: End) -> (LinkSender<Out>, LinkReceiver<In>)
where
    Out: Message + Send + 'static,
    In: Message,
{
    let (info, carriers) = (connection.peer().clone(), connection.carriers().clone());
    let (read, write) = connection.into_split();
    link_with((Box::new(read), Box::new(write)), info, carriers, end)
}

/// Where frames come from.
pub(crate) trait Inbound: AsyncRead + Send + Sync + Unpin + std::fmt::Debug {}

impl<T: AsyncRead + Send + Sync + Unpin + std::fmt::Debug> Inbound for T {}

/// Where frames go.
pub(crate) trait Outbound: AsyncWrite + Send + Sync + Unpin + std::fmt::Debug {}

impl<T: AsyncWrite + Send + Sync + Unpin + std::fmt::Debug> Outbound for T {}

/// The two directions of whatever carries frames.
pub(crate) type Streams = (Box<dyn Inbound>, Box<dyn Outbound>);

/// Makes a link of two directions to a peer that is known otherwise; nothing else ever carries it. Must be called inside a tokio runtime.
pub(crate) fn link_over_streams<Out, In>(streams: Streams, info: PeerInfo) -> (LinkSender<Out>, LinkReceiver<In>)
where
    Out: Message + Send + 'static,
    In: Message,
{
    link_with(streams, info, Carriers::default(), End::AsksWhenTold)
}

fn link_with<Out, In>(
    (read, write): Streams,
    info: PeerInfo,
    carriers: Carriers,
    end: End,
) -> (LinkSender<Out>, LinkReceiver<In>)
where
    Out: Message + Send + 'static,
    In: Message,
{
    let peer = info.to_string();
    let (queue, frames) = mpsc::channel(LINK_FRAMES_MAX);
    let close = Arc::new(Notify::new());
    let (echoes, echoed) = mpsc::channel(ECHOES_MAX);
    let (turns, carried) = mpsc::channel(TURNS_MAX);
    let rest = Arc::<Rest>::default();
    let writer = Writer {
        stream: write,
        beside: None,
        frames,
        echoes: echoed,
        turns: carried,
        asks_after: end.asks_after(),
        close: Arc::clone(&close),
        rest: Arc::clone(&rest),
        peer: peer.clone(),
        bytes: BytesMut::new(),
    };
    tokio::spawn(writer.run());
    let receiver = LinkReceiver {
        stream: buffered(read),
        beside: None,
        carrying: Carrying::new(end, turns, carriers, Out::NAME, peer.clone()),
        partial: BytesMut::new(),
        header: None,
        early: VecDeque::new(),
        echoes,
        watching: None,
        rest,
        peer,
        info,
        message: PhantomData,
    };
    (LinkSender { queue, close }, receiver)
}

/// The task that writes what gathers; ends with the last sender, with the connection, or at a frame that is too large.
struct Writer<M> {
    stream: Box<dyn Outbound>,
    /// The connection, once something else carries frames: it only tells that this end lives.
    beside: Option<Box<dyn Outbound>>,
    frames: mpsc::Receiver<(M, Vec<Bytes>)>,
    echoes: mpsc::Receiver<Echo>,
    turns: mpsc::Receiver<Turn>,
    /// Messages that are still to be written before this end asks for shared memory; none if it does not.
    asks_after: Option<u64>,
    close: Arc<Notify>,
    rest: Arc<Rest>,
    peer: String,
    bytes: BytesMut,
}

impl<M: Message> Writer<M> {
    async fn run(mut self) {
        loop {
            let (mut next, mut turn) = (None, None);
            tokio::select! {
                biased;
                first = self.frames.recv() => match first {
                    Some(first) => next = Some(first),
                    None => break,
                },
                () = self.close.notified() => break,
                Some(echo) = self.echoes.recv() => echo.encode(&mut self.bytes),
                Some(first) = self.turns.recv() => turn = Some(first),
            };
            if next.is_some() {
                self.rest.written();
            }
            let mut fits = true;
            while let Some((message, tail)) = next {
                if let Err(error) = Frame::encode(&message, &tail, &mut self.bytes) {
                    tracing::error!(peer = %self.peer, %error, "a frame cannot be sent; the link ends");
                    fits = false;
                    break;
                }
                self.asks_after = self.asks_after.map(|left| left.saturating_sub(1));
                next = if self.bytes.len() < COALESCE_BYTES { self.frames.try_recv().ok() } else { None };
            }
            while let Ok(echo) = self.echoes.try_recv() {
                echo.encode(&mut self.bytes);
            }
            if self.asks_after.take_if(|left| *left == 0).is_some() {
                self.say(&Carry::Ask);
            }
            let carrier = self.turns_of(turn);
            if let Err(error) = self.write().await {
                tracing::debug!(peer = %self.peer, %error, "link ended while writing");
                return;
            }
            // Both ends would wait for what is missing, each as long as it can. Of a link that has ended both know.
            if !fits {
                break;
            }
            if let Some(carrier) = carrier {
                self.beside = Some(std::mem::replace(&mut self.stream, carrier));
            }
        }
        // What the receiver had to say when it gave the link up.
        let _ = self.turns_of(None);
        let _ = self.write().await;
        let _ = self.stream.shutdown().await;
        if let Some(mut beside) = self.beside {
            let _ = beside.shutdown().await;
        }
    }

    /// Says what is to be said about the carrier. Returns another one if this end changes over, which was said then.
    fn turns_of(&mut self, mut turn: Option<Turn>) -> Option<Box<dyn Outbound>> {
        while let Some(now) = turn.take().or_else(|| self.turns.try_recv().ok()) {
            match now {
                Turn::Say(word) => self.say(&word),
                Turn::Switch(carrier) => {
                    self.say(&Carry::Switch);
                    return Some(carrier);
                }
            }
        }
        None
    }

    fn say(&mut self, word: &Carry) {
        Frame::encode(word, &[], &mut self.bytes).expect("such a word is small");
    }

    /// Writes what has gathered.
    async fn write(&mut self) -> std::io::Result<()> {
        self.stream.write_all(&self.bytes).await?;
        self.bytes.clear();
        // Encrypted records may stay behind until they are flushed.
        self.stream.flush().await
    }
}

#[cfg(test)]
mod tests {
    use symphony_net::{Incoming, Port, Role};
    use symphony_protocol::dispatch::{ToFrontend, ToLeader};
    use tokio::net::TcpListener;

    use super::*;

    // What links promise is in `tests/links`; here is what needs to look inside.

    async fn pair() -> ((LinkSender<ToLeader>, LinkReceiver<ToFrontend>), Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let mut incoming = Incoming::new(listener, Net::plaintext(), Port::new("test", &Role::ALL, 256));
        let scheduler = Role::Scheduler.into();
        let net = Net::plaintext();
        let (client, accepted) = tokio::join!(connect_link(&net, &addr, &scheduler), incoming.next());
        (client.unwrap(), accepted.unwrap())
    }

    fn rests_for_hours() -> EchoTimes {
        let (origin, second) = (Instant::now().into_std(), Duration::from_secs(1));
        EchoTimes {
            origin,
            ask_again_after: second,
            ask_again_max: second * 3600,
            stuck_after: second * 3600,
            late: second,
        }
    }

    /// The answer comes when the test says so.
    #[tokio::test]
    async fn a_message_between_a_question_and_its_answer_counts_as_use() {
        for written in [false, true] {
            let ((sender, mut receiver), _peer) = pair().await;
            let _ = receiver.watch(rests_for_hours());
            let begun = Instant::now().into_std();
            let watch = |receiver: &mut LinkReceiver<ToFrontend>| receiver.watching.as_ref().unwrap().0;
            receiver.watching.as_mut().unwrap().0.look(begun + Duration::from_secs(1)).unwrap();
            assert!(!watch(&mut receiver).rests(), "an answer is waited for");
            if written {
                sender.send(ToLeader::Cancel { requests: vec![] }).unwrap();
                while !receiver.rest.written.load(Ordering::SeqCst) {
                    tokio::task::yield_now().await;
                }
            }
            receiver.echoed(Echo::Answer(1));
            assert_eq!(watch(&mut receiver).rests(), !written);
        }
    }

    #[tokio::test]
    async fn who_is_asked_to_asks_soon_also_over_a_link_that_rests() {
        let ((_sender, mut receiver), _peer) = pair().await;
        let (_, asker) = receiver.watch(rests_for_hours());
        receiver.watching.as_mut().unwrap().0.look(Instant::now().into_std() + Duration::from_secs(1)).unwrap();
        receiver.echoed(Echo::Answer(1));
        assert!(receiver.watching.as_ref().unwrap().0.rests());
        asker.ask_soon();
        let nothing = futures::poll!(Box::pin(receiver.receive()));
        assert!(nothing.is_pending() && !receiver.watching.as_ref().unwrap().0.rests());
    }

    /// The answer is told to others before the link rests.
    #[tokio::test]
    async fn who_asks_at_the_moment_of_an_answer_is_heard() {
        let ((_sender, mut receiver), _peer) = pair().await;
        let (_, asker) = receiver.watch(rests_for_hours());
        receiver.watching.as_mut().unwrap().0.look(Instant::now().into_std() + Duration::from_secs(1)).unwrap();
        // Not at rest yet, as in the middle of `echoed`.
        asker.ask_soon();
        receiver.echoed(Echo::Answer(1));
        assert!(!receiver.watching.as_ref().unwrap().0.rests());
        assert!(!receiver.rest.asked.load(Ordering::SeqCst), "and not for ever");
    }

    #[tokio::test]
    async fn a_message_that_is_written_ends_the_rest_of_a_watched_link() {
        let ((sender, mut receiver), stream) = pair().await;
        let (_back, mut answering) = link_over::<ToFrontend, ToLeader>(stream);
        let answers = tokio::spawn(async move { answering.receive().await.map(|frame| frame.message) });
        let second = Duration::from_secs(1);
        let times = EchoTimes { stuck_after: second * 60, ..rests_for_hours() };
        let (mut movement, _) = receiver.watch(times);
        tokio::select! {
            moved = movement.wait_for(|movement| *movement == Movement::Moves) => drop(moved.unwrap()),
            frame = receiver.receive() => panic!("{frame:?}"),
        }
        let look_at = |receiver: &LinkReceiver<ToFrontend>| receiver.watching.as_ref().unwrap().0.look_at();
        let rests_until = look_at(&receiver);
        let message = ToLeader::Cancel { requests: vec![(1, 0)] };
        sender.send(message.clone()).unwrap();
        assert_eq!(answers.await.unwrap().unwrap(), message, "it is written");
        let nothing = futures::poll!(Box::pin(receiver.receive()));
        assert!(nothing.is_pending() && look_at(&receiver) < rests_until);
    }

    #[tokio::test]
    async fn nobody_listening_is_an_error_that_names_the_peer() {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
        let error = connect_link::<ToLeader, ToFrontend>(&Net::plaintext(), &free, &Role::Scheduler.into())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(&free), "{error}");
    }
}
