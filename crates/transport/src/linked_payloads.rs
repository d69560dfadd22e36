//! Payloads between processes: one data link per frontend, opened when it is first needed. With a frontend of the same host
//! inputs are read from its memory, and the link says only what is not there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use symphony_config::PayloadsConfig;
use symphony_net::{Expected, Net, Role};
use symphony_protocol::FRAME_BYTES_MAX;
use symphony_protocol::data::{FromOwner, RdmaOffer, ResultBytes, SharingOffer, ToOwner};
use symphony_protocol::view::{FrontendView, View};
use symphony_scheduler::{PayloadDelay, PayloadMeter};
use symphony_shared_memory::Unreadable;
use symphony_types::{BackendId, BootId, FrontendId, Nanos, Time};
use tokio::sync::{oneshot, watch};
use tokio_util::task::TaskTracker;

use crate::link::{LinkReceiver, LinkSender, connect_link, link_over_streams};
use crate::payload::{PayloadTransport, Payloads, ResultToOwner};
use crate::rdma::{RdmaBegun, RdmaInputs, RdmaReader};
use crate::read_times::{PairReading, ReadTimes, Readings, Way};
use crate::sharing::SharedPair;

/// How long an owner may take to welcome: it may hear of this backend a moment after a leader has, and waits for that.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the first READ over a fresh RDMA connection may take, before the two agree on TCP: some thousand times what it takes where
/// packets arrive, and less than its reader waits for the link.
const PROVED_WITHIN: Duration = Duration::from_millis(500);

/// How long a read may take; a batch that waits longer has missed its start by far.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Inputs that one frame asks for. The answer is one frame too, so this leaves each input a sixteenth of
/// [`FRAME_BYTES_MAX`]: a batch of 128 pictures does not fit into a single frame.
const READ_REQUESTS_MAX: usize = 16;

/// Bytes of results in one frame, unless a single result is larger.
const RESULT_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;

/// Results up to so many bytes go with the frame that announces them: a place in shared memory takes two frames more.
const RESULT_INLINE_BYTES_MAX: usize = 64 << 10;

/// So many bytes are copied out of shared memory before others of the runtime have their turn.
const COPY_BYTES_MAX: usize = 1 << 20;

/// How long the last results may wait in shared memory for their owners to take them.
const TAKEN_WITHIN: Duration = Duration::from_millis(500);
/// How often it is looked meanwhile whether the link is still there.
const TAKEN_LOOK_EVERY: Duration = Duration::from_millis(20);

/// The life of a frontend that a link leads to.
type Owner = (FrontendId, BootId);

/// What depends on a link; none once it has ended and nobody will answer.
type Session = Arc<Mutex<Option<Open>>>;

/// The link to one owner. Locked while it is opened, so that an owner that cannot be reached holds up only reads from
/// itself.
type LinkSlot = Arc<tokio::sync::Mutex<Option<DataLink>>>;

/// What depends on an open link.
#[derive(Debug)]
struct Open {
    /// Reads that wait for their answer.
    waiting: HashMap<u64, oneshot::Sender<Payloads>>,
    /// How inputs are found without asking.
    inputs: Inputs,
}

/// Where a frontend's inputs are.
#[derive(Clone, Debug)]
enum Inputs {
    /// In memory that both have.
    Shared(Arc<SharedPair>),
    /// In memory that the network reads.
    Rdma(Arc<RdmaInputs>),
    /// Nowhere: they are asked for.
    Asked,
}

/// A link on which both ends have agreed how payloads travel.
struct Opened {
    sender: LinkSender<ToOwner>,
    receiver: LinkReceiver<FromOwner>,
    inputs: Inputs,
    /// The link beside RDMA, which only tells that the other end lives.
    beside: Option<(LinkSender<ToOwner>, LinkReceiver<FromOwner>)>,
}

#[derive(Clone, Debug)]
struct DataLink {
    sender: LinkSender<ToOwner>,
    session: Session,
    way: Way,
    times: Arc<ReadTimes>,
}

/// A read under way; forgets itself when it is given up.
struct ReadUnderWay<'a> {
    session: &'a Session,
    read: u64,
}

