//! A fabric without a device, as silent as one: a reader does not learn that the writer is gone, unless that ended the
//! stream; a writer fails once the other end no longer exists, which a device finds out by itself.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use symphony_net::{Endpoint, Fabric, FabricEnd, FabricReader, FabricStreams, FabricWriter};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

/// Bytes that one direction holds.
const PIPE_BYTES: usize = 64 << 10;

/// The network: by the numbers of writer and reader.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pipes: Mutex<HashMap<(u32, u32), Arc<Pipe>>>,
    ends: Mutex<u32>,
}

/// What a process has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    Works,
    /// There is no room for another end.
    Full,
    /// Whatever is sent vanishes.
    Vanishes,
}

/// One process's device in the network.
#[derive(Debug)]
pub(crate) struct Pipes {
    network: Arc<Network>,
    device: Device,
}

struct PipeEnd {
    number: u32,
    network: Arc<Network>,
    device: Device,
}

#[derive(Debug, Default)]
struct Pipe {
    held: Mutex<Held>,
    /// Whether its reader has joined.
    joined: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: VecDeque<u8>,
    ended: bool,
    broken: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Both directions of one end. With the last of its halves it does not exist any more.
#[derive(Debug)]
struct Ways {
    comes: Arc<Pipe>,
    goes: Arc<Pipe>,
}

impl Drop for Ways {
    fn drop(&mut self) {
        self.comes.breaks();
    }
}

#[derive(Debug)]
struct PipeReader(Arc<Ways>);

#[derive(Debug)]
struct PipeWriter {
    ways: Arc<Ways>,
    vanishes: bool,
}

impl Pipe {
    /// Nothing more can be written.
    fn breaks(&self) {
        let mut held = lock(&self.held);
        held.broken = true;
        held.writer.take().into_iter().for_each(Waker::wake);
    }
}

impl Network {
    pub(crate) fn device(self: &Arc<Self>, device: Device) -> Arc<dyn Fabric> {
        Arc::new(Pipes { network: Arc::clone(self), device })
    }

    fn pipe(&self, from: u32, to: u32) -> Arc<Pipe> {
        Arc::clone(lock(&self.pipes).entry((from, to)).or_default())
    }
}

impl Fabric for Pipes {
    fn begin(&self) -> Result<Box<dyn FabricEnd>, String> {
        if self.device == Device::Full {
            return Err("there is no room".to_owned());
        }
        let mut ends = lock(&self.network.ends);
        *ends += 1;
        Ok(Box::new(PipeEnd { number: *ends, network: Arc::clone(&self.network), device: self.device }))
    }
}

impl FabricEnd for PipeEnd {
    fn endpoint(&self) -> Endpoint {
        Endpoint { queue_pair: self.number, first_packet: 0, mtu: 1, lid: 1, gid: [0; 16] }
    }

    fn join(self: Box<Self>, peer: Endpoint) -> Result<FabricStreams, String> {
        let peer = peer.checked().map_err(|error| error.to_string())?.queue_pair;
        let (comes, goes) = (self.network.pipe(peer, self.number), self.network.pipe(self.number, peer));
        comes.joined.send_replace(true);
        let vanishes = self.device == Device::Vanishes;
        let ways = Arc::new(Ways { comes, goes });
        Ok((Box::new(PipeReader(Arc::clone(&ways))), Box::new(PipeWriter { ways, vanishes })))
    }
}

impl AsyncRead for PipeReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut held = lock(&self.0.comes.held);
        let count = held.bytes.len().min(into.remaining());
        if count == 0 && !held.ended {
            held.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let (first, second) = held.bytes.as_slices();
        into.put_slice(&first[..count.min(first.len())]);
        into.put_slice(&second[..count.saturating_sub(first.len())]);
        held.bytes.drain(..count);
        held.writer.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl FabricReader for PipeReader {
    fn gone(&mut self) {
        if !lock(&self.0.comes.held).ended {
            self.0.goes.breaks();
        }
    }
}

impl AsyncWrite for PipeWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut held = lock(&self.ways.goes.held);
        if held.broken || held.ended {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let count = bytes.len().min(PIPE_BYTES - held.bytes.len());
        if count == 0 {
            held.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        held.bytes.extend(&bytes[..count]);
        held.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = lock(&self.ways.goes.held);
        held.ended = true;
        held.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl FabricWriter for PipeWriter {
    fn prove(&mut self) -> BoxFuture<'_, Result<(), String>> {
        let mut joined = self.ways.goes.joined.subscribe();
        let vanishes = self.vanishes;
        async move {
            if vanishes {
                std::future::pending::<()>().await;
            }
            joined.wait_for(|joined| *joined).await.map(drop).map_err(|error| error.to_string())
        }
        .boxed()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
