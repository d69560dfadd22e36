//! Records of decisions: tapes, and notes for explanations.

pub(crate) mod explain;
pub(crate) mod recorder_queue;
pub(crate) mod tape_recorder;
pub(crate) mod tape_writer;
pub(crate) mod tapes;
