//! Processes die and come back as somebody new.

mod backend;
mod frontend;
mod hung_backend;
