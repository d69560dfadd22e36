//! Processes die and come back as somebody new.

mod backend;
mod frontend;
