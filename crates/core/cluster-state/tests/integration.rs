//! The cluster's state from outside: commands, moves, hand-overs, formats.

mod backup;
mod commands;
mod format;
mod handover;
mod leaders;
mod moves;
mod operations;
mod pipelines;
mod policies;
mod properties;
mod scene;
mod traffic;
