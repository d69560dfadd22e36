//! Appends to one replica over one connection: one long-lived call instead of one per append.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::numbers::Sent;
use super::pb::{self, raft_client::RaftClient};
use crate::limits::APPENDS_UNANSWERED_MAX;
use crate::record::Position;

pub(crate) type AppendResult = Result<pb::RaftAppendResponse, Status>;

/// Sends appends, and matches the answers.
///
/// A call per heartbeat costs headers, a deadline and tasks at both ends, a hundred times a second. So one call stays
/// open. It is replaced when it ends: after a refusal, a lost connection, an answer that matches no request, or an
/// append without an answer within the calls' deadline. Appends in flight are then abandoned with it, as in single
/// calls.
#[derive(Debug)]
pub(crate) struct AppendStream {
    client: RaftClient<Channel>,
    /// How long an append may be unanswered.
    limit: Duration,
    sent: Arc<Sent>,
    open: Mutex<Option<Open>>,
}

/// An open call; dropping it cancels it.
#[derive(Debug)]
struct Open {
    requests: mpsc::Sender<pb::RaftAppendRequest>,
    unanswered: Arc<Mutex<Unanswered>>,
    reader: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl AppendStream {
    pub(crate) fn new(client: RaftClient<Channel>, limit: Duration, sent: Arc<Sent>) -> Self {
        Self { client, limit, sent, open: Mutex::default() }
    }

    /// Sends an append, which gets its number here. The answer comes later; a closed receiver means that the call has
    /// ended.
    pub(crate) fn send(&self, mut request: pb::RaftAppendRequest) -> oneshot::Receiver<AppendResult> {
        let now = Instant::now();
        let (answer, answered) = oneshot::channel();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // In the order of the numbers: no other task sends meanwhile.
        (request.number, request.answered) = self.sent.next();
        let acknowledged = request.vote.and_then(|vote| self.sent.acknowledged.in_term(vote.term));
        request.acknowledged = acknowledged.map(Into::into);
        let waiting = Waiting { number: request.number, since: now, answer };
        let refused = match open.as_ref() {
            Some(open) => lock(&open.unanswered).ask(waiting, self.limit).err(),
            None => Some(waiting),
        };
        if let Some(waiting) = refused {
            let call = open.insert(self.call());
            let _ = lock(&call.unanswered).ask(waiting, self.limit);
        }
        if let Some(open) = open.as_ref() {
            // There is room: the queue holds at most the unanswered appends. If the call has ended, its waiters are
            // notified.
            let _ = open.requests.try_send(request);
        }
        answered
    }

    /// The receiver has reported to this node, as leader of `term`, that the entry is durable there.
    pub(crate) fn acknowledged(&self, term: u64, at: Position) {
        self.sent.acknowledged.note(term, at);
    }

    fn call(&self) -> Open {
        let (requests, mut outgoing) = mpsc::channel(APPENDS_UNANSWERED_MAX);
        let unanswered = Arc::<Mutex<Unanswered>>::default();
        let (mut client, sent, pending) = (self.client.clone(), Arc::clone(&self.sent), Arc::clone(&unanswered));
        let limit = self.limit;
        let reader = tokio::spawn(async move {
            let outgoing = stream::poll_fn(move |context| outgoing.poll_recv(context));
            let ended = match client.replicate(outgoing).await {
                Ok(answers) => read(answers.into_inner(), &pending, (&sent, limit)).await,
                Err(status) => status,
            };
            lock(&pending).end(&ended);
        });
        Open { requests, unanswered, reader }
    }
}

fn lock(unanswered: &Mutex<Unanswered>) -> MutexGuard<'_, Unanswered> {
    unanswered.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads answers until the call ends, and returns the reason. Answers after their deadline are ignored: over such a
/// slow link no entry is committed, and a leader that counted them would still keep its followers loyal.
async fn read(
    mut answers: Streaming<pb::RaftAppendResponse>,
    unanswered: &Mutex<Unanswered>,
    (sent, limit): (&Sent, Duration),
) -> Status {
    loop {
        match answers.message().await {
            Ok(Some(answer)) => {
                let number = answer.number;
                match lock(unanswered).answered(answer) {
                    Ok(since) if since.elapsed() <= limit => sent.answered(number),
                    Ok(_) => {}
                    Err(status) => return status,
                }
            }
            Ok(None) => return Status::unavailable("the receiver ended the stream"),
            Err(status) => return status,
        }
    }
}

/// Unanswered appends of one call, in order.
#[derive(Debug, Default)]
struct Unanswered {
    waiting: VecDeque<Waiting>,
    ended: bool,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    since: Instant,
    answer: oneshot::Sender<AppendResult>,
}

impl Unanswered {
    /// Registers one more append, if the call is usable.
    ///
    /// # Errors
    /// Returns the append: the call has ended, its oldest append has been unanswered for longer than `limit`, or too
    /// many are unanswered.
    fn ask(&mut self, append: Waiting, limit: Duration) -> Result<(), Waiting> {
        let overdue = |oldest: &Waiting| append.since.saturating_duration_since(oldest.since) > limit;
        if self.ended || self.waiting.len() >= APPENDS_UNANSWERED_MAX || self.waiting.front().is_some_and(overdue) {
            return Err(append);
        }
        self.waiting.push_back(append);
        Ok(())
    }

