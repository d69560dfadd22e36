//! What can be asked of recorders.

use symphony_types::{ModelId, RequestId};

/// Batches that are told of at most: as many as a recorder keeps, cut to what one message holds.
pub const LAST_BATCHES_MAX: usize = 1000;

/// What an operator wants explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// What became of a request.
    Request(RequestId),
    /// The last batches of a model, at most [`LAST_BATCHES_MAX`].
    Last {
        /// The model.
        model: ModelId,
        /// How many.
        count: usize,
    },
}
