//! A device of this machine, and connections over it.

use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::error::RdmaError;
use crate::key::Key;
use crate::landing::Landing;
use crate::purpose::Purpose;
use crate::session::{Pair, Session, StreamState};
use crate::verbs::{Arena, Device, QueuePair, Region, Window, Words};

/// An open device; a handle.
#[derive(Clone, Debug)]
pub struct Fabric {
    purpose: Purpose,
    device: Arc<Device>,
    engine: Arc<Engine<Session>>,
}

impl Fabric {
    /// Opens the device of that name, or the first with an active port. One thread polls the completions of all
    /// connections.
    ///
    /// # Errors
    /// If there is none, or it cannot do what is needed.
    pub fn open(device: Option<&str>, purpose: Purpose) -> Result<Self, RdmaError> {
        let device = Arc::new(Device::open(device, purpose)?);
        let engine = Arc::new(Engine::start(&device, purpose)?);
        Ok(Self { purpose, device, engine })
    }

    /// The name of the device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device.port.device
    }

    /// One end of a new connection.
    ///
    /// # Errors
    /// If the device has no room for it.
    pub fn begin(&self) -> Result<Unpaired, RdmaError> {
        let stream = StreamState::new(&self.device, self.purpose)?;
        let first_packet = rand::random::<u32>() & 0xff_ffff;
        let queue = QueuePair::new(self.engine.queue(), self.purpose, first_packet)
            .map_err(|error| RdmaError::system("no queue pair", error))?;
        Ok(Unpaired(Session::start(&self.engine, queue, stream)?))
    }

    /// Registers memory that others will read. No peer may read it yet.
    ///
    /// # Errors
    /// If it cannot be pinned.
    pub fn show(&self, words: Arc<dyn Words>) -> Result<Shown, RdmaError> {
        Ok(Shown(Arc::new(Region::new(&self.device, words)?)))
    }

    /// Memory of this size, for data read from other hosts.
    ///
    /// # Errors
    /// If it cannot be pinned.
    pub fn landing(&self, bytes: usize) -> Result<Landing, RdmaError> {
        Ok(Landing::new(Arena::new(&self.device, bytes)?))
    }
}

/// One end of a connection that has not been paired yet.
#[derive(Debug)]
pub struct Unpaired(Arc<Session>);

impl Unpaired {
    /// The address of this end, for the peer.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.0.queue.endpoint()
    }

    /// Connects to the other end.
    ///
    /// # Errors
    /// If that cannot be reached.
    pub fn join(self, peer: Endpoint) -> Result<Pair, RdmaError> {
        let peer = peer.checked()?;
        self.0.queue.connect(&peer).map_err(|error| RdmaError::system("the other end cannot be reached", error))?;
        Ok(Pair(self.0))
    }
}

/// Registered memory that peers can be granted access to; a handle.
#[derive(Clone, Debug)]
pub struct Shown(Arc<Region>);

impl Shown {
    /// Lets the peer of a connection read all of it, through that connection only.
    ///
    /// # Errors
    /// If the device refuses, or the connection is broken.
    pub async fn grant(&self, to: &Pair) -> Result<Grant, RdmaError> {
        let window = Window::new(&self.0).map_err(|error| RdmaError::system("no memory window", error))?;
        to.0.bind(&window).await?;
        Ok(Grant { window, address: self.0.address, bytes: self.0.bytes, _to: to.clone() })
    }
}

/// One peer's permission to read; dropping it revokes the key at once.
#[derive(Debug)]
pub struct Grant {
    // Before the connection: a window ends before the queue pair that it is bound to.
    window: Window,
    address: u64,
    bytes: u64,
    _to: Pair,
}

impl Grant {
    /// The key. It is useless without the connection.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.window.key
    }

    /// Where the memory begins, as the peer has to say it.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// How long it is.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}
