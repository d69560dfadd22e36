//! A link: one connection that carries frames of one message type each way.
//!
//! Writing never waits: frames go into a bounded queue, and a task of the link's own writes everything that has
//! gathered with one system call (coalescing). A full queue means that the peer has stopped reading; the sender is told
//! and the link is given up, because a late plan or request is worth nothing.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use symphony_net::{Connection, Expected, Net, PeerInfo};
use symphony_protocol::{Echo, FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, Message};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::echo::{EchoTimes, EchoWatch, Movement};

/// Frames that may wait for the writer of a link. At a hundred thousand frames per second this is 80 ms of them.
pub const LINK_FRAMES_MAX: usize = 8192;

/// How long a connection may take to be made.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// One write gathers about this much before it goes out.
const COALESCE_BYTES: usize = 256 << 10;

/// Questions and answers about a link that may wait for its writer; an end that asks waits for the answer before it asks again.
const ECHOES_MAX: usize = 8;

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
    /// What has arrived of the header, or of the body once `header` is known. It lives here and not in the future of
    /// [`LinkReceiver::receive`], so that a receive given up half-way loses nothing.
    partial: BytesMut,
    header: Option<FrameHeader>,
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
            if let Some((watch, _)) = &mut self.watching {
                watch.used();
                if watch.rests() {
                    self.stir();
                }
            }
            return Frame::decode(header, body).map_err(|source| self.bad_frame(source));
        }
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
            match self.stream.read_buf(&mut (&mut self.partial).limit(missing)).await {
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

fn tell(told: &watch::Sender<Movement>, movement: Movement) {
    told.send_if_modified(|known| std::mem::replace(known, movement) != movement);
}

/// Opens a link to `addr` (`host:port`), where `expected` must answer.
///
/// # Errors
/// If no connection is made within [`CONNECT_TIMEOUT`], or somebody else answers.
pub async fn connect_link<Out, In>(
    net: &Net,
    addr: &str,
    expected: &Expected,
) -> Result<(LinkSender<Out>, LinkReceiver<In>), LinkError>
where
    Out: Message + Send + 'static,
    In: Message,
{
    let connection = tokio::time::timeout(CONNECT_TIMEOUT, net.dial(addr, expected))
        .await
        .map_err(|_| LinkError::ConnectTimeout { peer: addr.to_owned() })?
        .map_err(|source| LinkError::Io { peer: addr.to_owned(), source })?;
    Ok(link_over(connection))
}

/// Makes a link of a connection. Must be called inside a tokio runtime.
pub fn link_over<Out, In>(connection: Connection) -> (LinkSender<Out>, LinkReceiver<In>)
where
    Out: Message + Send + 'static,
    In: Message,
{
    let info = connection.peer().clone();
    let (read, write) = connection.into_split();
    link_over_streams((Box::new(read), Box::new(write)), info)
}

/// Where frames come from.
pub(crate) trait Inbound: AsyncRead + Send + Sync + Unpin + std::fmt::Debug {}

impl<T: AsyncRead + Send + Sync + Unpin + std::fmt::Debug> Inbound for T {}

/// Where frames go.
pub(crate) trait Outbound: AsyncWrite + Send + Sync + Unpin + std::fmt::Debug {}

impl<T: AsyncWrite + Send + Sync + Unpin + std::fmt::Debug> Outbound for T {}

/// The two directions of whatever carries frames.
pub(crate) type Streams = (Box<dyn Inbound>, Box<dyn Outbound>);

/// Makes a link of two directions to a peer that is known otherwise. Must be called inside a tokio runtime.
pub(crate) fn link_over_streams<Out, In>((read, write): Streams, info: PeerInfo) -> (LinkSender<Out>, LinkReceiver<In>)
where
    Out: Message + Send + 'static,
    In: Message,
{
    let peer = info.to_string();
    let (queue, frames) = mpsc::channel(LINK_FRAMES_MAX);
    let close = Arc::new(Notify::new());
    let (echoes, echoed) = mpsc::channel(ECHOES_MAX);
    let rest = Arc::<Rest>::default();
    tokio::spawn(write_frames(write, frames, echoed, Arc::clone(&close), Arc::clone(&rest), peer.clone()));
    let receiver = LinkReceiver {
        stream: BufReader::with_capacity(READ_BUFFER_BYTES, read),
        partial: BytesMut::new(),
        header: None,
        echoes,
        watching: None,
        rest,
        peer,
        info,
        message: PhantomData,
    };
    (LinkSender { queue, close }, receiver)
}

/// Writes what gathers; ends with the last sender, with the connection, or at a frame that is too large.
async fn write_frames<M: Message>(
    mut stream: Box<dyn Outbound>,
    mut frames: mpsc::Receiver<(M, Vec<Bytes>)>,
    mut echoes: mpsc::Receiver<Echo>,
    close: Arc<Notify>,
    rest: Arc<Rest>,
    peer: String,
) {
    let mut bytes = BytesMut::new();
    loop {
        let mut next = tokio::select! {
            biased;
            first = frames.recv() => match first {
                Some(first) => Some(first),
                None => break,
            },
            () = close.notified() => break,
            Some(echo) = echoes.recv() => {
                echo.encode(&mut bytes);
                None
            }
        };
        if next.is_some() {
            rest.written();
        }
        let mut fits = true;
        while let Some((message, tail)) = next {
            if let Err(error) = Frame::encode(&message, &tail, &mut bytes) {
                tracing::error!(%peer, %error, "a frame cannot be sent; the link ends");
                fits = false;
                break;
            }
            next = if bytes.len() < COALESCE_BYTES { frames.try_recv().ok() } else { None };
        }
        while let Ok(echo) = echoes.try_recv() {
            echo.encode(&mut bytes);
        }
        // Encrypted records may stay behind until they are flushed.
        if let Err(error) = async {
            stream.write_all(&bytes).await?;
            stream.flush().await
        }
        .await
        {
            tracing::debug!(%peer, %error, "link ended while writing");
            return;
        }
        // Both ends would wait for what is missing, each as long as it can. Of a link that has ended both know.
        if !fits {
            break;
        }
        bytes.clear();
    }
    let _ = stream.shutdown().await;
}

#[cfg(test)]
mod tests {
    use symphony_net::{Incoming, Port, Role};
    use symphony_protocol::dispatch::{ToFrontend, ToLeader};
    use symphony_types::Token;
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> ((LinkSender<ToLeader>, LinkReceiver<ToFrontend>), Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let mut incoming = Incoming::new(listener, Net::plaintext(), Port::new("test", &Role::ALL, 256));
        let scheduler = Role::Scheduler.into();
        let net = Net::plaintext();
        let (client, accepted) = tokio::join!(connect_link(&net, &addr, &scheduler), incoming.next());
        (client.unwrap(), accepted.unwrap())
    }

    #[tokio::test]
    async fn frames_arrive_in_order_with_their_tails() {
        let ((sender, _receiver), stream) = pair().await;
        let (_back, mut receiver) = link_over::<ToFrontend, ToLeader>(stream);
        for sequence in 0..1000 {
            let tail = vec![Bytes::from(vec![7; sequence])];
            sender.send_with(ToLeader::Cancel { requests: vec![(sequence as u64, 0)] }, tail).unwrap();
        }
        for sequence in 0..1000 {
            let frame = receiver.receive().await.unwrap();
            assert_eq!(frame.message, ToLeader::Cancel { requests: vec![(sequence as u64, 0)] });
            assert_eq!(frame.tail.len(), sequence);
        }
        drop(sender);
        assert!(matches!(receiver.receive().await, Err(LinkError::Closed { .. })));
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

    /// Byte by byte, and after every byte the receive is given up as a `select!` does it.
    #[tokio::test]
    async fn a_receive_given_up_between_any_two_bytes_loses_nothing() {
        let ((_sender, mut receiver), mut stream) = pair().await;
        let mut bytes = BytesMut::new();
        let messages: Vec<_> = (1..4).map(|n| ToFrontend::Welcome { token: Token::new(n) }).collect();
        for message in &messages {
            Frame::encode(message, &[Bytes::from_static(b"tail")], &mut bytes).unwrap();
        }
        let mut received = Vec::new();
        for &byte in &bytes {
            stream.write_all(&[byte]).await.unwrap();
            // A few turns of the runtime bring the byte to the receiver, which then holds part of a frame.
            for _ in 0..4 {
                tokio::select! {
                    biased;
                    frame = receiver.receive() => received.push(frame.unwrap()),
                    () = tokio::task::yield_now() => {}
                }
            }
        }
        while received.len() < messages.len() {
            let frame = tokio::time::timeout(Duration::from_secs(5), receiver.receive()).await;
            received.push(frame.expect("the stream is in step").unwrap());
        }
        assert!(received.iter().all(|frame| frame.tail == "tail"));
        assert_eq!(received.into_iter().map(|frame| frame.message).collect::<Vec<_>>(), messages);
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_fills_the_queue_and_the_sender_is_told() {
        let ((sender, _receiver), _stream) = pair().await;
        let mut refused = None;
        for _ in 0..4 * LINK_FRAMES_MAX {
            let tail = vec![Bytes::from_static(&[0; 8192])];
            if let Err(error) = sender.send_with(ToLeader::Cancel { requests: vec![] }, tail) {
                refused = Some(error);
                break;
            }
        }
        assert_eq!(refused, Some(SendError::Full));
    }

    #[tokio::test]
    async fn a_closed_link_ends_for_all_its_senders_after_what_was_sent() {
        let ((sender, _receiver), stream) = pair().await;
        let (_back, mut receiver) = link_over::<ToFrontend, ToLeader>(stream);
        let other = sender.clone();
        sender.send(ToLeader::Cancel { requests: vec![(1, 0)] }).unwrap();
        sender.close();
        assert!(receiver.receive().await.is_ok());
        assert!(matches!(receiver.receive().await, Err(LinkError::Closed { .. })));
        assert_eq!(other.send(ToLeader::Cancel { requests: vec![] }), Err(SendError::Closed));
    }

    #[tokio::test]
    async fn a_frame_that_cannot_be_sent_ends_the_link_after_what_was_sent_before() {
        let ((sender, _receiver), stream) = pair().await;
        let (_back, mut receiver) = link_over::<ToFrontend, ToLeader>(stream);
        let message = || ToLeader::Cancel { requests: vec![(1, 0)] };
        sender.send(message()).unwrap();
        let large = Bytes::from(vec![0; symphony_protocol::FRAME_BYTES_MAX]);
        sender.send_with(message(), vec![large]).unwrap();
        assert!(receiver.receive().await.is_ok());
        assert!(matches!(receiver.receive().await, Err(LinkError::Closed { .. })));
        sender.written().await;
        assert_eq!(sender.send(message()), Err(SendError::Closed));
    }

    /// Moves the clock of the test until the watch says so.
    async fn until(movement: &mut watch::Receiver<Movement>, wanted: Movement) {
        let told = movement.wait_for(|now| *now == wanted);
        tokio::time::timeout(Duration::from_secs(60), told).await.expect("in time").expect("the link is there");
    }

    #[tokio::test]
    async fn a_link_moves_while_its_peer_receives_and_is_stuck_when_it_does_no_more() {
        let ms = Duration::from_millis;
        let times = EchoTimes {
            origin: Instant::now().into_std(),
            ask_again_after: ms(1),
            ask_again_max: ms(10),
            stuck_after: ms(200),
            late: Duration::from_secs(60),
        };
        let ((_sender, mut receiver), stream) = pair().await;
        let (mut movement, _) = receiver.watch(times);
        let receiving = tokio::spawn(async move { receiver.receive().await.map(|frame| frame.message) });
        let (back, mut peer) = link_over::<ToFrontend, ToLeader>(stream);
        let answering = tokio::spawn(async move { drop(peer.receive().await) });
        until(&mut movement, Movement::Moves).await;
        // The connection stays up, nobody reads it.
        answering.abort();
        until(&mut movement, Movement::Stuck).await;
        let word = ToFrontend::Welcome { token: Token::new(1) };
        back.send(word.clone()).unwrap();
        assert_eq!(receiving.await.unwrap().unwrap(), word, "messages pass all the same");
    }

    #[tokio::test]
    async fn rubbish_ends_the_link_with_a_reason() {
        let ((_sender, mut receiver), mut stream) = pair().await;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let error = receiver.receive().await.unwrap_err();
        assert!(matches!(error, LinkError::Frame { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_message_of_another_link_is_refused() {
        let ((_sender, mut receiver), stream) = pair().await;
        let (wrong, _) = link_over::<ToLeader, ToFrontend>(stream);
        wrong.send(ToLeader::Submit { token: Token::new(1), requests: vec![] }).unwrap();
        let error = receiver.receive().await.unwrap_err().to_string();
        assert!(error.contains("wrong port or wrong peer"), "{error}");
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
