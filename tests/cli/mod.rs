//! The command line: what operators and programs read.

mod apply;
mod context;
mod describe;
mod get;
mod help;
mod operations;
mod paper;
mod partition;
mod profile;
mod sim;
mod split;
mod top;
