//! Payloads over TCP: one data link per frontend, opened when it is first needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use symphony_net::{Expected, Net, Role};
use symphony_protocol::FRAME_BYTES_MAX;
use symphony_protocol::data::{FromOwner, ToOwner};
use symphony_protocol::view::{FrontendView, View};
use symphony_types::{BackendId, BootId, FrontendId};
use tokio::sync::{oneshot, watch};
use tokio_util::task::TaskTracker;

use crate::link::{LinkReceiver, LinkSender, connect_link};
use crate::payload::{PayloadTransport, Payloads, ResultToOwner};

/// How long an owner may take to welcome: it may hear of this backend a moment after a leader has, and waits for that.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a read may take; a batch that waits longer has missed its start by far.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Inputs that one frame asks for. The answer is one frame too, so this leaves each input a sixteenth of
/// [`FRAME_BYTES_MAX`]: a batch of 128 pictures does not fit into a single frame.
const READ_REQUESTS_MAX: usize = 16;

/// Bytes of results in one frame, unless a single result is larger.
const RESULT_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;

/// The life of a frontend that a link leads to.
type Owner = (FrontendId, BootId);

/// Reads that wait for their answer on one link; none once the link has ended and nobody will answer.
type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Payloads>>>>>;

/// The link to one owner. Locked while it is opened, so that an owner that cannot be reached holds up only reads from
/// itself.
type LinkSlot = Arc<tokio::sync::Mutex<Option<DataLink>>>;

#[derive(Clone, Debug)]
struct DataLink {
    sender: LinkSender<ToOwner>,
    waiting: Waiting,
}

/// A read under way; forgets itself when it is given up.
struct ReadUnderWay<'a> {
    waiting: &'a Waiting,
    read: u64,
}

/// [`PayloadTransport`] over TCP. Finds frontends through the cluster's view.
#[derive(Clone, Debug)]
pub struct TcpPayloads {
    backend: BackendId,
    boot: BootId,
    net: Net,
    view: watch::Receiver<Arc<View>>,
    links: Arc<Mutex<HashMap<Owner, LinkSlot>>>,
    reads: Arc<std::sync::atomic::AtomicU64>,
    /// Results on their way to a link.
    deliveries: TaskTracker,
}

impl TcpPayloads {
    /// For the backend of that id and life. Must be used inside a tokio runtime.
    #[must_use]
    pub fn new(backend: BackendId, boot: BootId, net: Net, view: watch::Receiver<Arc<View>>) -> Self {
        Self { backend, boot, net, view, links: Arc::default(), reads: Arc::default(), deliveries: TaskTracker::new() }
    }

    /// The link to an owner, opened if there is none. None if the owner is not in the view or cannot be reached.
    async fn link(&self, owner: Owner) -> Option<DataLink> {
        let slot = self.slot(owner)?;
        let mut slot = slot.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| link.is_open()) {
            return Some(link.clone());
        }
        *slot = None;
        let (addr, frontend) = frontend_of(&self.view.borrow(), owner)
            .map(|frontend| (frontend.data_addr.clone(), Expected::named(Role::Frontend, &frontend.name)))?;
        let (sender, receiver) = match self.open(&addr, &frontend, owner.1).await {
            Ok(link) => link,
            Err(reason) => {
                tracing::warn!(frontend = %owner.0, %reason, "no data link");
                return None;
            }
        };
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn(take_answers(receiver, Arc::clone(&waiting)));
        Some(slot.insert(DataLink { sender, waiting }).clone())
    }

    /// A link over which its owner has said welcome: before that, whatever is sent may be lost without a word.
    async fn open(
        &self,
        addr: &str,
        frontend: &Expected,
        life: BootId,
    ) -> Result<(LinkSender<ToOwner>, LinkReceiver<FromOwner>), String> {
        let link = connect_link::<ToOwner, FromOwner>(&self.net, addr, frontend).await;
        let (sender, mut receiver) = link.map_err(|error| error.to_string())?;
        let hello = ToOwner::Hello { backend: self.backend, boot: self.boot, frontend_boot: life };
        sender.send(hello).map_err(|error| error.to_string())?;
        match tokio::time::timeout(WELCOME_TIMEOUT, receiver.receive()).await {
            Err(_) => Err(format!("no welcome within {} ms", WELCOME_TIMEOUT.as_millis())),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(frame)) => match frame.message {
                FromOwner::Welcome { boot } if boot == life => Ok((sender, receiver)),
                other => Err(format!("{other:?} instead of a welcome in life {life}")),
            },
        }
    }

    fn slot(&self, owner: Owner) -> Option<LinkSlot> {
        let view = self.view.borrow();
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if !links.contains_key(&owner) {
            // A frontend that has restarted is another owner: what led to its former life is let go.
            links.retain(|&other, _| frontend_of(&view, other).is_some());
            frontend_of(&view, owner)?;
        }
        Some(Arc::clone(links.entry(owner).or_default()))
    }

    async fn try_read(&self, owner: Owner, sequences: Vec<u64>) -> Option<Payloads> {
        let link = self.link(owner).await?;
        let read = self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (waiter, answer) = oneshot::channel();
        link.waiting().as_mut()?.insert(read, waiter);
        let _under_way = ReadUnderWay { waiting: &link.waiting, read };
        link.sender.send(ToOwner::Read { read, sequences }).ok()?;
        answer.await.ok()
    }

    async fn read_some(&self, owner: Owner, sequences: &[u64]) -> Payloads {
        let read = tokio::time::timeout(READ_TIMEOUT, self.try_read(owner, sequences.to_vec()));
        let payloads = read.await.ok().flatten().unwrap_or_default();
        // An owner that answers with another number of payloads than asked is not to be trusted with any.
        if payloads.len() == sequences.len() { payloads } else { vec![None; sequences.len()] }
    }
}

