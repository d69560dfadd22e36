//! The state of a federation from outside.

mod format;
mod moves;
mod properties;
mod replicas;
mod restored;
mod scene;