/// [`PayloadTransport`] to other processes. Finds frontends through the cluster's view.
#[derive(Clone, Debug)]
pub struct LinkedPayloads {
    backend: BackendId,
    boot: BootId,
    net: Net,
    config: PayloadsConfig,
    view: watch::Receiver<Arc<View>>,
    links: Arc<Mutex<HashMap<Owner, LinkSlot>>>,
    reads: Arc<AtomicU64>,
    damaged: Arc<AtomicU64>,
    /// This process's device; none if it is not to be used, or cannot be.
    rdma: Option<RdmaReader>,
    times: Arc<ReadTimes>,
    /// What of these is to be planned for.
    meter: Arc<Mutex<PayloadMeter>>,
    /// From here on its time counts.
    born: Instant,
    /// Results on their way to a link.
    deliveries: TaskTracker,
}

impl LinkedPayloads {
    /// For the backend of that id and life. Must be used inside a tokio runtime.
    #[must_use]
    pub fn new(
        backend: BackendId,
        boot: BootId,
        net: Net,
        config: PayloadsConfig,
        view: watch::Receiver<Arc<View>>,
    ) -> Self {
        let (links, reads, damaged, times, meter) = Default::default();
        let rdma = config.wants_rdma().then(|| RdmaReader::open(config.rdma_device(), config.pool_bytes()));
        let rdma =
            rdma.and_then(|rdma| rdma.inspect_err(|error| tracing::warn!(%error, "payloads travel by TCP")).ok());
        let (born, deliveries) = (Instant::now(), TaskTracker::new());
        Self { backend, boot, net, config, view, links, reads, damaged, rdma, times, meter, born, deliveries }
    }

    /// What is known of the reads so far, and how each owner is reached.
    #[must_use]
    pub fn readings(&self) -> Readings {
        let slots: Vec<_> = {
            let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
            links.iter().map(|(&(frontend, _), slot)| (frontend, Arc::clone(slot))).collect()
        };
        let mut pairs = Vec::with_capacity(slots.len());
        for (frontend, slot) in slots {
            // One that is being opened has nothing to say.
            let Ok(link) = slot.try_lock() else { continue };
            if let Some(link) = link.as_ref().filter(|link| link.is_open()) {
                pairs.push(PairReading { frontend, way: link.way, reads: Way::ALL.map(|way| link.times.read(way)) });
            }
        }
        pairs.sort_by_key(|pair| pair.frontend);
        let damaged = self.damaged.load(Ordering::Relaxed);
        Readings { reads: Way::ALL.map(|way| self.times.read(way)), damaged, delay: self.delay(), pairs }
    }

