//! Integration tests: real processes, real clients, one folder per theme. Each test is a story of a cluster of its own.

mod bad_input;
mod cli;
mod explain;
mod federation;
mod fencing;
mod local;
mod moves;
mod restart;
mod security;
mod serving;
mod takeover;
mod tape;
