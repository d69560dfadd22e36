//! The smallest transport with a way to travel, to copy from: each frontend is a task behind a bounded queue of
//! messages, where another transport has a connection. The steps from here to one that a backend can be told to use are
//! in docs/internals/recipes/transport.md.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use symphony_protocol::data::ResultBytes;
use symphony_transport::{PayloadFrontend, PayloadTransport, Payloads, ResultToFrontend, ReturnedResult};
use symphony_types::{BootId, FailReason, FrontendId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::subjects::{BOOT, FRONTENDS, Subject};
use crate::test_frontend::TestFrontend;

/// Messages on their way to one frontend: more than the suite ever has there. A result that finds the queue full is
/// lost, as one whose frontend cannot be reached.
const MESSAGES_MAX: usize = 1024;

enum Message {
    Read {
        boot: BootId,
        sequences: Vec<u64>,
        answer: oneshot::Sender<Payloads>,
    },
    Deliver {
        boot: BootId,
        results: Vec<ResultToFrontend>,
    },
    /// Answered once everything before it has been taken.
    Flush(oneshot::Sender<()>),
}

/// The frontends that there are, and the way to each.
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
        // An frontend that cannot be reached, or dies before it answers, costs the inputs of this read and nothing
        // else.
        let none = vec![None; sequences.len()];
        let Some(way) = self.way(frontend) else { return none };
        let (answer, answered) = oneshot::channel();
        _ = way.send(Message::Read { boot, sequences, answer }).await;
        answered.await.unwrap_or(none)
    }

    fn deliver(&self, frontend: FrontendId, boot: BootId, results: Vec<ResultToFrontend>) {
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

/// The frontend's side: one boot of a frontend.
async fn serve(frontend: Arc<TestFrontend>, own_boot: BootId, mut messages: mpsc::Receiver<Message>) {
    while let Some(message) = messages.recv().await {
        match message {
            Message::Read { boot, sequences, answer } => {
                let input = |sequence: u64| if boot == own_boot { frontend.input(sequence) } else { None };
                _ = answer.send(sequences.into_iter().map(input).collect());
            }
            Message::Deliver { boot, results } if boot == own_boot => {
                results.into_iter().for_each(|result| frontend.returned(returned(result)));
            }
            // For a former boot: its requests have ended with it.
            Message::Deliver { .. } => {}
            Message::Flush(flush) => _ = flush.send(()),
        }
    }
}

fn returned(ResultToFrontend { result, bytes }: ResultToFrontend) -> ReturnedResult {
    let outcome = match result.outcome {
        ResultBytes::Answer(length) if length as usize == bytes.len() => Ok(bytes),
        ResultBytes::Answer(_) | ResultBytes::Shared => Err(FailReason::ExecutionFailed),
        ResultBytes::Failed(reason) => Err(reason),
    };
    let (sequence, batch, execution_ns, run) = (result.sequence, result.batch, result.execution, result.run);
    ReturnedResult { sequence, outcome, batch, execution_ns, run }
}

/// The skeleton with two frontends at its other end.
pub(crate) struct Smallest {
    transport: Skeleton,
    frontends: [Arc<TestFrontend>; 2],
    serving: [Option<JoinHandle<()>>; 2],
}

impl Subject for Smallest {
    type Transport = Skeleton;

    async fn start() -> Self {
        let frontends = [TestFrontend::new(None), TestFrontend::new(None)];
        let mut ways = HashMap::new();
        let serving = [0, 1].map(|index| {
            let (way, messages) = mpsc::channel(MESSAGES_MAX);
            ways.insert(FRONTENDS[index], way);
            Some(tokio::spawn(serve(Arc::clone(&frontends[index]), BOOT, messages)))
        });
        Self { transport: Skeleton { ways: Arc::new(Mutex::new(Some(ways))) }, frontends, serving }
    }

    fn transport(&self) -> &Skeleton {
        &self.transport
    }

    fn frontends(&self) -> [&Arc<TestFrontend>; 2] {
        self.frontends.each_ref()
    }

    async fn kill(&mut self, index: usize) {
        let Some(serving) = self.serving[index].take() else { return };
        serving.abort();
        _ = serving.await;
    }

    fn came(&self, _: u64) {}
}
