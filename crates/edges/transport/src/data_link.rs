//! The open link of a backend to one frontend: reads that wait for their answers, and the memory that the two share.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use symphony_protocol::data::{FromDataServer, ToDataServer};
use tokio::sync::oneshot;

use crate::echo::EchoTimes;
use crate::link::{LinkReceiver, LinkSender};
use crate::payload::Payloads;
use crate::rdma::RdmaInputs;
use crate::read_times::{ReadPath, ReadTimes};
use crate::sharing::SharedPair;
use crate::stuck::stuck;

/// A link on which both ends have agreed how payloads travel.
pub(crate) struct Opened {
    pub(crate) sender: LinkSender<ToDataServer>,
    pub(crate) receiver: LinkReceiver<FromDataServer>,
    pub(crate) inputs: Inputs,
    /// The link beside RDMA, which only shows that the other end lives.
    pub(crate) beside: Option<(LinkSender<ToDataServer>, LinkReceiver<FromDataServer>)>,
}

/// The state of an open link; none once it has ended, when no more answers come.
type Session = Arc<Mutex<Option<Open>>>;

/// The state of an open link.
#[derive(Debug)]
pub(crate) struct Open {
    /// Reads that wait for their answer.
    pub(crate) waiting: HashMap<u64, PendingRead>,
    /// How inputs are found without a request.
    inputs: Inputs,
}

/// A read that waits for the rest of its answer.
#[derive(Debug)]
pub(crate) struct PendingRead {
    wanted: usize,
    /// The answer so far.
    answer: ReadAnswer,
    waiter: oneshot::Sender<ReadAnswer>,
}

/// A frontend's answer to a read.
#[derive(Debug, Default)]
pub(crate) struct ReadAnswer {
    pub(crate) payloads: Payloads,
    /// How long the frontend itself waited for inputs that were still being decoded.
    pub(crate) waited: Duration,
}

/// Where a frontend's inputs are.
#[derive(Clone, Debug)]
pub(crate) enum Inputs {
    /// In memory of this host that both share.
    Shared(Arc<SharedPair>),
    /// In memory that the network reads.
    Rdma(Arc<RdmaInputs>),
    /// Nowhere: they are requested over the link.
    Requested,
}

/// A link that was opened, and may have ended since.
#[derive(Clone, Debug)]
pub(crate) struct DataLink {
    pub(crate) sender: LinkSender<ToDataServer>,
    session: Session,
    pub(crate) way: ReadPath,
    pub(crate) times: Arc<ReadTimes>,
}

/// A read in progress; forgets itself when it is dropped.
struct ReadUnderWay<'a> {
    session: &'a Session,
    read: u64,
}

impl DataLink {
    /// Starts to receive from the frontend, and to ask it whether the link moves. Must be used inside a tokio runtime.
    pub(crate) fn live(Opened { sender, receiver, inputs, beside }: Opened, echo: EchoTimes) -> Self {
        let way = inputs.way();
        let session: Session = Arc::new(Mutex::new(Some(Open { waiting: HashMap::new(), inputs })));
        tokio::spawn(live(receiver, beside, Arc::clone(&session), echo));
        Self { sender, session, way, times: Arc::default() }
    }

    pub(crate) fn session(&self) -> MutexGuard<'_, Option<Open>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn inputs(&self) -> Inputs {
        self.session().as_ref().map_or(Inputs::Requested, |open| open.inputs.clone())
    }

    pub(crate) fn shared(&self) -> Option<Arc<SharedPair>> {
        match self.inputs() {
            Inputs::Shared(shared) => Some(shared),
            Inputs::Rdma(_) | Inputs::Requested => None,
        }
    }

    /// The sender alone is not enough: it notices a dead peer only when it writes, which is too late.
    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed() && self.session().is_some()
    }

    /// Whether these are ends of one link.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.session, &other.session)
    }

    pub(crate) async fn ask(&self, read: u64, sequences: Vec<u64>) -> Option<ReadAnswer> {
        let (waiter, answer) = oneshot::channel();
        let pending = PendingRead { wanted: sequences.len(), answer: ReadAnswer::default(), waiter };
        self.session().as_mut()?.waiting.insert(read, pending);
        let _under_way = ReadUnderWay { session: &self.session, read };
        self.sender.send(ToDataServer::Read { read, sequences }).ok()?;
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

impl Inputs {
    /// What the two have agreed on.
    const fn way(&self) -> ReadPath {
        match self {
            Self::Shared(_) => ReadPath::SharedMemory,
            Self::Rdma(_) => ReadPath::Rdma,
            Self::Requested => ReadPath::Tcp,
        }
    }
}

/// Hands answers to the waiting reads, until the link or the one beside it ends or gets stuck.
async fn live(
    mut receiver: LinkReceiver<FromDataServer>,
    beside: Option<(LinkSender<ToDataServer>, LinkReceiver<FromDataServer>)>,
    session: Session,
    echo: EchoTimes,
) {
    let (_sender, mut beside) = beside.unzip();
    let watched = beside.as_mut().unwrap_or(&mut receiver).watch(echo);
    let peer = receiver.peer().clone();
    let beside_ends = async {
        let Some(beside) = &mut beside else { return std::future::pending().await };
        if let Ok(frame) = beside.receive().await {
            tracing::warn!(%peer, message = ?frame.message, "a frame came over the data link beside RDMA");
        }
    };
    tokio::select! {
        () = take_answers(receiver, &session) => {}
        () = beside_ends => {}
        () = stuck(watched, echo) => tracing::warn!(%peer, "the data link does not move; it ends"),
    }
    // No more answers come: dropping the waiters tells them so, and no new ones may be added. Shared memory is released
    // at once.
    let open = session.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Open { inputs: Inputs::Rdma(rdma), .. }) = open {
        rdma.end();
    }
}

/// Hands answers to the waiting reads, until the link ends.
async fn take_answers(mut receiver: LinkReceiver<FromDataServer>, session: &Session) {
    while let Ok(frame) = receiver.receive().await {
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = session.as_mut() else { break };
        match frame.message {
            FromDataServer::Payloads { read, lengths, waited } => {
                if let Entry::Occupied(mut waiting) = open.waiting.entry(read) {
                    let pending = waiting.get_mut();
                    pending.answer.payloads.extend(split(&lengths, frame.tail));
                    pending.answer.waited = Duration::from_nanos(waited);
                    if pending.answer.payloads.len() >= pending.wanted {
                        let PendingRead { answer, waiter, .. } = waiting.remove();
                        let _ = waiter.send(answer);
                    }
                }
            }
            FromDataServer::Taken { sequences } => {
                if let Inputs::Shared(shared) = &open.inputs {
                    shared.taken(&sequences);
                }
            }
            FromDataServer::MustShare => {
                tracing::warn!(peer = %receiver.peer(), "the frontend requires shared memory, and the two share none");
            }
            FromDataServer::MustUseRdma => {
                tracing::warn!(peer = %receiver.peer(), "the frontend requires RDMA, and the two have none");
            }
            FromDataServer::Welcome { .. } => {}
        }
    }
}

/// Splits consecutive bytes by their lengths.
fn split(lengths: &[Option<u32>], mut tail: Bytes) -> Payloads {
    let one = |length: &Option<u32>| {
        let length = (*length)? as usize;
        (length <= tail.len()).then(|| tail.split_to(length))
    };
    lengths.iter().map(one).collect()
}
