//! Payloads between processes: one data link per frontend, opened early ([`EarlyLinks`]) or when it is first needed.
//! Inputs of a frontend on the same host are read from its memory, and the link carries only what is not there.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::payload_meter::PayloadMeter;
use bytes::Bytes;
use symphony_config::PayloadsConfig;
use symphony_net::{Expected, Net, Role};
use symphony_protocol::PAYLOAD_BYTES_MAX;
use symphony_protocol::data::{FromDataServer, RdmaOffer, ResultBytes, SharingOffer, ToDataServer};
use symphony_protocol::view::{FrontendView, View};
use symphony_shared_memory::Unreadable;
use symphony_types::PayloadDelay;
use symphony_types::{BackendId, BootId, FailReason, FrontendId, Nanos, Time};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::data_link::{DataLink, Inputs, Opened, ReadAnswer};
use crate::early_links::{EarlyLinks, wanted};
use crate::echo::EchoTimes;
use crate::frames::in_frames;
use crate::link::{connect_data_link, link_over_streams};
use crate::payload::{PayloadTransport, Payloads, ResultToFrontend};
use crate::proof::proved;
use crate::rdma::{RdmaBegun, RdmaInputs, RdmaReader};
use crate::read_times::{PairReading, ReadPath, ReadTimes, Readings};
use crate::readiness;
use crate::sharing::SharedPair;
use crate::stuck::data_echo;

/// How long a frontend may take to welcome: it may learn of this backend a moment after a leader has, and waits for
/// that.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause after a failed attempt to open a link: there may be hundreds of reads in a second, and each would wait for its
/// turn.
const OPENED_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How often an unreachable frontend is logged.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// How long a read may take; a batch that waits longer has missed its start by far.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Inputs that one frame requests: an input that is still being decoded delays no more than these.
const READ_REQUESTS_MAX: usize = 16;

/// Results up to this many bytes travel in the frame that announces them: a place in shared memory takes two more
/// frames.
const RESULT_INLINE_BYTES_MAX: usize = 64 << 10;

/// Bytes copied out of shared memory before the task yields to others of the runtime.
const COPY_BYTES_MAX: usize = 1 << 20;

/// How long the last results may wait in shared memory for their frontends to take them.
const TAKEN_WITHIN: Duration = Duration::from_millis(500);
/// How often the link is checked meanwhile.
const TAKEN_POLL_EVERY: Duration = Duration::from_millis(20);

/// The boot of a frontend that a link leads to.
pub(crate) type FrontendBoot = (FrontendId, BootId);

/// The link to one frontend. Locked while it is opened, so that an unreachable frontend delays only reads from itself.
type LinkSlot = Arc<tokio::sync::Mutex<Slot>>;

#[derive(Debug, Default)]
struct Slot {
    link: Option<DataLink>,
    /// When the last attempt to open it failed; none if it was open since.
    failed: Option<Instant>,
    /// When the failure was last logged.
    logged: Option<Instant>,
}

/// [`PayloadTransport`] to other processes. Finds frontends through the cluster's view.
#[derive(Clone, Debug)]
pub struct LinkedPayloads {
    backend: BackendId,
    boot: BootId,
    net: Net,
    config: PayloadsConfig,
    view: watch::Receiver<Arc<View>>,
    links: Arc<Mutex<HashMap<FrontendBoot, LinkSlot>>>,
    /// Frontends that were reachable at least once: others are not waited for.
    reached: Arc<Mutex<BTreeSet<FrontendBoot>>>,
    reads: Arc<AtomicU64>,
    damaged: Arc<AtomicU64>,
    /// This process's device; none if it is disabled or unavailable.
    rdma: Option<RdmaReader>,
    times: Arc<ReadTimes>,
    /// The measured delays to plan for.
    meter: Arc<Mutex<PayloadMeter>>,
    /// The origin of its times.
    born: Instant,
    /// Results on their way to a link.
    deliveries: TaskTracker,
    /// The echo requests on links.
    echo: EchoTimes,
}

impl LinkedPayloads {
    /// For the backend with this id and boot. Must be used inside a tokio runtime.
    #[must_use]
    pub fn new(
        backend: BackendId,
        boot: BootId,
        net: Net,
        config: PayloadsConfig,
        view: watch::Receiver<Arc<View>>,
    ) -> Self {
        let (links, reached, reads, damaged, times, meter) = Default::default();
        let rdma = config.wants_rdma().then(|| RdmaReader::open(config.rdma_device(), config.pool_bytes()));
        let rdma =
            rdma.and_then(|rdma| rdma.inspect_err(|error| tracing::warn!(%error, "payloads travel by TCP")).ok());
        let (born, deliveries) = (Instant::now(), TaskTracker::new());
        let echo = data_echo();
        Self {
            backend,
            boot,
            net,
            config,
            view,
            links,
            reached,
            reads,
            damaged,
            rdma,
            times,
            meter,
            born,
            deliveries,
            echo,
        }
    }

