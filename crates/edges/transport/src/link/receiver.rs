//! The reading end: turns bytes into frames, and handles the protocol below messages.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{BufMut, Bytes, BytesMut};
use futures::FutureExt as _;
use symphony_net::{ClusterLevel, PeerInfo};
use symphony_protocol::carrier::CarrierMessage;
use symphony_protocol::{Echo, FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, Message};
use tokio::io::{AsyncReadExt as _, BufReader};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::rest::{EchoTrigger, Rest};
use super::{Inbound, LinkError};
use crate::carrier_negotiation::{CarrierChange, CarrierNegotiation};
use crate::echo::{EchoTimes, EchoWatch, Movement};

/// Frames that the other end may send before it learns that this one requires another carrier.
const EARLY_FRAMES_MAX: usize = 8;

/// Size of the read buffer: one system call brings many small frames.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// The reading end.
#[derive(Debug)]
pub struct LinkReceiver<M> {
    stream: BufReader<Box<dyn Inbound>>,
    /// The connection, once another carrier has the frames: it only shows that the other end lives.
    beside: Option<Box<dyn Inbound>>,
    carrying: CarrierNegotiation,
    /// The part of the header that has arrived, or of the body once `header` is known. It is stored here and not in the
    /// future of [`LinkReceiver::receive`], so that a cancelled receive loses nothing.
    partial: BytesMut,
    header: Option<FrameHeader>,
    /// Frames that the other end sent before it could know that this one requires another carrier: greetings.
    early: VecDeque<(FrameHeader, Bytes)>,
    /// Requests to this end's writer.
    echoes: mpsc::Sender<Echo>,
    watching: Option<(EchoWatch, watch::Sender<Movement>)>,
    rest: Arc<Rest>,
    level: ClusterLevel,
    peer: String,
    info: PeerInfo,
    message: PhantomData<M>,
}

impl<M: Message> LinkReceiver<M> {
    pub(super) fn new(
        stream: Box<dyn Inbound>,
        carrying: CarrierNegotiation,
        echoes: mpsc::Sender<Echo>,
        rest: Arc<Rest>,
        level: ClusterLevel,
        info: PeerInfo,
    ) -> Self {
        Self {
            stream: buffered(stream),
            beside: None,
            carrying,
            partial: BytesMut::new(),
            header: None,
            early: VecDeque::new(),
            echoes,
            watching: None,
            rest,
            level,
            peer: info.to_string(),
            info,
            message: PhantomData,
        }
    }

    /// Starts asking the other end whether the link moves, while the caller [receives](Self::receive) here.
    pub fn watch(&mut self, times: EchoTimes) -> (watch::Receiver<Movement>, EchoTrigger) {
        let watch = EchoWatch::new(Instant::now().into_std(), times);
        let (sender, movement) = watch::channel(watch.movement());
        self.watching = Some((watch, sender));
        (movement, EchoTrigger(Arc::clone(&self.rest)))
    }

    /// What this process writes by.
    pub(crate) const fn level(&self) -> &ClusterLevel {
        &self.level
    }

    /// The authenticated peer.
    #[must_use]
    pub const fn peer(&self) -> &PeerInfo {
        &self.info
    }

