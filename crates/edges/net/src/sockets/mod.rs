//! Sockets of a cluster's processes: the machine's TCP, or those of a simulation.
//!
//! The choice is made once, where a process is assembled, by the value passed down. See
//! docs/adr/0013-deterministic-simulation.md.

mod dialer;
mod forward;
mod listener;
mod stream;

pub use dialer::{Dialer, Sockets};
pub(crate) use forward::{forward_read, forward_write};
pub use listener::{Listener, Port};
pub use stream::{ReadHalf, Socket, Stream, WriteHalf};