    /// Opens this transport's links before they are needed.
    #[must_use]
    pub fn early_links(&self) -> EarlyLinks {
        EarlyLinks::new(self.clone(), self.backend, self.view.clone())
    }

    /// Whether a link to this frontend is open; none while another task holds it.
    pub(crate) fn is_linked(&self, frontend: FrontendBoot) -> Option<bool> {
        let slot = self.links.lock().unwrap_or_else(PoisonError::into_inner).get(&frontend).cloned();
        let Some(slot) = slot else { return Some(false) };
        let slot = slot.try_lock().ok()?;
        Some(slot.link.as_ref().is_some_and(DataLink::is_open))
    }

    /// Whether a view has this backend in this boot: frontends welcome no other.
    pub(crate) fn is_named(&self, view: &View) -> bool {
        view.backends.get(&self.backend).is_some_and(|backend| backend.boot == self.boot)
    }

    /// Whether nothing can be delivered any more.
    pub(crate) fn has_finished(&self) -> bool {
        self.deliveries.is_closed()
    }

    /// The statistics of reads so far, and how each frontend is reached.
    #[must_use]
    pub fn readings(&self) -> Readings {
        let slots: Vec<_> = {
            let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
            links.iter().map(|(&(frontend, _), slot)| (frontend, Arc::clone(slot))).collect()
        };
        let mut pairs = Vec::with_capacity(slots.len());
        for (frontend, slot) in slots {
            // A link that is being opened has no statistics.
            let Ok(slot) = slot.try_lock() else { continue };
            if let Some(link) = slot.link.as_ref().filter(|link| link.is_open()) {
                pairs.push(PairReading {
                    frontend,
                    way: link.way,
                    reads: ReadPath::ALL.map(|way| link.times.read(way)),
                });
            }
        }
        pairs.sort_by_key(|pair| pair.frontend);
        let damaged = self.damaged.load(Ordering::Relaxed);
        Readings { reads: ReadPath::ALL.map(|way| self.times.read(way)), damaged, delay: self.delay(), pairs }
    }