    /// Takes an answer. Returns when the append was sent.
    ///
    /// # Errors
    /// It does not answer the oldest unanswered append.
    fn answered(&mut self, answer: pb::RaftAppendResponse) -> Result<Instant, Status> {
        let expected = self.waiting.front().map(|oldest| oldest.number);
        let Some(oldest) = self.waiting.pop_front().filter(|oldest| oldest.number == answer.number) else {
            let got = answer.number;
            return Err(Status::data_loss(format!("answer to request {got}, expected one to {expected:?}")));
        };
        // The waiter may have given up: heartbeats do after one interval.
        let _ = oldest.answer.send(Ok(answer));
        Ok(oldest.since)
    }

    /// Ends the call: no more answers will come.
    fn end(&mut self, why: &Status) {
        self.ended = true;
        for waiting in self.waiting.drain(..) {
            let _ = waiting.answer.send(Err(why.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::timing::Timing;

    fn waiting(number: u64, since: Instant) -> (Waiting, oneshot::Receiver<AppendResult>) {
        let (answer, answered) = oneshot::channel();
        (Waiting { number, since, answer }, answered)
    }

    fn answer(number: u64) -> pb::RaftAppendResponse {
        pb::RaftAppendResponse { number, outcome: None }
    }

    const LIMIT: Duration = Duration::from_millis(60);

    #[test]
    fn answers_come_in_the_order_of_what_was_asked() {
        let (mut unanswered, start) = (Unanswered::default(), Instant::now());
        let (first, mut first_answered) = waiting(4, start);
        let (second, mut second_answered) = waiting(7, start);
        assert!(unanswered.ask(first, LIMIT).is_ok() && unanswered.ask(second, LIMIT).is_ok());
        assert!(unanswered.answered(answer(4)).is_ok());
        assert_eq!(first_answered.try_recv().unwrap().unwrap().number, 4);
        assert!(unanswered.answered(answer(7)).is_ok());
        assert_eq!(second_answered.try_recv().unwrap().unwrap().number, 7);
        for wrong in [0, 7, 8, 10] {
            let (third, mut third_answered) = waiting(9, start);
            assert!(unanswered.ask(third, LIMIT).is_ok());
            let refused = unanswered.answered(answer(wrong)).unwrap_err();
            assert!(refused.message().contains("Some(9)"), "{refused}");
            assert!(!matches!(third_answered.try_recv(), Ok(Ok(_))), "no answer of another's");
        }
        assert!(unanswered.answered(answer(9)).is_err(), "an answer to nothing");
    }

    #[test]
    fn an_end_reaches_all_who_wait_and_whoever_comes_too_late() {
        let (mut unanswered, start) = (Unanswered::default(), Instant::now());
        let (first, mut first_answered) = waiting(1, start);
        assert!(unanswered.ask(first, LIMIT).is_ok());
        unanswered.end(&Status::unavailable("gone"));
        assert_eq!(first_answered.try_recv().unwrap().unwrap_err().message(), "gone");
        assert!(unanswered.ask(waiting(2, start).0, LIMIT).is_err());
    }

    #[test]
    fn a_stream_that_does_not_move_takes_no_more() {
        let (mut unanswered, start) = (Unanswered::default(), Instant::now());
        assert!(unanswered.ask(waiting(1, start).0, LIMIT).is_ok());
        assert!(unanswered.ask(waiting(2, start + LIMIT).0, LIMIT).is_ok());
        assert!(unanswered.ask(waiting(3, start + LIMIT + Duration::from_millis(1)).0, LIMIT).is_err());
        assert!(unanswered.answered(answer(1)).is_ok());
        assert!(
            unanswered.ask(waiting(3, start + LIMIT + Duration::from_millis(1)).0, LIMIT).is_ok(),
            "it moves again"
        );

        let mut unanswered = Unanswered::default();
        let taken = (1..).take_while(|number| unanswered.ask(waiting(*number, start).0, LIMIT).is_ok()).count();
        assert_eq!(taken, APPENDS_UNANSWERED_MAX);
    }

    #[test]
    fn heartbeats_within_the_deadline_of_a_call_have_room() {
        for timing in [Timing::lan(), Timing::relaxed()] {
            let within = timing.rpc_timeout.as_nanos() / timing.heartbeat.as_nanos() + 1;
            assert!(within < APPENDS_UNANSWERED_MAX as u128, "{timing:?}");
        }
    }

    proptest! {
        /// Whatever answers come, in whatever order: no request gets another's answer, each gets at most one, and the
        /// number of waiting requests stays within the limit.
        #[test]
        fn nobody_gets_the_answer_to_anything_else(steps in prop::collection::vec((any::<bool>(), 0_u64..12), 1..80)) {
            let (mut unanswered, start, mut receivers) = (Unanswered::default(), Instant::now(), Vec::new());
            for (asks, number) in steps {
                if asks {
                    let number = receivers.len() as u64;
                    let (waiting, answered) = waiting(number, start);
                    if unanswered.ask(waiting, LIMIT).is_ok() {
                        receivers.push(answered);
                    }
                } else if unanswered.answered(answer(number)).is_err() {
                    unanswered.end(&Status::data_loss("no answer"));
                }
                prop_assert!(unanswered.waiting.len() <= APPENDS_UNANSWERED_MAX);
            }
            for (number, mut answered) in receivers.into_iter().enumerate() {
                if let Ok(Ok(answer)) = answered.try_recv() {
                    prop_assert_eq!(answer.number, number as u64);
                }
            }
        }
    }
}