impl DataLink {
    fn waiting(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Payloads>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sender alone does not tell: it notices a peer that has gone only when it writes, and then too late.
    fn is_open(&self) -> bool {
        !self.sender.is_closed() && self.waiting().is_some()
    }
}

impl Drop for ReadUnderWay<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            waiting.remove(&self.read);
        }
    }
}

/// That life of a frontend, if it is in the view.
fn frontend_of(view: &View, owner: Owner) -> Option<&FrontendView> {
    view.frontends.get(&owner.0).filter(|f| f.boot == owner.1)
}

/// Hands answers to the reads that wait for them, until the link ends.
async fn take_answers(mut receiver: LinkReceiver<FromOwner>, waiting: Waiting) {
    while let Ok(frame) = receiver.receive().await {
        let FromOwner::Payloads { read, lengths } = frame.message else { continue };
        let mut tail = frame.tail;
        let payloads = lengths
            .into_iter()
            .map(|length| {
                let length = length? as usize;
                (length <= tail.len()).then(|| tail.split_to(length))
            })
            .collect();
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiter) = waiting.as_mut().and_then(|waiting| waiting.remove(&read)) {
            let _ = waiter.send(payloads);
        }
    }
    // Nobody will answer any more: dropping the waiters tells them, and none may come after them.
    *waiting.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Splits results into frames that are not too large.
fn in_frames(results: Vec<ResultToOwner>) -> Vec<Vec<ResultToOwner>> {
    let (mut frames, mut bytes) = (vec![Vec::new()], 0);
    for result in results {
        if bytes > 0 && bytes + result.bytes.len() > RESULT_BYTES_MAX {
            frames.push(Vec::new());
            bytes = 0;
        }
        bytes += result.bytes.len();
        if let Some(frame) = frames.last_mut() {
            frame.push(result);
        }
    }
    frames
}

impl PayloadTransport for TcpPayloads {
    async fn read(&self, frontend: FrontendId, boot: BootId, sequences: Vec<u64>) -> Payloads {
        let reads = sequences.chunks(READ_REQUESTS_MAX).map(|some| self.read_some((frontend, boot), some));
        futures::future::join_all(reads).await.concat()
    }

    fn deliver(&self, frontend: FrontendId, boot: BootId, results: Vec<ResultToOwner>) {
        let this = self.clone();
        self.deliveries.spawn(async move {
            let link = this.link((frontend, boot)).await;
            for frame in in_frames(results) {
                let (heads, tail): (Vec<_>, Vec<_>) = frame.into_iter().map(|r| (r.result, r.bytes)).unzip();
                let lost = heads.len();
                let results = ToOwner::Results { results: heads };
                if link.as_ref().is_none_or(|link| link.sender.send_with(results, tail).is_err()) {
                    tracing::warn!(%frontend, results = lost, "results lost: their owner cannot be reached");
                }
            }
        });
    }