    /// Records a read of this many bytes that took this long.
    fn meter(&self, took: Duration, bytes: usize) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (at, took) = (Time::from_nanos(nanos(self.born.elapsed())), Nanos::new(nanos(took)));
        self.meter.lock().unwrap_or_else(PoisonError::into_inner).note(at, bytes as u64, took);
    }

    /// The link to a frontend, opened if there is none. None if the frontend is not in the view, or cannot be reached,
    /// or was unreachable a moment ago.
    pub(crate) async fn link(&self, frontend: FrontendBoot) -> Option<DataLink> {
        let slot = self.slot(frontend)?;
        let mut slot = slot.lock().await;
        if let Some(link) = slot.link.as_ref().filter(|link| link.is_open()) {
            return Some(link.clone());
        }
        slot.link = None;
        if slot.failed.is_some_and(|at| at.elapsed() < OPENED_AGAIN_AFTER) {
            return None;
        }
        let (addr, expected) = frontend_of(&self.view.borrow(), frontend)
            .map(|frontend| (frontend.data_addr.clone(), Expected::named(Role::Frontend, &frontend.name)))?;
        let opened = match self.open(&addr, &expected, frontend.1).await {
            Ok(link) => link,
            Err(reason) => {
                let now = Instant::now();
                slot.failed = Some(now);
                if slot.logged.is_none_or(|at| now > at + TOLD_AGAIN_AFTER) {
                    slot.logged = Some(now);
                    tracing::warn!(frontend = %frontend.0, %reason, "no data link");
                }
                return None;
            }
        };
        let link = DataLink::live(opened, self.echo);
        tracing::info!(frontend = %frontend.0, transport = link.way.label(), "data link");
        *slot = Slot { link: Some(link.clone()), ..Slot::default() };
        self.reached.lock().unwrap_or_else(PoisonError::into_inner).insert(frontend);
        Some(link)
    }

    /// Whether a frontend answers over this link within this time, to an empty READ.
    pub(crate) async fn answers(&self, link: &DataLink, within: Duration) -> bool {
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        matches!(tokio::time::timeout(within, link.ask(read, Vec::new())).await, Ok(Some(_)))
    }

    /// Gives the link up: the next user opens another one. What was written to this one is still sent, as far as it
    /// moves.
    pub(crate) async fn replace(&self, frontend: FrontendBoot, link: &DataLink) {
        let Some(slot) = self.slot(frontend) else { return };
        let mut slot = slot.lock().await;
        slot.link.take_if(|known| known.is_same(link));
    }

    /// The frontends that are in the view and were reachable before.
    pub(crate) fn frontends(&self) -> BTreeSet<FrontendBoot> {
        let wanted = wanted(&self.view.borrow(), self.backend);
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.retain(|frontend| wanted.contains(frontend));
        reached.clone()
    }

    /// A link over which its frontend has sent a welcome: before that, messages may be lost silently.
    async fn open(&self, addr: &str, frontend: &Expected, frontend_boot: BootId) -> Result<Opened, String> {
        let link = connect_data_link::<ToDataServer, FromDataServer>(&self.net, addr, frontend).await;
        let (sender, mut receiver) = link.map_err(|error| error.to_string())?;
        // An address that is led over a proxy is meant to have its bytes pass there.
        let routed = self.net.through(addr) != addr && !self.config.expects_sharing();
        let shares = self.config.shares() && !routed;
        let begun = self.begin_rdma(addr, routed)?;
        let rdma = begun.as_ref().map(RdmaBegun::endpoint);
        let hello = ToDataServer::Hello { backend: self.backend, boot: self.boot, frontend_boot, shares, rdma };
        sender.send(hello).map_err(|error| error.to_string())?;
        let (sharing, rdma) = match tokio::time::timeout(WELCOME_TIMEOUT, receiver.receive()).await {
            Err(_) => return Err(format!("no welcome within {} ms", WELCOME_TIMEOUT.as_millis())),
            Ok(Err(error)) => return Err(error.to_string()),
            Ok(Ok(frame)) => match frame.message {
                FromDataServer::Welcome { boot, sharing, rdma } if boot == frontend_boot => (sharing, rdma),
                FromDataServer::MustShare => {
                    return Err("the frontend requires shared memory; see backend.payloads.transport".to_owned());
                }
                FromDataServer::MustUseRdma => {
                    return Err("the frontend requires RDMA; see backend.payloads.transport".to_owned());
                }
                other => return Err(format!("{other:?} instead of a welcome in boot {frontend_boot}")),
            },
        };
        let offered = sharing.is_some() || rdma.is_some();
        let inputs = if let Some(begun) = begun {
            self.join_rdma(begun, rdma, addr).await?
        } else if shares {
            self.share(sharing, addr).await?.map_or(Inputs::Requested, Inputs::Shared)
        } else {
            Inputs::Requested
        };
        if offered {
            let joined = ToDataServer::Joined { shares: !matches!(inputs, Inputs::Requested) };
            sender.send(joined).map_err(|error| error.to_string())?;
        }
        // Frames take the carrier of the payloads.
        if matches!(inputs, Inputs::Shared(_)) {
            receiver.share();
        }
        let Inputs::Rdma(rdma) = &inputs else { return Ok(Opened { sender, receiver, inputs, beside: None }) };
        receiver.carried_by_rdma();
        let level = receiver.level().clone();
        let (by_rdma, from_rdma) = link_over_streams(rdma.streams(), receiver.peer().clone(), level);
        Ok(Opened { sender: by_rdma, receiver: from_rdma, inputs, beside: Some((sender, receiver)) })
    }

    /// This end of an RDMA connection, if one is wanted. If RDMA is required and unavailable, there is no link.
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

    /// Takes up the frontend's offer, if something can be read there: a connection is established without any data,
    /// even where all its packets vanish.
    async fn join_rdma(&self, begun: RdmaBegun, offer: Option<RdmaOffer>, addr: &str) -> Result<Inputs, String> {
        let offer = offer.ok_or_else(|| "the frontend does not offer it; see frontend.payloads.transport".to_owned());
        let mut joined = offer.and_then(|offer| begun.join(&offer));
        if let Ok(inputs) = &joined
            && let Err(reason) = proved(inputs.prove()).await
        {
            inputs.end();
            joined = Err(reason);
        }
        Ok(self.or_tcp(joined, "RDMA", addr)?.map_or(Inputs::Requested, |inputs| Inputs::Rdma(Arc::new(inputs))))
    }

    /// An unavailable carrier is an error if it is required, and a warning if it was asked for by name.
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

    /// Takes up the frontend's offer, or logs why not.
    async fn share(&self, offer: Option<SharingOffer>, addr: &str) -> Result<Option<Arc<SharedPair>>, String> {
        let joined = match &offer {
            Some(offer) => SharedPair::join(offer, self.config.pool_bytes()).await,
            None => Err("the frontend does not offer shared memory; see frontend.payloads.transport".to_owned()),
        };
        self.or_tcp(joined.map(Arc::new), "shared memory", addr)
    }

    fn slot(&self, frontend: FrontendBoot) -> Option<LinkSlot> {
        let view = self.view.borrow();
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if !links.contains_key(&frontend) {
            // A restarted frontend is a different one: links to its former boot are dropped.
            links.retain(|&other, _| frontend_of(&view, other).is_some());
            frontend_of(&view, frontend)?;
        }
        Some(Arc::clone(links.entry(frontend).or_default()))
    }

    /// Inputs that are found without a request; none for the others.
    async fn find_inputs(&self, link: &DataLink, sequences: &[u64]) -> Payloads {
        match link.inputs() {
            Inputs::Shared(shared) => self.find_shared(&shared, sequences).await,
            Inputs::Rdma(rdma) => self.find_remote(&rdma, sequences).await,
            Inputs::Requested => vec![None; sequences.len()],
        }
    }

    /// Copies inputs out of shared memory.
    async fn find_shared(&self, shared: &SharedPair, sequences: &[u64]) -> Payloads {
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
    async fn find_remote(&self, rdma: &RdmaInputs, sequences: &[u64]) -> Payloads {
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
            // This frontend is not at fault: its reads wait for credits that reads of other frontends hold.
            Err(_) if !rdma.is_read() => vec![None; sequences.len()],
            Err(_) => {
                // The device neither answers nor fails: the next read opens another link.
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
            tracing::warn!(sequence, "an input is damaged in its frontend's memory; it is asked for over the link");
        }
        input.ok()
    }

    /// Requests inputs over the link. Also returns how long that took since `begun`, without the time that the frontend
    /// waited for inputs that were still being decoded: the way is not slower for it, and the next reads are of other
    /// models.
    async fn ask(&self, link: &DataLink, sequences: &[u64], begun: Instant) -> (Payloads, Duration) {
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        let answer = tokio::time::timeout(READ_TIMEOUT, link.ask(read, sequences.to_vec()));
        let ReadAnswer { payloads, waited } = answer.await.ok().flatten().unwrap_or_default();
        let took = begun.elapsed().saturating_sub(waited);
        // A frontend that answers with a wrong number of payloads is not trusted with any.
        (if payloads.len() == sequences.len() { payloads } else { vec![None; sequences.len()] }, took)
    }

    fn count(&self, link: &DataLink, count: impl Fn(&ReadTimes)) {
        count(&self.times);
        count(&link.times);
    }
}

