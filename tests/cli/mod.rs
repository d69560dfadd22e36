//! The command line: what operators and programs read.

mod apply;
mod context;
mod describe;
mod fleet;
mod get;
mod help;
mod operations;
mod pack;
mod paper;
mod partition;
mod profile;
mod sim;
mod split;
mod top;
mod trace;
