//! The smallest transport with a way to travel, to copy from: each owner is a task behind a bounded queue of messages,
//! where another transport has a connection. The steps from here to one that a backend can be told to use are in
//! docs/internals/recipes/transport.md.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use symphony_protocol::data::ResultBytes;
use symphony_transport::{PayloadOwner, PayloadTransport, Payloads, ResultToOwner, ReturnedResult};
use symphony_types::{BootId, FailReason, FrontendId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::owner::Owner;
use crate::subjects::{BOOT, FRONTENDS, Subject};

/// Messages on their way to one owner: more than the suite ever has there. A result that finds the queue full is lost,
/// as one whose owner cannot be reached.
const MESSAGES_MAX: usize = 1024;

enum Message {
    Read {
        boot: BootId,
        sequences: Vec<u64>,
        answer: oneshot::Sender<Payloads>,
    },
    Deliver {
        boot: BootId,
        results: Vec<ResultToOwner>,
    },
    /// Answered once everything before it has been taken.
    Flush(oneshot::Sender<()>),
}

/// The owners that there are, and the way to each.
type Ways = HashMap<FrontendId, mpsc::Sender<Message>>;

/// The backend's side. Without ways once it has finished.
#[derive(Clone)]
pub(crate) struct Skeleton {
    ways: Arc<Mutex<Option<Ways>>>,
}

impl Skeleton {
    fn way(&self, frontend: FrontendId) -> Option<mpsc::Sender<Message>> {
        self.ways.lock().unwrap().as_ref()?.get(&frontend).cloned()
    }
}

impl PayloadTransport for Skeleton {
    async fn read(&self, frontend: FrontendId, boot: BootId, sequences: Vec<u64>) -> Payloads {
        // An owner that cannot be reached, or dies before it answers, costs the inputs of this read and nothing else.
        let none = vec![None; sequences.len()];
        let Some(way) = self.way(frontend) else { return none };
        let (answer, answered) = oneshot::channel();
        _ = way.send(Message::Read { boot, sequences, answer }).await;
        answered.await.unwrap_or(none)
    }

    fn deliver(&self, frontend: FrontendId, boot: BootId, results: Vec<ResultToOwner>) {
        // Called by the thread of a GPU: it must not wait.
        if let Some(way) = self.way(frontend) {
            _ = way.try_send(Message::Deliver { boot, results });
        }
    }

    async fn finish(&self) {
        let ways = self.ways.lock().unwrap().take();
        for way in ways.into_iter().flat_map(HashMap::into_values) {
            let (flush, flushed) = oneshot::channel();
            _ = way.send(Message::Flush(flush)).await;
            _ = flushed.await;
        }
    }

    fn name(&self) -> &'static str {
        "skeleton"
    }
}

/// The frontend's side: one life of an owner.
async fn serve(owner: Arc<Owner>, life: BootId, mut messages: mpsc::Receiver<Message>) {
    while let Some(message) = messages.recv().await {
        match message {
            Message::Read { boot, sequences, answer } => {
                let input = |sequence: u64| if boot == life { owner.input(sequence) } else { None };
                _ = answer.send(sequences.into_iter().map(input).collect());
            }
            Message::Deliver { boot, results } if boot == life => {
                results.into_iter().for_each(|result| owner.returned(returned(result)));
            }
            // For a former life: its requests have ended with it.
            Message::Deliver { .. } => {}
            Message::Flush(flush) => _ = flush.send(()),
        }
    }
}

fn returned(ResultToOwner { result, bytes }: ResultToOwner) -> ReturnedResult {
    let outcome = match result.outcome {
        ResultBytes::Answer(length) if length as usize == bytes.len() => Ok(bytes),
        ResultBytes::Answer(_) | ResultBytes::Shared => Err(FailReason::ExecutionFailed),
        ResultBytes::Failed(reason) => Err(reason),
    };
    ReturnedResult { sequence: result.sequence, outcome, batch: result.batch, execution_ns: result.execution }
}

/// The skeleton with two owners at its other end.
pub(crate) struct Smallest {
    transport: Skeleton,
    owners: [Arc<Owner>; 2],
    serving: [Option<JoinHandle<()>>; 2],
}

impl Subject for Smallest {
    type Transport = Skeleton;

    async fn start() -> Self {
        let owners = [Owner::new(None), Owner::new(None)];
        let mut ways = HashMap::new();
        let serving = [0, 1].map(|index| {
            let (way, messages) = mpsc::channel(MESSAGES_MAX);
            ways.insert(FRONTENDS[index], way);
            Some(tokio::spawn(serve(Arc::clone(&owners[index]), BOOT, messages)))
        });
        Self { transport: Skeleton { ways: Arc::new(Mutex::new(Some(ways))) }, owners, serving }
    }

    fn transport(&self) -> &Skeleton {
        &self.transport
    }

    fn owners(&self) -> [&Arc<Owner>; 2] {
        self.owners.each_ref()
    }

    async fn kill(&mut self, index: usize) {
        let Some(serving) = self.serving[index].take() else { return };
        serving.abort();
        _ = serving.await;
    }

    fn came(&self, _: u64) {}
}