    /// Waits for the next frame. Cancel-safe: the next call continues where a dropped one stopped, so it may be used in
    /// a `select!`.
    ///
    /// # Errors
    /// If the connection ends, or something arrives that is not a frame of this link; the link cannot be used then.
    pub async fn receive(&mut self) -> Result<Frame<M>, LinkError> {
        if let Some((header, body)) = self.early.pop_front() {
            return Frame::decode(header, body).map_err(|source| self.bad_frame(source));
        }
        let rest = Arc::clone(&self.rest);
        loop {
            let (header, body) = match self.watching.as_ref().map(|(watch, _)| watch.poll_at()) {
                None => self.gather_frame().await?,
                Some(poll_at) => tokio::select! {
                    biased;
                    frame = self.gather_frame() => frame?,
                    () = sleep_until(poll_at.into()) => {
                        self.poll_echo();
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
                if let CarrierChange::Ended = self.carried(header, body)? {
                    return Err(self.only_tcp("the peer goes on with one only"));
                }
                continue;
            }
            if self.carrying.refuses_messages() {
                self.carrying.refuse();
                return Err(self.only_tcp("a message came over TCP"));
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

    /// Asks the other end to go on through shared memory, if this process has any; the link's user decides when.
    pub(crate) fn share(&self) {
        self.carrying.ask();
    }

    /// The frames of this link's user go over RDMA; the link only shows that the other end lives.
    pub(crate) fn carried_by_rdma(&self) {
        self.carrying.carried_by_rdma();
    }

    /// Asks for another carrier, and waits until the other end goes on there, before any message is sent.
    pub(super) async fn leaves_tcp(&mut self) -> Result<(), LinkError> {
        self.carrying.ask();
        let mut fails = None;
        while self.beside.is_none() {
            let (header, body) = tokio::select! {
                frame = self.gather_frame() => frame?,
                reason = why(&mut fails) => return Err(self.only_tcp(&reason)),
            };
            if header.is_echo() {
                let echo = Echo::decode(header, &body).map_err(|source| self.bad_frame(source))?;
                self.echoed(echo);
                continue;
            }
            if !header.is_carry() {
                if self.early.len() >= EARLY_FRAMES_MAX {
                    return Err(self.only_tcp("it says other things"));
                }
                self.early.push_back((header, body));
                continue;
            }
            match self.carried(header, body)? {
                CarrierChange::Making(failed) => fails = Some(failed),
                CarrierChange::Refused => {
                    return Err(self.only_tcp("the peer has nothing else; see its frames.transport"));
                }
                CarrierChange::Ended => return Err(self.only_tcp("the peer goes on with one only")),
                CarrierChange::AsBefore | CarrierChange::Now(_) => {}
            }
        }
        Ok(())
    }

    /// Handles a negotiation message, and changes over if it orders that.
    fn carried(&mut self, header: FrameHeader, body: Bytes) -> Result<CarrierChange, LinkError> {
        let message = Frame::<CarrierMessage>::decode(header, body).map_err(|source| self.bad_frame(source))?.message;
        let carried = match self.carrying.receive(message) {
            // Anything that had come after this message would be lost.
            Ok(CarrierChange::Now(_)) if !self.stream.buffer().is_empty() => {
                Err("something came behind the last frame")
            }
            carried => carried,
        };
        let out_of_turn =
            |reason: &str| FrameError::Malformed { link: CarrierMessage::LINK, reason: reason.to_owned() };
        match carried.map_err(|reason| self.bad_frame(out_of_turn(reason)))? {
            CarrierChange::Now(inbound) => {
                let before = std::mem::replace(&mut self.stream, buffered(inbound));
                self.beside = Some(before.into_inner());
                Ok(CarrierChange::AsBefore)
            }
            carried => Ok(carried),
        }
    }

    pub(super) fn only_tcp(&self, reason: &str) -> LinkError {
        LinkError::OnlyTcp { peer: self.peer.clone(), reason: reason.to_owned() }
    }

    fn stir(&mut self) {
        let Some((watch, _)) = &mut self.watching else { return };
        // A request during an open one means another one after its answer.
        if watch.rests() {
            self.rest.echo_wanted.store(false, Ordering::SeqCst);
        }
        watch.stir(Instant::now().into_std());
        self.rest.on.store(watch.rests(), Ordering::SeqCst);
    }

    fn poll_echo(&mut self) {
        let Some((watch, sender)) = &mut self.watching else { return };
        // A request for which there is no room stays unanswered, as it should: the writer is stuck.
        if let Some(number) = watch.poll_echo(Instant::now().into_std()) {
            let _ = self.echoes.try_send(Echo::Ask(number));
        }
        publish(sender, watch.movement());
    }

    fn echoed(&mut self, echo: Echo) {
        match (echo, &mut self.watching) {
            (Echo::Ask(number), _) => drop(self.echoes.try_send(Echo::Answer(number))),
            (Echo::Answer(number), Some((watch, sender))) => {
                if self.rest.written.swap(false, Ordering::SeqCst) {
                    watch.used();
                }
                watch.answered(Instant::now().into_std(), number);
                publish(sender, watch.movement());
                self.rest.on.store(watch.rests(), Ordering::SeqCst);
                // A message that was written meanwhile did not find the link at rest, nor did a caller that saw the
                // answer and wants another one.
                if self.rest.written.load(Ordering::SeqCst) || self.rest.echo_wanted.load(Ordering::SeqCst) {
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
                let header = FrameHeader::parse(bytes, self.level.newest()).map_err(|source| self.bad_frame(source))?;
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

    /// Reads until `partial` has `length` bytes, and nothing of what follows.
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
                            return Err(self.bad_frame(FrameError::Malformed { link: CarrierMessage::LINK, reason }));
                        }
                        // What it had written before has arrived and is read; nothing more comes.
                        Err(None) => self.stream.read_buf(&mut into).now_or_never().unwrap_or_else(|| {
                            self.stream.get_mut().gone();
                            Ok(0)
                        }),
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

/// Waits until the setup of another carrier fails, and returns the reason.
async fn why(fails: &mut Option<oneshot::Receiver<String>>) -> String {
    if let Some(failed) = fails
        && let Ok(reason) = failed.await
    {
        return reason;
    }
    // It succeeded, or there is none.
    *fails = None;
    std::future::pending().await
}

/// Waits for the end of a connection that carries no frames any more. Returns what is wrong if something comes.
async fn ended(beside: &mut Box<dyn Inbound>) -> Option<String> {
    match beside.read(&mut [0]).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some("something came over a connection that carries nothing any more".to_owned()),
    }
}

fn buffered(inbound: Box<dyn Inbound>) -> BufReader<Box<dyn Inbound>> {
    BufReader::with_capacity(READ_BUFFER_BYTES, inbound)
}

fn publish(sender: &watch::Sender<Movement>, movement: Movement) {
    sender.send_if_modified(|known| std::mem::replace(known, movement) != movement);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use symphony_net::{Connection, Incoming, Net, Port, Role};
    use symphony_protocol::dispatch::{ToFrontend, ToLeader};
    use symphony_types::Level;
    use tokio::net::TcpListener;

    use super::*;
    use crate::link::{LinkSender, connect_link, link_over};

    // The promises of links are tested in `tests/links`; here are the tests that need the inside.

    async fn pair() -> ((LinkSender<ToLeader>, LinkReceiver<ToFrontend>), Connection) {
        pair_of(Net::plaintext(), Net::plaintext()).await
    }

    async fn pair_of(net: Net, accepts: Net) -> ((LinkSender<ToLeader>, LinkReceiver<ToFrontend>), Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let mut incoming = Incoming::new(listener, accepts, Port::new("test", &Role::ALL, 256));
        let scheduler = Role::Scheduler.into();
        let (client, accepted) = tokio::join!(connect_link(&net, &addr, &scheduler), incoming.next());
        (client.unwrap(), accepted.unwrap())
    }

    /// The two ends of a link may be of two releases, and a process may hear of the raise before the other does. Where
    /// the levels have the same frames, the link goes on.
    #[tokio::test]
    async fn a_raise_reaches_an_open_link_and_who_does_not_know_its_frames_ends_it_with_words() {
        for newest in [Level::NEWEST, Level::OLDEST] {
            let (dials, accepts) = (ClusterLevel::default(), ClusterLevel::up_to(newest));
            let ((sender, _receiver), connection) =
                pair_of(Net::plaintext().levelled(dials.clone()), Net::plaintext().levelled(accepts)).await;
            let (_back, mut receiver) = link_over::<ToFrontend, ToLeader>(connection);
            let message = ToLeader::Cancel { requests: vec![(1, 0)] };
            sender.send(message.clone()).unwrap();
            assert_eq!(receiver.receive().await.unwrap().message, message);
            dials.update(Level::NEWEST);
            sender.send(message.clone()).unwrap();
            match receiver.receive().await {
                Ok(frame) => {
                    assert_eq!(frame.message, message);
                    assert_eq!(newest.formats().frames, Level::NEWEST.formats().frames);
                }
                Err(error) => {
                    let (refusal, frames) = (error.to_string(), Level::NEWEST.formats().frames);
                    assert!(newest.formats().frames < frames, "{refusal}");
                    assert!(refusal.contains(&format!("frame version {frames} from the peer")), "{refusal}");
                }
            }
        }
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
            receiver.watching.as_mut().unwrap().0.poll_echo(begun + Duration::from_secs(1)).unwrap();
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
        let (_, echo_trigger) = receiver.watch(rests_for_hours());
        receiver.watching.as_mut().unwrap().0.poll_echo(Instant::now().into_std() + Duration::from_secs(1)).unwrap();
        receiver.echoed(Echo::Answer(1));
        assert!(receiver.watching.as_ref().unwrap().0.rests());
        echo_trigger.echo_soon();
        let nothing = futures::poll!(Box::pin(receiver.receive()));
        assert!(nothing.is_pending() && !receiver.watching.as_ref().unwrap().0.rests());
    }

    /// The answer is published before the link rests.
    #[tokio::test]
    async fn who_asks_at_the_moment_of_an_answer_is_heard() {
        let ((_sender, mut receiver), _peer) = pair().await;
        let (_, echo_trigger) = receiver.watch(rests_for_hours());
        receiver.watching.as_mut().unwrap().0.poll_echo(Instant::now().into_std() + Duration::from_secs(1)).unwrap();
        // Not at rest yet, as in the middle of `echoed`.
        echo_trigger.echo_soon();
        receiver.echoed(Echo::Answer(1));
        assert!(!receiver.watching.as_ref().unwrap().0.rests());
        assert!(!receiver.rest.echo_wanted.load(Ordering::SeqCst), "and not for ever");
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
        let poll_at = |receiver: &LinkReceiver<ToFrontend>| receiver.watching.as_ref().unwrap().0.poll_at();
        let rests_until = poll_at(&receiver);
        let message = ToLeader::Cancel { requests: vec![(1, 0)] };
        sender.send(message.clone()).unwrap();
        assert_eq!(answers.await.unwrap().unwrap(), message, "it is written");
        let nothing = futures::poll!(Box::pin(receiver.receive()));
        assert!(nothing.is_pending() && poll_at(&receiver) < rests_until);
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
