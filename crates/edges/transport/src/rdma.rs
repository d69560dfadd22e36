//! Payloads by RDMA between one backend and one frontend: what the two exchange over their data link, and what each
//! holds afterwards. See `docs/adr/0029-rdma.md`.

use std::sync::Arc;

use bytes::Bytes;
use symphony_protocol::data::{RdmaEndpoint, RdmaKey, RdmaOffer};
use symphony_rdma::{Fabric, Grant, Key, Landing, Pair, Purpose, RemotePool, Shown, StreamReader, Unpaired};
use symphony_shared_memory::{Pool, RemoteLayout, Unreadable};

use crate::link::{Inbound, Streams};
use crate::rdma_endpoint::{from_wire, to_wire};
use crate::sharing::SharingError;

/// A backend's side: its device, and memory for what it reads.
#[derive(Clone, Debug)]
pub(crate) struct RdmaReader {
    fabric: Fabric,
    landing: Landing,
}

/// A backend's end of a connection whose other end is not known yet.
#[derive(Debug)]
pub(crate) struct RdmaBegun {
    end: Unpaired,
    landing: Landing,
}

/// The inputs of one frontend, as its backend reads them; ends with [`RdmaInputs::end`].
#[derive(Debug)]
pub(crate) struct RdmaInputs(RemotePool);

/// A frontend's side: its device, and its inputs there.
#[derive(Debug)]
pub(crate) struct RdmaFrontend {
    fabric: Fabric,
    shown: Shown,
    entries: u64,
}

/// One backend that may read the inputs, until this is dropped.
#[derive(Debug)]
pub(crate) struct RdmaPeer {
    // Before the connection ends, the right to read ends.
    _grant: Grant,
    pair: Pair,
}

impl Drop for RdmaPeer {
    /// A writer that waits for a dead peer holds the connection: only this ends it.
    fn drop(&mut self) {
        self.pair.end();
    }
}

// A holder of such a link ends it with its connection.
impl Inbound for StreamReader {}

impl RdmaReader {
    pub(crate) fn open(device: Option<&str>, landing_bytes: u64) -> Result<Self, SharingError> {
        let fabric = Fabric::open(device, Purpose::Payloads).map_err(no_rdma)?;
        let landing = fabric.landing(usize::try_from(landing_bytes).unwrap_or(usize::MAX)).map_err(no_rdma)?;
        tracing::info!(device = fabric.device(), "inputs are read by RDMA where a frontend offers it");
        Ok(Self { fabric, landing })
    }

    pub(crate) fn begin(&self) -> Result<RdmaBegun, String> {
        let end = self.fabric.begin().map_err(|error| error.to_string())?;
        Ok(RdmaBegun { end, landing: self.landing.clone() })
    }
}

impl RdmaBegun {
    pub(crate) fn endpoint(&self) -> RdmaEndpoint {
        to_wire(self.end.endpoint())
    }

    /// Connects to the frontend that made the offer.
    pub(crate) fn join(self, offer: &RdmaOffer) -> Result<RdmaInputs, String> {
        let RdmaOffer { endpoint, key: RdmaKey(key), address, bytes, entries } = *offer;
        let layout = RemoteLayout::new(bytes, entries).map_err(|why| format!("the frontend's pool: {why}"))?;
        let pair = self.end.join(from_wire(endpoint)).map_err(|error| error.to_string())?;
        let pool = RemotePool::new(pair, self.landing, layout, bytes, address, Key(key));
        pool.map(RdmaInputs).map_err(|error| error.to_string())
    }
}

impl RdmaInputs {
    /// Whether the other end answers. May take as long as the connection takes to break.
    ///
    /// # Errors
    /// The reason if it does not.
    pub(crate) async fn prove(&self) -> Result<(), String> {
        self.0.prove().await.map_err(|broken| broken.to_string())
    }

    /// A request's input.
    ///
    /// # Errors
    /// If the connection cannot be used any more.
    pub(crate) async fn input(&self, sequence: u64) -> Result<Result<Bytes, Unreadable>, String> {
        self.0.read(sequence).await.map_err(|broken| broken.to_string())
    }

    /// The streams for frames.
    pub(crate) fn streams(&self) -> Streams {
        streams(self.0.pair())
    }

    /// Whether the device is executing a read, which does not only wait for others.
    pub(crate) fn is_read(&self) -> bool {
        self.0.pair().is_read()
    }

    /// Reads in progress fail.
    pub(crate) fn end(&self) {
        self.0.pair().end();
    }
}

impl RdmaFrontend {
    /// Registers the pool; no peer may read it yet.
    pub(crate) fn open(device: Option<&str>, pool: &Arc<Pool>) -> Result<Self, SharingError> {
        let fabric = Fabric::open(device, Purpose::Payloads).map_err(no_rdma)?;
        let shown = fabric.show(Arc::clone(pool) as _).map_err(no_rdma)?;
        tracing::info!(device = fabric.device(), bytes = size_of_val(pool.words()), "inputs can be read by RDMA");
        Ok(Self { fabric, shown, entries: pool.entries() as u64 })
    }

    /// Connects to a backend and lets it read.
    pub(crate) async fn offer(&self, to: RdmaEndpoint) -> Result<(RdmaOffer, RdmaPeer), String> {
        let begun = self.fabric.begin().map_err(|error| error.to_string())?;
        let endpoint = to_wire(begun.endpoint());
        let pair = begun.join(from_wire(to)).map_err(|error| error.to_string())?;
        let grant = self.shown.grant(&pair).await.map_err(|error| error.to_string())?;
        let (key, address, bytes) = (RdmaKey(grant.key().0), grant.address(), grant.bytes());
        let offer = RdmaOffer { endpoint, key, address, bytes, entries: self.entries };
        Ok((offer, RdmaPeer { _grant: grant, pair }))
    }
}

impl RdmaPeer {
    /// The streams for frames.
    pub(crate) fn streams(&self) -> Streams {
        streams(&self.pair)
    }
}

fn streams(pair: &Pair) -> Streams {
    let (read, write) = pair.split();
    (Box::new(read), Box::new(write))
}

fn no_rdma(error: symphony_rdma::RdmaError) -> SharingError {
    SharingError::Rdma(error.to_string())
}
