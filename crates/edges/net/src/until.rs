//! A blocking socket with an overall deadline.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Reads and writes of a blocking socket, all together until `give_up`. The socket's own timeout limits only each of
/// them: a peer that sends a byte now and then would never exceed it.
#[derive(Debug)]
pub(crate) struct Until<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) give_up: Instant,
}

impl Until<'_> {
    fn set_timeouts(&self) -> io::Result<()> {
        let left = self.give_up.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(too_long());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.set_write_timeout(Some(left))
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long")
}

/// Linux reports the end of a socket's timeout as [`io::ErrorKind::WouldBlock`].
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { too_long() } else { error }
}

impl Read for Until<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.set_timeouts()?;
        self.stream.read(buf).map_err(timed_out)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.set_timeouts()?;
        self.stream.write(buf).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
