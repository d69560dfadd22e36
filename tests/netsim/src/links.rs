//! The simulated network as the processes' wire. Simulated TCP does not send again what was lost: a connection that has
//! been through a partition is dead without knowing it. Real TCP would either catch up or reset, so connections that
//! lost something are reset when the network heals.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use symphony_net::Net;
use symphony_net::sockets::{Dialer, Listener, Port, Socket, Sockets};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use turmoil::net::{TcpListener, TcpStream};

/// Size and pace of the drops over a stuck connection: about a heartbeat in each tenth of a second, so less than a
/// leader sends and more than a follower needs to stay loyal.
const DROP_BYTES: usize = 36;
const DROP_EVERY: Duration = Duration::from_millis(40);

/// All connections of the simulation, by the hosts at their ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Ends>,
    /// Connections whose bytes arrive in drops only.
    dripping: Vec<[String; 2]>,
}

#[derive(Debug)]
struct Ends {
    hosts: [String; 2],
    reset: bool,
    wakers: Vec<Waker>,
}

impl Links {
    /// How one host reaches the others.
    pub(crate) fn net(&self, host: &str) -> Net {
        Net::over(Dialer::simulated(Host { name: host.to_owned(), links: self.clone() }))
    }

    /// A port of the host that this is called on.
    pub(crate) async fn listen(&self, host: &str, port: u16) -> io::Result<Listener> {
        let listener = TcpListener::bind(("0.0.0.0", port)).await?;
        Ok(Listener::Simulated(Box::new(Bound { listener, host: host.to_owned(), links: self.clone() })))
    }

    /// Resets what connects any of one side with any of the other.
    pub(crate) fn reset(&self, one: &[&str], other: &[&str]) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wakers = Vec::new();
        for ends in table.open.values_mut() {
            let [a, b] = [ends.hosts[0].as_str(), ends.hosts[1].as_str()];
            if one.contains(&a) && other.contains(&b) || one.contains(&b) && other.contains(&a) {
                ends.reset = true;
                wakers.append(&mut ends.wakers);
            }
        }
        drop(table);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// From now on bytes from `from` arrive at the others in drops, however long ago they were sent.
    pub(crate) fn drip(&self, from: &str, to: &[&str]) {
        let pairs = to.iter().map(|to| [from.to_owned(), (*to).to_owned()]);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).dripping.extend(pairs);
    }

    /// Everything flows again.
    pub(crate) fn flow(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).dripping.clear();
    }

    /// Whether what this end reads comes in drops.
    fn drips(&self, [from, to]: &[String; 2]) -> bool {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.dripping.iter().any(|[one, other]| one == from && other == to)
    }

    fn join(&self, host: &str, stream: TcpStream, peer: SocketAddr) -> Box<dyn Socket> {
        let other = turmoil::reverse_lookup(peer.ip()).unwrap_or_default();
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.next += 1;
        let id = table.next;
        let direction = [other.clone(), host.to_owned()];
        table.open.insert(id, Ends { hosts: [host.to_owned(), other], reset: false, wakers: Vec::new() });
        Box::new(End { id, stream, links: self.clone(), direction, drop: None })
    }

    /// Whether the connection was reset; remembers the task that waits for that.
    fn is_reset(&self, id: u64, waits: Option<&Waker>) -> bool {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ends) = table.open.get_mut(&id) else { return true };
        if let Some(waker) = waits.filter(|waker| !ends.wakers.iter().any(|known| known.will_wake(waker))) {
            ends.wakers.push(waker.clone());
        }
        ends.reset
    }
}

#[derive(Debug)]
struct Host {
    name: String,
    links: Links,
}

impl Sockets for Host {
    fn dial(&self, addr: String) -> BoxFuture<'static, io::Result<(Box<dyn Socket>, SocketAddr)>> {
        let (name, links) = (self.name.clone(), self.links.clone());
        Box::pin(async move {
            let stream = TcpStream::connect(addr).await?;
            let peer = stream.peer_addr()?;
            Ok((links.join(&name, stream, peer), peer))
        })
    }
}

struct Bound {
    listener: TcpListener,
    host: String,
    links: Links,
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bound").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Port for Bound {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Socket>, SocketAddr)>> {
        Box::pin(async move {
            let (stream, peer) = self.listener.accept().await?;
            Ok((self.links.join(&self.host, stream, peer), peer))
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// One end of a connection.
#[derive(Debug)]
struct End {
    id: u64,
    stream: TcpStream,
    links: Links,
    /// The sender of what arrives here, and its receiver.
    direction: [String; 2],
    /// Until when the next drop takes.
    drop: Option<Pin<Box<Sleep>>>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.links.0.lock().unwrap_or_else(PoisonError::into_inner).open.remove(&self.id);
    }
}

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.links.is_reset(self.id, Some(cx.waker())) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if !self.links.drips(&self.direction) {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        if let Some(drop) = &mut self.drop {
            ready!(drop.as_mut().poll(cx));
        }
        let mut drop = [0; DROP_BYTES];
        let room = buf.remaining().min(DROP_BYTES);
        let mut read = ReadBuf::new(&mut drop[..room]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
        buf.put_slice(read.filled());
        self.drop = Some(Box::pin(sleep(DROP_EVERY)));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.links.is_reset(self.id, None) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