    /// A read of so many bytes, which was asked for at that time, has come.
    fn meter(&self, begun: Instant, bytes: usize) {
        let (now, nanos) = (Instant::now(), |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let (at, took) = (Time::from_nanos(nanos(now - self.born)), Nanos::new(nanos(now - begun)));
        self.meter.lock().unwrap_or_else(PoisonError::into_inner).note(at, bytes as u64, took);
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
        let Opened { sender, receiver, inputs, beside } = match self.open(&addr, &frontend, owner.1).await {
            Ok(link) => link,
            Err(reason) => {
                tracing::warn!(frontend = %owner.0, %reason, "no data link");
                return None;
            }
        };
        let way = inputs.way();
        tracing::info!(frontend = %owner.0, transport = way.label(), "data link");
        let session: Session = Arc::new(Mutex::new(Some(Open { waiting: HashMap::new(), inputs })));
        tokio::spawn(live(receiver, beside, Arc::clone(&session)));
        Some(slot.insert(DataLink { sender, session, way, times: Arc::default() }).clone())
    }

    /// A link over which its owner has said welcome: before that, whatever is sent may be lost without a word.
    async fn open(&self, addr: &str, frontend: &Expected, life: BootId) -> Result<Opened, String> {
        let link = connect_link::<ToOwner, FromOwner>(&self.net, addr, frontend).await;
        let (sender, mut receiver) = link.map_err(|error| error.to_string())?;
        // Whoever leads an address over another place wants the bytes to pass there.
        let routed = self.net.through(addr) != addr && !self.config.expects_sharing();
        let shares = self.config.shares() && !routed;
        let begun = self.begin_rdma(addr, routed)?;
        let rdma = begun.as_ref().map(RdmaBegun::endpoint);
        let hello = ToOwner::Hello { backend: self.backend, boot: self.boot, frontend_boot: life, shares, rdma };
        sender.send(hello).map_err(|error| error.to_string())?;
        let (sharing, rdma) = match tokio::time::timeout(WELCOME_TIMEOUT, receiver.receive()).await {
            Err(_) => return Err(format!("no welcome within {} ms", WELCOME_TIMEOUT.as_millis())),
            Ok(Err(error)) => return Err(error.to_string()),
            Ok(Ok(frame)) => match frame.message {
                FromOwner::Welcome { boot, sharing, rdma } if boot == life => (sharing, rdma),
                FromOwner::MustShare => {
                    return Err("the frontend requires shared memory; see backend.payloads.transport".to_owned());
                }
                FromOwner::MustUseRdma => {
                    return Err("the frontend requires RDMA; see backend.payloads.transport".to_owned());
                }
                other => return Err(format!("{other:?} instead of a welcome in life {life}")),
            },
        };
        let offered = sharing.is_some() || rdma.is_some();
        let inputs = if let Some(begun) = begun {
            self.join_rdma(begun, rdma, addr).await?
        } else if shares {
            self.share(sharing, addr).await?.map_or(Inputs::Asked, Inputs::Shared)
        } else {
            Inputs::Asked
        };
        if offered {
            let joined = ToOwner::Joined { shares: !matches!(inputs, Inputs::Asked) };
            sender.send(joined).map_err(|error| error.to_string())?;
        }
        let Inputs::Rdma(rdma) = &inputs else { return Ok(Opened { sender, receiver, inputs, beside: None }) };
        let (by_rdma, from_rdma) = link_over_streams(rdma.streams(), receiver.peer().clone());
        Ok(Opened { sender: by_rdma, receiver: from_rdma, inputs, beside: Some((sender, receiver)) })
    }

    /// This end of an RDMA connection, if one is wanted. Where it is required and cannot be, the link is not to be.
    fn begin_rdma(&self, addr: &str, routed: bool) -> Result<Option<RdmaBegun>, String> {
        if !self.config.wants_rdma() {
            return Ok(None);
        }
        let begun = match &self.rdma {
            _ if routed => Err("the address is routed elsewhere".to_owned()),
            _ if self.net.credentials().is_none() => Err("keys are handed out over mutual TLS only".to_owned()),
            None => Err("this process has none; see its start".to_owned()),
            Some(rdma) => rdma.begin(),
        };
        self.or_tcp(begun, "RDMA", addr)
    }

    /// Takes up what the frontend offers, if something can be read there: a connection is made without a word, also where all its
    /// packets vanish.
    async fn join_rdma(&self, begun: RdmaBegun, offer: Option<RdmaOffer>, addr: &str) -> Result<Inputs, String> {
        let offer = offer.ok_or_else(|| "the frontend does not offer it; see frontend.payloads.transport".to_owned());
        let mut joined = offer.and_then(|offer| begun.join(&offer));
        if let Ok(inputs) = &joined
            && let Err(reason) = proved(inputs.prove()).await
        {
            inputs.end();
            joined = Err(reason);
        }
        Ok(self.or_tcp(joined, "RDMA", addr)?.map_or(Inputs::Asked, |inputs| Inputs::Rdma(Arc::new(inputs))))
    }

    /// What cannot be had is an error where it is required, and worth a warning where it was asked for by name.
    fn or_tcp<T>(&self, had: Result<T, String>, what: &str, addr: &str) -> Result<Option<T>, String> {
        match had {
            Ok(had) => Ok(Some(had)),
            Err(reason) if self.config.must_share() || self.config.must_use_rdma() => {
                Err(format!("backend.payloads requires {what} with {addr}: {reason}"))
            }
            Err(reason) => {
                if self.config.expects_sharing() || self.config.wants_rdma() {
                    tracing::warn!(addr, reason, "payloads travel by TCP");
                } else {
                    tracing::debug!(addr, reason, "payloads travel by TCP");
                }
                Ok(None)
            }
        }
    }

    /// Takes up what the frontend offers, or says why that is not so.
    async fn share(&self, offer: Option<SharingOffer>, addr: &str) -> Result<Option<Arc<SharedPair>>, String> {
        let joined = match &offer {
            Some(offer) => SharedPair::join(offer, self.config.pool_bytes()).await,
            None => Err("the frontend does not offer shared memory; see frontend.payloads.transport".to_owned()),
        };
        self.or_tcp(joined.map(Arc::new), "shared memory", addr)
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

    /// Inputs that are found without asking; none for the others.
    async fn look(&self, link: &DataLink, sequences: &[u64]) -> Payloads {
        match link.inputs() {
            Inputs::Shared(shared) => self.look_here(&shared, sequences).await,
            Inputs::Rdma(rdma) => self.look_there(&rdma, sequences).await,
            Inputs::Asked => vec![None; sequences.len()],
        }
    }

    /// Copies inputs out of shared memory.
    async fn look_here(&self, shared: &SharedPair, sequences: &[u64]) -> Payloads {
        let (mut payloads, mut copied) = (Vec::with_capacity(sequences.len()), 0);
        for &sequence in sequences {
            let input = self.found(sequence, shared.input(sequence));
            copied += input.as_ref().map_or(0, Bytes::len);
            payloads.push(input);
            if copied > COPY_BYTES_MAX {
                copied = 0;
                tokio::task::yield_now().await;
            }
        }
        payloads
    }

    /// READs inputs, all at once as far as there are credits.
    async fn look_there(&self, rdma: &RdmaInputs, sequences: &[u64]) -> Payloads {
        let one = |&sequence| async move {
            match rdma.input(sequence).await {
                Ok(input) => self.found(sequence, input),
                Err(reason) => {
                    tracing::debug!(sequence, reason, "an input is not read");
                    None
                }
            }
        };
        let all = futures::future::join_all(sequences.iter().map(one));
        match tokio::time::timeout(READ_TIMEOUT, all).await {
            Ok(payloads) => payloads,
            Err(_) => {
                // A device that neither answers nor says that it cannot: the next read makes another link.
                tracing::warn!(
                    "no answer to RDMA reads within {} ms; the connection is given up",
                    READ_TIMEOUT.as_millis()
                );
                rdma.end();
                vec![None; sequences.len()]
            }
        }
    }

    fn found(&self, sequence: u64, input: Result<Bytes, Unreadable>) -> Option<Bytes> {
        if input == Err(Unreadable::Damaged) {
            self.damaged.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(sequence, "an input is damaged in its owner's memory; it is asked for over the link");
        }
        input.ok()
    }

    /// Asks for inputs over the link.
    async fn ask(&self, link: &DataLink, sequences: &[u64]) -> Payloads {
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        let answer = tokio::time::timeout(READ_TIMEOUT, link.ask(read, sequences.to_vec()));
        let payloads = answer.await.ok().flatten().unwrap_or_default();
        // An owner that answers with another number of payloads than asked is not to be trusted with any.
        if payloads.len() == sequences.len() { payloads } else { vec![None; sequences.len()] }
    }

    fn count(&self, link: &DataLink, count: impl Fn(&ReadTimes)) {
        count(&self.times);
        count(&link.times);
    }
}

impl DataLink {
    fn session(&self) -> MutexGuard<'_, Option<Open>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inputs(&self) -> Inputs {
        self.session().as_ref().map_or(Inputs::Asked, |open| open.inputs.clone())
    }

    fn shared(&self) -> Option<Arc<SharedPair>> {
        match self.inputs() {
            Inputs::Shared(shared) => Some(shared),
            Inputs::Rdma(_) | Inputs::Asked => None,
        }
    }

    /// The sender alone does not tell: it notices a peer that has gone only when it writes, and then too late.
    fn is_open(&self) -> bool {
        !self.sender.is_closed() && self.session().is_some()
    }

    async fn ask(&self, read: u64, sequences: Vec<u64>) -> Option<Payloads> {
        let (waiter, answer) = oneshot::channel();
        self.session().as_mut()?.waiting.insert(read, waiter);
        let _under_way = ReadUnderWay { session: &self.session, read };
        self.sender.send(ToOwner::Read { read, sequences }).ok()?;
        answer.await.ok()
    }
}

impl Drop for ReadUnderWay<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.session.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            open.waiting.remove(&self.read);
        }
    }
}

