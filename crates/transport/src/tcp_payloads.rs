//! Payloads over TCP: one data link per frontend, opened when it is first needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use symphony_protocol::data::{FromOwner, ToOwner};
use symphony_protocol::view::View;
use symphony_types::{BackendId, BootId, FrontendId};
use tokio::sync::{oneshot, watch};

use crate::link::{LinkSender, connect_link};
use crate::payload::{PayloadTransport, Payloads, ResultToOwner};

/// How long a read may take; a batch that waits longer has missed its start by far.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The life of a frontend that a link leads to.
type Owner = (FrontendId, BootId);

/// Reads that wait for their answer on one link.
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Payloads>>>>;

#[derive(Clone, Debug)]
struct DataLink {
    sender: LinkSender<ToOwner>,
    waiting: Waiting,
}

/// [`PayloadTransport`] over TCP. Finds frontends through the cluster's view.
#[derive(Clone, Debug)]
pub struct TcpPayloads {
    backend: BackendId,
    boot: BootId,
    view: watch::Receiver<Arc<View>>,
    links: Arc<tokio::sync::Mutex<HashMap<Owner, DataLink>>>,
    reads: Arc<std::sync::atomic::AtomicU64>,
}

impl TcpPayloads {
    /// For the backend of that id and life. Must be used inside a tokio runtime.
    #[must_use]
    pub fn new(backend: BackendId, boot: BootId, view: watch::Receiver<Arc<View>>) -> Self {
        Self { backend, boot, view, links: Arc::default(), reads: Arc::default() }
    }

    /// The link to an owner, opened if there is none. None if the owner is not in the view or cannot be reached.
    async fn link(&self, owner: Owner) -> Option<DataLink> {
        let mut links = self.links.lock().await;
        if let Some(link) = links.get(&owner)
            && !link.sender.is_closed()
        {
            return Some(link.clone());
        }
        let addr = {
            let view = self.view.borrow();
            let frontend = view.frontends.get(&owner.0).filter(|f| f.boot == owner.1)?;
            frontend.data_addr.clone()
        };
        let (sender, mut receiver) = match connect_link::<ToOwner, FromOwner>(&addr).await {
            Ok(link) => link,
            Err(error) => {
                tracing::warn!(frontend = %owner.0, %error, "no data link");
                links.remove(&owner);
                return None;
            }
        };
        let hello = ToOwner::Hello { backend: self.backend, boot: self.boot, frontend_boot: owner.1 };
        sender.send(hello).ok()?;
        let waiting = Waiting::default();
        let answers = Arc::clone(&waiting);
        tokio::spawn(async move {
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
                let waiter = answers.lock().unwrap_or_else(PoisonError::into_inner).remove(&read);
                if let Some(waiter) = waiter {
                    let _ = waiter.send(payloads);
                }
            }
            // Nobody will answer any more: dropping the waiters tells them.
            answers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        });
        let link = DataLink { sender, waiting };
        links.insert(owner, link.clone());
        Some(link)
    }

    async fn try_read(&self, owner: Owner, sequences: Vec<u64>) -> Option<Payloads> {
        let link = self.link(owner).await?;
        let read = self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (waiter, answer) = oneshot::channel();
        link.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(read, waiter);
        link.sender.send(ToOwner::Read { read, sequences }).ok()?;
        let payloads = tokio::time::timeout(READ_TIMEOUT, answer).await.ok()?.ok();
        if payloads.is_none() {
            link.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&read);
        }
        payloads
    }
}

impl PayloadTransport for TcpPayloads {
    async fn read(&self, frontend: FrontendId, boot: BootId, sequences: Vec<u64>) -> Payloads {
        let count = sequences.len();
        let payloads = self.try_read((frontend, boot), sequences).await.unwrap_or_default();
        // An owner that answers with another number of payloads than asked is not to be trusted with any.
        if payloads.len() == count { payloads } else { vec![None; count] }
    }

    fn deliver(&self, frontend: FrontendId, boot: BootId, results: Vec<ResultToOwner>) {
        let this = self.clone();
        tokio::spawn(async move {
            let (mut heads, mut tail) = (Vec::with_capacity(results.len()), Vec::with_capacity(results.len()));
            for result in results {
                heads.push(result.result);
                tail.push(result.bytes);
            }
            let lost = heads.len();
            let sent = match this.link((frontend, boot)).await {
                Some(link) => link.sender.send_with(ToOwner::Results { results: heads }, tail).is_ok(),
                None => false,
            };
            if !sent {
                tracing::warn!(%frontend, results = lost, "results lost: their owner cannot be reached");
            }
        });
    }

    fn name(&self) -> &'static str {
        "tcp"
    }
}
