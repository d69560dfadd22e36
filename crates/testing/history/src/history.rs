//! What was asked when, and what came of it when.

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End<A> {
    /// Its answer came.
    Answered {
        /// When, in nanoseconds of the recorder's clock.
        at: u64,
        /// The answer.
        answer: A,
    },
    /// It surely had no effect.
    Failed {
        /// When that was known.
        at: u64,
    },
    /// It is not known whether, or when, it had its effect.
    Unknown,
}

/// What one process asked for, from the call to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<C, A> {
    /// The client that asked; each asks one thing at a time.
    pub process: u64,
    /// The call.
    pub call: C,
    /// When, in nanoseconds of the recorder's clock.
    pub called_at: u64,
    /// What came of it.
    pub end: End<A>,
}

/// Operations in the order in which they were called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History<C, A> {
    operations: Vec<Operation<C, A>>,
}

/// What no history can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// A clock that goes backwards.
    #[error("operation {operation} ends at {ended_at} ns, before its call at {called_at} ns")]
    EndsBeforeItsCall {
        /// Its place.
        operation: usize,
        /// When it was called.
        called_at: u64,
        /// When it ended.
        ended_at: u64,
    },
}

impl<C, A> Default for History<C, A> {
    fn default() -> Self {
        Self { operations: Vec::new() }
    }
}

impl<C, A> History<C, A> {
    /// Puts the operations in order.
    ///
    /// # Errors
    /// If one ends before it is called.
    pub fn new(mut operations: Vec<Operation<C, A>>) -> Result<Self, HistoryError> {
        for (place, operation) in operations.iter().enumerate() {
            if let End::Answered { at, .. } | End::Failed { at } = operation.end
                && at < operation.called_at
            {
                let called_at = operation.called_at;
                return Err(HistoryError::EndsBeforeItsCall { operation: place, called_at, ended_at: at });
            }
        }
        operations.sort_by_key(|operation| operation.called_at);
        Ok(Self { operations })
    }

    /// All operations, in the order of their calls.
    #[must_use]
    pub fn operations(&self) -> &[Operation<C, A>] {
        &self.operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_before_the_call_is_refused() {
        let operation = Operation { process: 1, call: (), called_at: 5, end: End::Answered { at: 4, answer: () } };
        let error = History::new(vec![operation]).unwrap_err();
        assert_eq!(error, HistoryError::EndsBeforeItsCall { operation: 0, called_at: 5, ended_at: 4 });
    }
}
