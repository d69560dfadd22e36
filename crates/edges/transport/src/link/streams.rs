//! Where the frames of a link come from and go to, whatever carries them.

use symphony_net::{FabricReader, ReadHalf, RingReader};
use tokio::io::{AsyncRead, AsyncWrite};

/// Where frames come from.
pub(crate) trait Inbound: AsyncRead + Send + Sync + Unpin + std::fmt::Debug {
    /// The connection beside has shown that the other end is gone, and everything that came was read. For a carrier
    /// whose system does not report the end of the peer, this is the end.
    fn gone(&mut self) {}
}

impl Inbound for ReadHalf {}
impl Inbound for RingReader {}

impl Inbound for Box<dyn FabricReader> {
    fn gone(&mut self) {
        FabricReader::gone(&mut **self);
    }
}

/// Where frames go.
pub(crate) trait Outbound: AsyncWrite + Send + Sync + Unpin + std::fmt::Debug {}

impl<T: AsyncWrite + Send + Sync + Unpin + std::fmt::Debug> Outbound for T {}

/// The two directions of a carrier.
pub(crate) type Streams = (Box<dyn Inbound>, Box<dyn Outbound>);
