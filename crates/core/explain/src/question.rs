//! Questions to recorders.

use symphony_types::{ModelId, RequestId};

/// The most batches in an answer: those that a recorder keeps, limited to the size of one message.
pub const LAST_BATCHES_MAX: usize = 1000;

/// A question by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// About one request.
    Request(RequestId),
    /// About the latest batches of a model, at most [`LAST_BATCHES_MAX`].
    Last {
        /// The model whose batches are asked for.
        model: ModelId,
        /// The number of batches.
        count: usize,
    },
}