    async fn finish(&self) {
        self.deliveries.close();
        self.deliveries.wait().await;
        let slots: Vec<_> = self.links.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for slot in slots {
            if let Some(link) = slot.lock().await.take() {
                link.sender.close();
                link.sender.written().await;
            }
        }
    }

    fn name(&self) -> &'static str {
        "tcp"
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use symphony_protocol::data::{RequestResult, ResultBytes};
    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    use super::*;
    use crate::link_over;

    const BOOT: BootId = BootId::new(4);

    /// A transport that knows one frontend per address, numbered from 1, and the sender of its view.
    fn transport(addrs: &[std::net::SocketAddr]) -> (TcpPayloads, watch::Sender<Arc<View>>) {
        let frontend = |addr: &std::net::SocketAddr| FrontendView {
            name: addr.to_string(),
            boot: BOOT,
            data_addr: addr.to_string(),
            ..FrontendView::default()
        };
        let frontends = (1..).map(FrontendId::new).zip(addrs.iter().map(frontend)).collect();
        let (sender, view) = watch::channel(Arc::new(View { frontends, ..View::default() }));
        (TcpPayloads::new(BackendId::new(1), BootId::new(2), Net::plaintext(), view), sender)
    }

    async fn listener() -> (TcpListener, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        (listener, addr)
    }

    /// The owner's side of a link, once it has welcomed.
    async fn welcome(stream: TcpStream) -> (LinkSender<FromOwner>, LinkReceiver<ToOwner>) {
        let connection = Net::plaintext().accept(stream, &[]).await.unwrap();
        let (sender, mut receiver) = link_over::<FromOwner, ToOwner>(connection);
        assert!(matches!(receiver.receive().await.unwrap().message, ToOwner::Hello { frontend_boot: BOOT, .. }));
        sender.send(FromOwner::Welcome { boot: BOOT }).unwrap();
        (sender, receiver)
    }

    /// Answers every read with `payload` for each request; ends with the link.
    async fn own(stream: TcpStream, payload: Bytes) {
        let (sender, mut receiver) = welcome(stream).await;
        while let Ok(frame) = receiver.receive().await {
            if let ToOwner::Read { read, sequences } = frame.message {
                let lengths = vec![Some(payload.len() as u32); sequences.len()];
                sender
                    .send_with(FromOwner::Payloads { read, lengths }, vec![payload.clone(); sequences.len()])
                    .unwrap();
            }
        }
    }

    #[tokio::test]
    async fn a_frontend_that_does_not_answer_the_connection_holds_up_nobody_else() {
        // A full backlog: the system drops further attempts to connect without a word.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = socket.listen(0).unwrap();
        let silent_addr = silent.local_addr().unwrap();
        let mut fillers = Vec::new();
        while let Ok(filler) = tokio::time::timeout(Duration::from_millis(50), TcpStream::connect(silent_addr)).await {
            fillers.push(filler);
        }
        let (live, live_addr) = listener().await;
        tokio::spawn(async move { own(live.accept().await.unwrap().0, Bytes::from_static(b"input")).await });

        let (transport, _view) = transport(&[silent_addr, live_addr]);
        let waits = transport.clone();
        let mut waits = Box::pin(waits.read(FrontendId::new(1), BOOT, vec![1]));
        assert!(futures::poll!(&mut waits).is_pending(), "it is connecting");
        let payloads = transport.read(FrontendId::new(2), BOOT, vec![1]).await;
        assert_eq!(payloads, [Some(Bytes::from_static(b"input"))]);
        assert!(futures::poll!(&mut waits).is_pending(), "the other one did not wait for it");
        assert_eq!(waits.await, [None]);
    }

