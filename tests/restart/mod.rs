//! Processes die and come back under a new boot.

mod backend;
mod frontend;
mod hung_backend;
