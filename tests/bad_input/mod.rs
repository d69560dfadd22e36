//! Whatever people get wrong: a clear message, the right status or exit code, and a cluster that goes on serving.

mod bombs;
mod connections;
mod endless;
mod floods;
mod models;
mod nodes;
mod requests;
mod scenarios;