/// This boot of a frontend, if it is in the view.
fn frontend_of(view: &View, frontend: FrontendBoot) -> Option<&FrontendView> {
    view.frontends.get(&frontend.0).filter(|f| f.boot == frontend.1)
}

/// Puts large results into shared memory, as far as there is room.
fn share_results(shared: &SharedPair, results: &mut [ResultToFrontend]) {
    for ResultToFrontend { result, bytes } in results {
        let large = matches!(result.outcome, ResultBytes::Answer(_)) && bytes.len() > RESULT_INLINE_BYTES_MAX;
        if large && shared.lend(result.sequence, bytes) {
            (result.outcome, *bytes) = (ResultBytes::Shared, Bytes::new());
        }
    }
}

/// A result that fits into no frame ends its request without one; the others of its batch arrive.
fn refuse_too_large(results: &mut [ResultToFrontend]) {
    for ResultToFrontend { result, bytes } in results.iter_mut().filter(|result| result.bytes.len() > PAYLOAD_BYTES_MAX)
    {
        tracing::error!(
            sequence = result.sequence,
            bytes = bytes.len(),
            limit = PAYLOAD_BYTES_MAX,
            "a result is too large for a frame"
        );
        (result.outcome, *bytes) = (ResultBytes::Failed(FailReason::ExecutionFailed), Bytes::new());
    }
}