/// Whether a first READ comes back, in time.
async fn proved(read: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let within = PROVED_WITHIN.as_millis();
    let proved = tokio::time::timeout(PROVED_WITHIN, read).await;
    proved.unwrap_or_else(|_| Err(format!("a first READ did not come back within {within} ms")))
}

/// That life of a frontend, if it is in the view.
fn frontend_of(view: &View, owner: Owner) -> Option<&FrontendView> {
    view.frontends.get(&owner.0).filter(|f| f.boot == owner.1)
}

impl Inputs {
    /// What the two have agreed on.
    const fn way(&self) -> Way {
        match self {
            Self::Shared(_) => Way::SharedMemory,
            Self::Rdma(_) => Way::Rdma,
            Self::Asked => Way::Tcp,
        }
    }
}

/// Hands answers to the reads that wait for them, until the link ends, or the one beside it.
async fn live(
    receiver: LinkReceiver<FromOwner>,
    beside: Option<(LinkSender<ToOwner>, LinkReceiver<FromOwner>)>,
    session: Session,
) {
    let Some((_sender, mut beside)) = beside else { return take_answers(receiver, session).await };
    tokio::select! {
        () = take_answers(receiver, Arc::clone(&session)) => {}
        frame = beside.receive() => if let Ok(frame) = frame {
            tracing::warn!(peer = %beside.peer(), message = ?frame.message, "a frame came over the data link beside RDMA");
        }
    }
    let open = session.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Open { inputs: Inputs::Rdma(rdma), .. }) = open {
        rdma.end();
    }
}

