//! The public surface over real sockets: every status, every encoding, and clients that were written for others.

mod callers;
mod clients;
mod compression;
mod fake;
mod grpc;
mod hostile;
mod in_flight;
mod native_client;
mod pictures;
mod reflection;
mod rest;
mod shared_memory;