impl PayloadTransport for LinkedPayloads {
    async fn read(&self, frontend: FrontendId, boot: BootId, sequences: Vec<u64>) -> Payloads {
        let link = tokio::time::timeout(READ_TIMEOUT, self.link((frontend, boot))).await.ok().flatten();
        let Some(link) = link else { return vec![None; sequences.len()] };
        // The time to open a link does not predict the next read.
        let begun = Instant::now();
        let found_by = link.way;
        let asked_by = if found_by == ReadPath::Rdma { ReadPath::RdmaSend } else { ReadPath::Tcp };
        let mut payloads = self.find_inputs(&link, &sequences).await;
        let (found, bytes) = sizes(&payloads);
        let missing: Vec<_> = (0..sequences.len()).filter(|&index| payloads[index].is_none()).collect();
        if missing.is_empty() {
            let took = begun.elapsed();
            self.count(&link, |times| times.took(found_by, took));
            self.meter(took, bytes);
        } else {
            let requested: Vec<_> = missing.iter().map(|&index| sequences[index]).collect();
            let answers = requested.chunks(READ_REQUESTS_MAX).map(|some| self.ask(&link, some, begun));
            let (answers, took): (Vec<_>, Vec<_>) = futures::future::join_all(answers).await.into_iter().unzip();
            let (answers, took) = (answers.concat(), took.into_iter().max().unwrap_or_default());
            let (came, came_bytes) = sizes(&answers);
            for (index, answer) in missing.into_iter().zip(answers) {
                payloads[index] = answer;
            }
            // A READ for an ended request is no measurement of delays.
            if came > 0 {
                self.meter(took, bytes + came_bytes);
                self.count(&link, |times| times.took(asked_by, took));
                self.count(&link, |times| times.came(asked_by, came, came_bytes));
            }
        }
        if found > 0 {
            self.count(&link, |times| times.came(found_by, found, bytes));
        }
        payloads
    }

    fn deliver(&self, frontend: FrontendId, boot: BootId, mut results: Vec<ResultToFrontend>) {
        if self.deliveries.is_closed() {
            return tracing::warn!(%frontend, results = results.len(), "results lost: this transport has finished");
        }
        let this = self.clone();
        self.deliveries.spawn(async move {
            let link = this.link((frontend, boot)).await;
            if let Some(shared) = link.as_ref().and_then(DataLink::shared) {
                share_results(&shared, &mut results);
            }
            refuse_too_large(&mut results);
            for frame in in_frames(results, |result| result.bytes.len()) {
                let (heads, tail): (Vec<_>, Vec<_>) = frame.into_iter().map(|r| (r.result, r.bytes)).unzip();
                let lost = heads.len();
                let lent: Vec<_> =
                    heads.iter().filter(|head| head.outcome == ResultBytes::Shared).map(|head| head.sequence).collect();
                let results = ToDataServer::Results { results: heads };
                if link.as_ref().is_none_or(|link| link.sender.send_with(results, tail).is_err()) {
                    // No acknowledgement will come.
                    if let Some(shared) = link.as_ref().and_then(DataLink::shared) {
                        shared.taken(&lent);
                    }
                    tracing::warn!(%frontend, results = lost, "results lost: their frontend cannot be reached");
                }
            }
        });
    }

    async fn finish(&self) {
        self.deliveries.close();
        self.deliveries.wait().await;
        let slots: Vec<_> = self.links.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for slot in slots {
            let Some(link) = slot.lock().await.link.take() else { continue };
            // This process's memory ends with it: lent results have to be fetched before.
            let taken = async {
                while let Some(shared) = link.shared() {
                    if tokio::time::timeout(TAKEN_POLL_EVERY, shared.all_taken()).await.is_ok() {
                        return;
                    }
                }
            };
            if tokio::time::timeout(TAKEN_WITHIN, taken).await.is_err() {
                tracing::warn!("results are left in shared memory that their frontend has not taken");
            }
            link.sender.close();
            link.sender.written().await;
        }
    }

    async fn ready(&self, within: Duration) {
        readiness::ready(self, within).await;
    }

    fn delay(&self) -> Option<PayloadDelay> {
        let now = Time::from_nanos(u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.meter.lock().unwrap_or_else(PoisonError::into_inner).delay(now)
    }

    fn name(&self) -> &'static str {
        self.config.transport.label()
    }
}

/// The number of payloads, and their bytes.
fn sizes(payloads: &Payloads) -> (usize, usize) {
    payloads.iter().flatten().fold((0, 0), |(count, bytes), payload| (count + 1, bytes + payload.len()))
}

#[cfg(test)]
#[path = "linked_payloads_tests.rs"]
mod tests;