/// Hands answers to the reads that wait for them, until the link ends.
async fn take_answers(mut receiver: LinkReceiver<FromOwner>, session: Session) {
    while let Ok(frame) = receiver.receive().await {
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = session.as_mut() else { break };
        match frame.message {
            FromOwner::Payloads { read, lengths } => {
                if let Some(waiter) = open.waiting.remove(&read) {
                    let _ = waiter.send(split(&lengths, frame.tail));
                }
            }
            FromOwner::Taken { sequences } => {
                if let Inputs::Shared(shared) = &open.inputs {
                    shared.taken(&sequences);
                }
            }
            FromOwner::MustShare => {
                tracing::warn!(peer = %receiver.peer(), "the frontend requires shared memory, and the two share none");
            }
            FromOwner::MustUseRdma => {
                tracing::warn!(peer = %receiver.peer(), "the frontend requires RDMA, and the two have none");
            }
            FromOwner::Welcome { .. } => {}
        }
    }
    // Nobody will answer any more: dropping the waiters tells them, and none may come after them. What the two shared is let
    // go at once.
    let open = session.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Open { inputs: Inputs::Rdma(rdma), .. }) = open {
        rdma.end();
    }
}

/// Bytes that follow one another, by their lengths.
fn split(lengths: &[Option<u32>], mut tail: Bytes) -> Payloads {
    let one = |length: &Option<u32>| {
        let length = (*length)? as usize;
        (length <= tail.len()).then(|| tail.split_to(length))
    };
    lengths.iter().map(one).collect()
}

