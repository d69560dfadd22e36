//! Decision threads, leads and their links.

mod in_process;
mod lead;
mod many_leads;
mod shared_threads;
mod tape_parity;
mod thousand;
