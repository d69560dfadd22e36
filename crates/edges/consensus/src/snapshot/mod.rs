//! The whole state as a file: how it is laid out, and where it is kept.

pub(crate) mod image;
pub(crate) mod shelf;
