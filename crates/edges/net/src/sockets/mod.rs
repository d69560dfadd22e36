//! Sockets as the processes of a cluster use them: the machine's TCP, or those of a simulation.
//!
//! Which one is decided once, where a process is put together, by the value that is handed down. See
//! docs/adr/0013-deterministic-simulation.md.

mod dialer;
mod forward;
mod listener;
mod stream;

pub use dialer::{Dialer, Sockets};
pub(crate) use forward::{forward_read, forward_write};
pub use listener::{Listener, Port};
pub use stream::{ReadHalf, Socket, Stream, WriteHalf};
