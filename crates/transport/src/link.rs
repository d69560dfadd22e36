//! A link: one connection that carries frames of one message type each way.
//!
//! Writing never waits: frames go into a bounded queue, and a task of the link's own writes everything that has
//! gathered with one system call (coalescing). A full queue means that the peer has stopped reading; the sender is told
//! and the link is given up, because a late plan or request is worth nothing.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use symphony_net::{Connection, Expected, Net, PeerInfo, ReadHalf, WriteHalf};
use symphony_protocol::{FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, Message};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc};

/// Frames that may wait for the writer of a link. At a hundred thousand frames per second this is 80 ms of them.
pub const LINK_FRAMES_MAX: usize = 8192;

/// How long a connection may take to be made.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// One write gathers about this much before it goes out.
const COALESCE_BYTES: usize = 256 << 10;

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

/// The reading end.
#[derive(Debug)]
pub struct LinkReceiver<M> {
    stream: BufReader<ReadHalf>,
    /// What has arrived of the header, or of the body once `header` is known. It lives here and not in the future of
    /// [`LinkReceiver::receive`], so that a receive given up half-way loses nothing.
    partial: BytesMut,
    header: Option<FrameHeader>,
    peer: String,
    info: PeerInfo,
    message: PhantomData<M>,
}

impl<M: Message> LinkReceiver<M> {
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
        let body = std::mem::take(&mut self.partial).freeze();
        Frame::decode(header, body).map_err(|source| self.bad_frame(source))
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
    let peer = info.to_string();
    let (read, write) = connection.into_split();
    let (queue, frames) = mpsc::channel(LINK_FRAMES_MAX);
    let close = Arc::new(Notify::new());
    tokio::spawn(write_frames(write, frames, Arc::clone(&close), peer.clone()));
    let stream = BufReader::with_capacity(READ_BUFFER_BYTES, read);
    let receiver = LinkReceiver { stream, partial: BytesMut::new(), header: None, peer, info, message: PhantomData };
    (LinkSender { queue, close }, receiver)
}

/// Writes what gathers; ends with the last sender, or with the connection.
async fn write_frames<M: Message>(
    mut stream: WriteHalf,
    mut frames: mpsc::Receiver<(M, Vec<Bytes>)>,
    close: Arc<Notify>,
    peer: String,
) {
    let mut bytes = BytesMut::new();
    loop {
        let first = tokio::select! {
            biased;
            first = frames.recv() => first,
            () = close.notified() => None,
        };
        let Some(first) = first else { break };
        let mut next = Some(first);
        while let Some((message, tail)) = next {
            if let Err(error) = Frame::encode(&message, &tail, &mut bytes) {
                tracing::error!(%peer, %error, "frame not sent");
            }
            next = if bytes.len() < COALESCE_BYTES { frames.try_recv().ok() } else { None };
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
        bytes.clear();
    }
    let _ = stream.shutdown().await;
}

#[cfg(test)]
mod tests {
    use symphony_net::{Incoming, Role};
    use symphony_protocol::dispatch::{ToFrontend, ToLeader};
    use symphony_types::Token;
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> ((LinkSender<ToLeader>, LinkReceiver<ToFrontend>), Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let mut incoming = Incoming::new(listener, Net::plaintext(), "test", &Role::ALL);
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
