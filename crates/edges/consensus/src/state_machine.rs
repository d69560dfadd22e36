//! The port of the replicated state machine.

/// The replicated state: pure and deterministic. Applying the same commands in the same order gives the same bytes on
/// every replica (invariant C6), so an implementation reads no clock, no randomness and nothing of its node.
pub trait StateMachine: Send + 'static {
    /// Applies the command of log entry `index` and returns the response for the proposer. Indexes grow but are not
    /// consecutive: the group's own entries take some.
    ///
    /// An invalid command is answered in the response, never by a panic: every replica applies it.
    ///
    /// # Errors
    /// Why this replica cannot decode the command. Another release wrote it, and others may decode it, so this replica
    /// must not go on without it, and ends.
    fn apply(&mut self, index: u64, command: &[u8]) -> Result<Vec<u8>, String>;

    /// The whole state as bytes, at most [`SNAPSHOT_BYTES_MAX`](crate::SNAPSHOT_BYTES_MAX).
    fn snapshot(&self) -> Vec<u8>;

    /// Replaces the state by the result of a [`snapshot`](Self::snapshot), from this or another replica.
    ///
    /// # Errors
    /// The defect of the bytes; the state must then be unchanged.
    fn restore(&mut self, bytes: &[u8]) -> Result<(), String>;
}
