//! Writes a history down while it happens.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::history::{End, History, HistoryError, Operation};

/// An operation that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationId(u64);

/// Takes down calls and ends from many tasks and threads. An operation that is never ended, because its task was
/// cancelled or killed, has an unknown end.
///
/// The clock is read under the recorder's lock for ends and before it for calls, so that what is written down is at
/// least as long as what happened: that can hide a violation of a few microseconds, and never makes one up.
pub struct Recorder<C, A> {
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    next: AtomicU64,
    operations: Mutex<HashMap<u64, Operation<C, A>>>,
}

impl<C, A> fmt::Debug for Recorder<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("operations", &self.next).finish_non_exhaustive()
    }
}

impl<C: Clone, A: Clone> Recorder<C, A> {
    /// A recorder with a monotonic clock, in nanoseconds.
    pub fn new(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { clock: Box::new(clock), next: AtomicU64::new(0), operations: Mutex::default() }
    }

    /// A client asks. To be recorded before the request leaves.
    pub fn call(&self, process: u64, call: C) -> OperationId {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let called_at = (self.clock)();
        let operation = Operation { process, call, called_at, end: End::Unknown };
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).insert(id, operation);
        OperationId(id)
    }

    /// It was answered. To be called after the answer has arrived.
    pub fn answered(&self, operation: OperationId, answer: A) {
        self.end(operation, |at| End::Answered { at, answer });
    }

    /// It surely had no effect: it was refused before it could take effect.
    pub fn failed(&self, operation: OperationId) {
        self.end(operation, |at| End::Failed { at });
    }

    /// Unknown: the same as saying nothing; to be called where an error leaves it open.
    pub fn unknown(&self, operation: OperationId) {
        self.end(operation, |_| End::Unknown);
    }

    fn end(&self, OperationId(id): OperationId, end: impl FnOnce(u64) -> End<A>) {
        let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(operation) = operations.get_mut(&id) {
            operation.end = end((self.clock)());
        }
    }

    /// The history so far.
    ///
    /// # Errors
    /// If the clock went backwards.
    pub fn history(&self) -> Result<History<C, A>, HistoryError> {
        let operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
        let mut by_id: Vec<_> = operations.iter().collect();
        by_id.sort_unstable_by_key(|(id, _)| **id);
        History::new(by_id.into_iter().map(|(_, operation)| operation.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn calls_from_many_threads_keep_their_ends() {
        let ticks = AtomicU64::new(0);
        let recorder = Arc::new(Recorder::new(move || ticks.fetch_add(1, Ordering::SeqCst)));
        let threads: Vec<_> = (0..4_u64)
            .map(|process| {
                let recorder = Arc::clone(&recorder);
                std::thread::spawn(move || {
                    for number in 0..100_u64 {
                        let operation = recorder.call(process, number);
                        match number % 4 {
                            0 => recorder.answered(operation, number),
                            1 => recorder.failed(operation),
                            2 => recorder.unknown(operation),
                            _ => {}
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let history = recorder.history().unwrap();
        assert_eq!(history.operations().len(), 400);
        for operation in history.operations() {
            match operation.call % 4 {
                0 => assert!(matches!(operation.end, End::Answered { answer, .. } if answer == operation.call)),
                1 => assert!(matches!(operation.end, End::Failed { .. })),
                _ => assert_eq!(operation.end, End::Unknown),
            }
        }
        let times: Vec<_> = history.operations().iter().map(|operation| operation.called_at).collect();
        assert!(times.is_sorted());
    }
}
