//! Integration tests: real processes, real clients, one folder per theme. Each test is a story of a cluster of its own.

mod bad_input;
mod cli;
mod explain;
mod federation;
mod fencing;
mod frames;
mod learning;
mod local;
mod moves;
mod on_call;
mod payloads;
mod restart;
mod scaling;
mod security;
mod serving;
mod takeover;
mod tape;
mod upgrade;
