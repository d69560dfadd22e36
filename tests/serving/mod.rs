//! Models are served to the clients that people have.

mod digits_file;
mod load_protocols;
mod native_client;
mod pictures;
mod policies;
mod repository;
mod tritonclient;