/// Puts large results into shared memory, as far as there is place.
fn share_results(shared: &SharedPair, results: &mut [ResultToOwner]) {
    for ResultToOwner { result, bytes } in results {
        let large = matches!(result.outcome, ResultBytes::Answer(_)) && bytes.len() > RESULT_INLINE_BYTES_MAX;
        if large && shared.lend(result.sequence, bytes) {
            (result.outcome, *bytes) = (ResultBytes::Shared, Bytes::new());
        }
    }
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

impl PayloadTransport for LinkedPayloads {
    async fn read(&self, frontend: FrontendId, boot: BootId, sequences: Vec<u64>) -> Payloads {
        let link = tokio::time::timeout(READ_TIMEOUT, self.link((frontend, boot))).await.ok().flatten();
        let Some(link) = link else { return vec![None; sequences.len()] };
        // That a link has to be made first says nothing about the next read.
        let begun = Instant::now();
        let found_by = link.way;
        let asked_by = if found_by == Way::Rdma { Way::RdmaSend } else { Way::Tcp };
        let mut payloads = self.look(&link, &sequences).await;
        let (found, bytes) = sizes(&payloads);
        let missing: Vec<_> = (0..sequences.len()).filter(|&index| payloads[index].is_none()).collect();
        if missing.is_empty() {
            self.count(&link, |times| times.took(found_by, begun.elapsed()));
            self.meter(begun, bytes);
        } else {
            let asked: Vec<_> = missing.iter().map(|&index| sequences[index]).collect();
            let answers = asked.chunks(READ_REQUESTS_MAX).map(|some| self.ask(&link, some));
            let answers = futures::future::join_all(answers).await.concat();
            let (came, came_bytes) = sizes(&answers);
            for (index, answer) in missing.into_iter().zip(answers) {
                payloads[index] = answer;
            }
            // Who asks for what has ended learns nothing about delays.
            if came > 0 {
                self.meter(begun, bytes + came_bytes);
                self.count(&link, |times| times.took(asked_by, begun.elapsed()));
                self.count(&link, |times| times.came(asked_by, came, came_bytes));
            }
        }
        if found > 0 {
            self.count(&link, |times| times.came(found_by, found, bytes));
        }
        payloads
    }

    fn deliver(&self, frontend: FrontendId, boot: BootId, mut results: Vec<ResultToOwner>) {
        if self.deliveries.is_closed() {
            return tracing::warn!(%frontend, results = results.len(), "results lost: this transport has finished");
        }
        let this = self.clone();
        self.deliveries.spawn(async move {
            let link = this.link((frontend, boot)).await;
            if let Some(shared) = link.as_ref().and_then(DataLink::shared) {
                share_results(&shared, &mut results);
            }
            for frame in in_frames(results) {
                let (heads, tail): (Vec<_>, Vec<_>) = frame.into_iter().map(|r| (r.result, r.bytes)).unzip();
                let lost = heads.len();
                let lent: Vec<_> =
                    heads.iter().filter(|head| head.outcome == ResultBytes::Shared).map(|head| head.sequence).collect();
                let results = ToOwner::Results { results: heads };
                if link.as_ref().is_none_or(|link| link.sender.send_with(results, tail).is_err()) {
                    // Nobody will say that they were taken.
                    if let Some(shared) = link.as_ref().and_then(DataLink::shared) {
                        shared.taken(&lent);
                    }
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
            let Some(link) = slot.lock().await.take() else { continue };
            // This process's memory ends with it: what is lent has to be fetched before.
            let taken = async {
                while let Some(shared) = link.shared() {
                    if tokio::time::timeout(TAKEN_LOOK_EVERY, shared.all_taken()).await.is_ok() {
                        return;
                    }
                }
            };
            if tokio::time::timeout(TAKEN_WITHIN, taken).await.is_err() {
                tracing::warn!("results are left in shared memory that their owner has not taken");
            }
            link.sender.close();
            link.sender.written().await;
        }
    }

    fn delay(&self) -> Option<PayloadDelay> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner).delay()
    }

    fn name(&self) -> &'static str {
        self.config.transport.label()
    }
}

/// How many there are, and their bytes.
fn sizes(payloads: &Payloads) -> (usize, usize) {
    payloads.iter().flatten().fold((0, 0), |(count, bytes), payload| (count + 1, bytes + payload.len()))
}

#[cfg(test)]
mod tests {
    use symphony_config::PayloadTransportKind;
    use symphony_protocol::data::RequestResult;
    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    use super::*;
    use crate::link_over;
    use crate::sharing::tests as sharing;

    const BOOT: BootId = BootId::new(4);
    const TCP: PayloadsConfig = PayloadsConfig {
        transport: PayloadTransportKind::Tcp,
        required: false,
        pool_mb: 1,
        rdma_device: String::new(),
    };

    /// A transport that knows one frontend per address, numbered from 1, and the sender of its view.
    fn transport(addrs: &[std::net::SocketAddr]) -> (LinkedPayloads, watch::Sender<Arc<View>>) {
        let frontend = |addr: &std::net::SocketAddr| FrontendView {
            name: addr.to_string(),
            boot: BOOT,
            data_addr: addr.to_string(),
            ..FrontendView::default()
        };
        let frontends = (1..).map(FrontendId::new).zip(addrs.iter().map(frontend)).collect();
        let (sender, view) = watch::channel(Arc::new(View { frontends, ..View::default() }));
        (LinkedPayloads::new(BackendId::new(1), BootId::new(2), Net::plaintext(), TCP, view), sender)
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
        sender.send(FromOwner::Welcome { boot: BOOT, sharing: None, rdma: None }).unwrap();
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

    #[tokio::test(start_paused = true)]
    async fn a_read_that_never_comes_back_proves_no_rdma() {
        assert_eq!(proved(async { Ok(()) }).await, Ok(()));
        assert_eq!(proved(async { Err("no answer came".to_owned()) }).await, Err("no answer came".to_owned()));
        let vanished = proved(std::future::pending()).await.unwrap_err();
        assert_eq!(vanished, "a first READ did not come back within 500 ms");
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
        sender.send(FromOwner::Welcome { boot: BOOT, sharing: None, rdma: None }).unwrap();
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
            sender.send(FromOwner::Welcome { boot: BootId::new(5), sharing: None, rdma: None }).unwrap();
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
            assert_eq!(link.session().as_ref().unwrap().waiting.len(), 1);
        }
        assert_eq!(link.session().as_ref().unwrap().waiting.len(), 0);
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

    const SHARED: PayloadsConfig = PayloadsConfig {
        transport: PayloadTransportKind::SharedMemory,
        required: false,
        pool_mb: 1,
        rdma_device: String::new(),
    };

    /// The owner's side of a link that welcomes with that offer, and whether the backend wanted one.
    async fn offers(
        owner: &TcpListener,
        sharing: Option<SharingOffer>,
    ) -> (LinkSender<FromOwner>, LinkReceiver<ToOwner>, bool) {
        let connection = Net::plaintext().accept(owner.accept().await.unwrap().0, &[]).await.unwrap();
        let (sender, mut receiver) = link_over::<FromOwner, ToOwner>(connection);
        let ToOwner::Hello { shares, .. } = receiver.receive().await.unwrap().message else {
            panic!("hello comes first")
        };
        sender.send(FromOwner::Welcome { boot: BOOT, sharing, rdma: None }).unwrap();
        (sender, receiver, shares)
    }

    #[tokio::test]
    async fn an_input_that_is_damaged_is_asked_for_over_the_link() {
        let name = format!("symphony-test-{:032x}", rand::random::<u128>());
        let offer = sharing::offer(&name);
        tokio::spawn(async move { sharing::hands_out(&name, sharing::damaged(1)).await });
        let (owner, addr) = listener().await;
        let (mut transport, _view) = transport(&[addr]);
        transport.config = SHARED;
        let answers = async {
            let (sender, mut receiver, shares) = offers(&owner, Some(offer)).await;
            assert!(shares);
            assert_eq!(receiver.receive().await.unwrap().message, ToOwner::Joined { shares: true });
            let ToOwner::Read { read, sequences } = receiver.receive().await.unwrap().message else { panic!("a read") };
            assert_eq!(sequences, [1]);
            let answer = FromOwner::Payloads { read, lengths: vec![Some(5)] };
            sender.send_with(answer, vec![Bytes::from_static(b"right")]).unwrap();
            (sender, receiver)
        };
        let (_link, payloads) = tokio::join!(answers, transport.read(FrontendId::new(1), BOOT, vec![1]));
        assert_eq!(payloads, [Some(Bytes::from_static(b"right"))]);
        let readings = transport.readings();
        assert_eq!((readings.damaged, readings.pairs[0].way), (1, Way::SharedMemory));
        assert_eq!(readings.reads.map(|counts| counts.inputs), [0, 0, 0, 1]);
    }

    #[tokio::test]
    async fn who_requires_shared_memory_has_no_link_without_it_and_others_fall_back() {
        for (required, linked) in [(true, false), (false, true)] {
            // A frontend that shares nothing, and one whose memory is on another host.
            for offer in [None, Some(sharing::offer("symphony-test-nowhere"))] {
                let (owner, addr) = listener().await;
                let (mut transport, _view) = transport(&[addr]);
                transport.config = PayloadsConfig { required, ..SHARED };
                let (link, (_sender, _receiver, _)) =
                    tokio::join!(transport.link((FrontendId::new(1), BOOT)), offers(&owner, offer));
                assert_eq!(link.map(|link| link.way), linked.then_some(Way::Tcp));
            }
        }
    }

    #[tokio::test]
    async fn a_frontend_that_requires_it_is_understood() {
        let (owner, addr) = listener().await;
        let (transport, _view) = transport(&[addr]);
        let refuses = async {
            let connection = Net::plaintext().accept(owner.accept().await.unwrap().0, &[]).await.unwrap();
            let (sender, receiver) = link_over::<FromOwner, ToOwner>(connection);
            sender.send(FromOwner::MustShare).unwrap();
            (sender, receiver)
        };
        let expected = Expected::from(Role::Frontend);
        let addr = addr.to_string();
        let (_link, opened) = tokio::join!(refuses, transport.open(&addr, &expected, BOOT));
        assert!(opened.err().unwrap().contains("the frontend requires shared memory"));
    }

    #[tokio::test]
    async fn who_requires_rdma_has_no_link_without_it_and_others_fall_back() {
        let (owner, addr) = listener().await;
        let (mut transport, _view) = transport(&[addr]);
        transport.config = PayloadsConfig { transport: PayloadTransportKind::Rdma, required: true, ..SHARED };
        let opened = transport.open(&addr.to_string(), &Expected::from(Role::Frontend), BOOT).await;
        let reason = opened.err().unwrap();
        assert!(reason.contains("backend.payloads requires RDMA with 127.0.0.1"), "{reason}");
        assert!(reason.contains("mutual TLS only"), "{reason}");
        drop(owner.accept().await.unwrap());
        transport.config.required = false;
        let (link, (_sender, _receiver, shares)) =
            tokio::join!(transport.link((FrontendId::new(1), BOOT)), offers(&owner, None));
        assert_eq!((shares, link.map(|link| link.way)), (false, Some(Way::Tcp)));
    }

    #[cfg(not(feature = "rdma"))]
    #[test]
    fn a_build_without_rdma_says_so() {
        let rdma = PayloadsConfig { transport: PayloadTransportKind::Rdma, ..SHARED };
        let reason = crate::can_use_rdma(&rdma).unwrap_err().to_string();
        assert!(reason.contains("built without it; build it with --features rdma"), "{reason}");
    }

    /// What stands in between is meant to see the bytes.
    #[tokio::test]
    async fn an_address_that_is_routed_elsewhere_is_not_gone_around() {
        let auto = PayloadsConfig { transport: PayloadTransportKind::Auto, ..SHARED };
        for (config, wanted) in [(auto, false), (SHARED, true)] {
            let (owner, addr) = listener().await;
            let (mut transport, _view) = transport(&["127.0.0.1:9".parse().unwrap()]);
            transport.net = Net::plaintext().routed([("127.0.0.1:9".to_owned(), addr.to_string())].into());
            transport.config = config;
            let (link, (_sender, _receiver, shares)) =
                tokio::join!(transport.link((FrontendId::new(1), BOOT)), offers(&owner, None));
            assert_eq!((shares, link.map(|link| link.way)), (wanted, Some(Way::Tcp)));
        }
    }
}