    #[tokio::test]
    async fn a_link_that_its_owner_closed_is_opened_again() {
        let (owner, addr) = listener().await;
        let (transport, _view) = transport(&[addr]);
        let read = || tokio::time::timeout(READ_TIMEOUT / 2, transport.read(FrontendId::new(1), BOOT, vec![1]));

        let (first, stream) = tokio::join!(read(), async { drop(owner.accept().await.unwrap()) });
        assert_eq!((first.unwrap(), stream), (vec![None], ()));
        tokio::spawn(async move { own(owner.accept().await.unwrap().0, Bytes::from_static(b"input")).await });
        assert_eq!(read().await.unwrap(), [Some(Bytes::from_static(b"input"))]);
    }

    #[tokio::test]
    async fn results_are_sent_once_their_owner_has_welcomed() {
        let (owner, addr) = listener().await;
        let (transport, _view) = transport(&[addr]);
        let deliver = || {
            let result = RequestResult { sequence: 1, outcome: ResultBytes::Answer(6), batch: 1, execution: 1 };
            let bytes = Bytes::from_static(b"output");
            transport.deliver(FrontendId::new(1), BOOT, vec![ResultToOwner { result, bytes }]);
        };
        // An owner that has not heard of this backend yet waits before it welcomes, or hangs up.
        deliver();
        let connection = Net::plaintext().accept(owner.accept().await.unwrap().0, &[]).await.unwrap();
        let (sender, mut receiver) = link_over::<FromOwner, ToOwner>(connection);
        assert!(matches!(receiver.receive().await.unwrap().message, ToOwner::Hello { .. }));
        let early = tokio::time::timeout(Duration::from_millis(100), receiver.receive()).await;
        assert!(early.is_err(), "before the welcome came {early:?}");
        sender.send(FromOwner::Welcome { boot: BOOT }).unwrap();
        let frame = receiver.receive().await.unwrap();
        assert!(matches!(frame.message, ToOwner::Results { results } if results.len() == 1));
        assert_eq!(frame.tail, "output");
    }

    #[tokio::test]
    async fn an_owner_in_another_life_is_no_owner() {
        let (owner, addr) = listener().await;
        let (transport, _view) = transport(&[addr]);
        let answers = async {
            let connection = Net::plaintext().accept(owner.accept().await.unwrap().0, &[]).await.unwrap();
            let (sender, receiver) = link_over::<FromOwner, ToOwner>(connection);
            sender.send(FromOwner::Welcome { boot: BootId::new(5) }).unwrap();
            (sender, receiver)
        };
        let (_link, payloads) = tokio::join!(answers, transport.read(FrontendId::new(1), BOOT, vec![1]));
        assert_eq!(payloads, [None]);
    }

    #[tokio::test]
    async fn a_read_that_is_given_up_is_forgotten() {
        let (owner, addr) = listener().await;
        let (transport, _view) = transport(&[addr]);
        let accepted = async { welcome(owner.accept().await.unwrap().0).await };
        let (_silent, link) = tokio::join!(accepted, transport.link((FrontendId::new(1), BOOT)));
        let link = link.unwrap();
        {
            let mut read = Box::pin(transport.read(FrontendId::new(1), BOOT, vec![1]));
            assert!(futures::poll!(&mut read).is_pending());
            assert_eq!(link.waiting().as_ref().unwrap().len(), 1);
        }
        assert_eq!(link.waiting().as_ref().unwrap().len(), 0);
    }

    #[tokio::test]
    async fn more_than_fits_into_a_frame_arrives_in_several() {
        let (owner, addr) = listener().await;
        let payload = Bytes::from(vec![7; 2 << 20]);
        let (transport, _view) = transport(&[addr]);
        let answers = payload.clone();
        tokio::spawn(async move { own(owner.accept().await.unwrap().0, answers).await });
        let payloads = transport.read(FrontendId::new(1), BOOT, (0..40).collect()).await;
        assert_eq!(payloads, vec![Some(payload.clone()); 40]);

        let result = RequestResult { sequence: 1, outcome: ResultBytes::Answer(2 << 20), batch: 40, execution: 1 };
        let frames = in_frames(vec![ResultToOwner { result, bytes: payload }; 40]);
        assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [16, 16, 8]);
    }

    #[tokio::test]
    async fn a_former_life_of_a_frontend_is_not_read_from() {
        let (_owner, addr) = listener().await;
        let (transport, _view) = transport(&[addr]);
        assert_eq!(transport.read(FrontendId::new(1), BootId::new(3), vec![1, 2]).await, [None, None]);
    }
}
