//! The fault proxy: stands in the middle of a TCP link and does to it what networks do.
//!
//! What it cannot do as a network does: a dialler whose link is cut is connected, to the proxy, and hears nothing from
//! then on, where real packets would vanish and the dial would time out.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::fault::LinkEffect;

/// Bytes read at a time: small enough that a rate is smooth.
const CHUNK_BYTES: usize = 16 << 10;
/// Chunks on their way over a slow link, each direction of a connection: 4 MiB, about what two sockets hold.
const CHUNKS_MAX: usize = 256;
/// Bytes sent at a time over a link with a rate.
const DRIP_BYTES: usize = 64;

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct OneWay {
    /// Nothing gets through. Data under way arrives when this ends, as with TCP.
    pub(crate) cut: bool,
    pub(crate) effect: LinkEffect,
}

impl LinkEffect {
    /// Whether it changes nothing.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Both directions: towards the listener that is stood in for, and back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rules {
    there: OneWay,
    back: OneWay,
}

/// One link to one listener. Ends when dropped, with its connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    listens: SocketAddr,
    rules: watch::Sender<Rules>,
    touched: Arc<AtomicU64>,
}

impl Proxy {
    /// Listens on a free port of loopback and connects callers with `target` (`host:port`).
    ///
    /// # Errors
    /// If there is no port.
    pub(crate) async fn start(target: String) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let listens = listener.local_addr()?;
        let (rules, watched) = watch::channel(Rules::default());
        let touched = Arc::new(AtomicU64::new(0));
        let (target, counter): (Arc<str>, _) = (target.into(), Arc::clone(&touched));
        tokio::spawn(async move {
            let mut ended = watched.clone();
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    gone = closed(&mut ended) => return gone,
                };
                let Ok((client, _)) = accepted else {
                    sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let (target, rules, touched) = (Arc::clone(&target), watched.clone(), Arc::clone(&counter));
                tokio::spawn(async move {
                    let mut ended = rules.clone();
                    tokio::select! {
                        () = connect(client, &target, rules, &touched) => {}
                        () = closed(&mut ended) => {}
                    }
                });
            }
        });
        Ok(Self { listens, rules, touched })
    }

    /// Where it listens.
    pub(crate) const fn listens(&self) -> SocketAddr {
        self.listens
    }

    /// Has the link be so from now on, for connections that are and that come.
    pub(crate) fn set(&self, there: OneWay, back: OneWay) {
        self.rules.send_if_modified(|rules| {
            let new = Rules { there, back };
            std::mem::replace(rules, new) != new
        });
    }

    /// Chunks and connections that were held, slowed, harmed or reset.
    pub(crate) fn touched(&self) -> u64 {
        self.touched.load(Ordering::Relaxed)
    }
}

/// Waits until the proxy is gone.
async fn closed(rules: &mut watch::Receiver<Rules>) {
    while rules.changed().await.is_ok() {}
}

/// Why a connection ends at once, both ways.
struct Reset;

/// One connection, from the dial to its end.
async fn connect(client: TcpStream, target: &str, mut rules: watch::Receiver<Rules>, touched: &AtomicU64) {
    // A handshake takes both directions.
    if rules.borrow().there.cut || rules.borrow().back.cut {
        touched.fetch_add(1, Ordering::Relaxed);
        if rules.wait_for(|rules| !rules.there.cut && !rules.back.cut).await.is_err() {
            return;
        }
    }
    let _ = client.set_nodelay(true);
    let Ok(server) = TcpStream::connect(target).await else {
        // The nearest to a refusal that is left.
        let _ = client.set_zero_linger();
        return;
    };
    let _ = server.set_nodelay(true);
    let (mut client_in, mut client_out) = client.into_split();
    let (mut server_in, mut server_out) = server.into_split();
    let there = Pump { rules: rules.clone(), way: |rules| rules.there, touched };
    let back = Pump { rules: rules.clone(), way: |rules| rules.back, touched };
    let pumped = async {
        tokio::try_join!(there.run(&mut client_in, &mut server_out), back.run(&mut server_in, &mut client_out))
            .map(drop)
    };
    let reset = tokio::select! {
        ended = pumped => ended.is_err(),
        () = resets(rules, touched) => true,
    };
    if reset {
        for stream in [client_in.reunite(client_out), server_in.reunite(server_out)].into_iter().flatten() {
            let _ = stream.set_zero_linger();
        }
    }
}

/// Returns when the connection must be reset.
async fn resets(mut rules: watch::Receiver<Rules>, touched: &AtomicU64) {
    loop {
        let every = rules.borrow_and_update().there.effect.reset_every_ms;
        let due = async {
            match every {
                0 => std::future::pending().await,
                every => sleep(Duration::from_millis(every)).await,
            }
        };
        tokio::select! {
            () = due => {
                touched.fetch_add(1, Ordering::Relaxed);
                return;
            }
            changed = rules.changed() => if changed.is_err() { std::future::pending().await },
        }
    }
}

/// One direction of one connection.
struct Pump<'a> {
    rules: watch::Receiver<Rules>,
    way: fn(&Rules) -> OneWay,
    touched: &'a AtomicU64,
}

impl Pump<'_> {
    fn now(&self) -> OneWay {
        (self.way)(&self.rules.borrow())
    }

    fn touch(&self) {
        self.touched.fetch_add(1, Ordering::Relaxed);
    }

    async fn run(mut self, from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) -> Result<(), Reset> {
        let (chunks, mut arriving) = mpsc::channel(CHUNKS_MAX);
        let (rules, way) = (self.rules.clone(), self.way);
        let reading = async move {
            // The same link behaves the same from run to run as far as the system under test lets it.
            let mut random = Xoshiro256PlusPlus::seed_from_u64(0);
            let mut buffer = BytesMut::new();
            let mut last = Instant::now();
            loop {
                buffer.reserve(CHUNK_BYTES);
                let read = from.read_buf(&mut buffer).await.map_err(|_| Reset)?;
                if read == 0 {
                    return Ok(());
                }
                let LinkEffect { latency_ms, jitter_ms, .. } = way(&rules.borrow()).effect;
                let jitter_us = if jitter_ms == 0 { 0 } else { random.random_range(0..=jitter_ms * 1000) };
                // TCP keeps the order whatever the packets do.
                last = last.max(Instant::now() + Duration::from_micros(latency_ms * 1000 + jitter_us));
                if chunks.send((last, buffer.split().freeze())).await.is_err() {
                    return Err(Reset);
                }
            }
        };
        let writing = async {
            let mut sent = 0_u64;
            while let Some((due, chunk)) = arriving.recv().await {
                if due > Instant::now() {
                    self.touch();
                    sleep_until(due).await;
                }
                self.until(|way| !way.cut).await;
                self.write(to, chunk, &mut sent).await?;
            }
            // The end is passed on when everything before it has arrived; a half-open link keeps it to itself.
            self.until(|way| !way.cut && !way.effect.half_open).await;
            to.shutdown().await.map_err(|_| Reset)
        };
        tokio::try_join!(reading, writing).map(drop)
    }

    /// Waits until this direction is as wanted.
    async fn until(&mut self, wanted: fn(&OneWay) -> bool) {
        let way = self.way;
        if !wanted(&self.now()) {
            self.touch();
            let _ = self.rules.wait_for(|rules| wanted(&way(rules))).await;
        }
    }

    async fn write(&self, to: &mut OwnedWriteHalf, chunk: Bytes, sent: &mut u64) -> Result<(), Reset> {
        let LinkEffect { bytes_per_s, corrupt_every_bytes, .. } = self.now().effect;
        let mut chunk = chunk;
        let before = *sent;
        *sent += chunk.len() as u64;
        if let Some(turns) = before.checked_div(corrupt_every_bytes) {
            let at = (turns + 1) * corrupt_every_bytes - before;
            if at <= chunk.len() as u64 {
                self.touch();
                let mut harmed = BytesMut::from(&chunk[..]);
                harmed[at as usize - 1] ^= 1 << (turns % 8);
                chunk = harmed.freeze();
            }
        }
        if bytes_per_s == 0 {
            return to.write_all(&chunk).await.map_err(|_| Reset);
        }
        self.touch();
        for drop in chunk.chunks(DRIP_BYTES) {
            to.write_all(drop).await.map_err(|_| Reset)?;
            // The rate may have been lifted meanwhile.
            if self.now().effect.bytes_per_s > 0 {
                sleep(Duration::from_secs_f64(drop.len() as f64 / bytes_per_s as f64)).await;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client and a server with the proxy between them.
    async fn pair() -> (Proxy, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap().to_string()).await.unwrap();
        let client = TcpStream::connect(proxy.listens()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        (proxy, client, server)
    }

    async fn soon<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), future).await.expect("within twenty seconds")
    }

    async fn read(stream: &mut TcpStream, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        soon(stream.read_exact(&mut bytes)).await.unwrap();
        bytes
    }

    /// Nothing arrives for a while.
    async fn silent(stream: &mut TcpStream) -> bool {
        tokio::time::timeout(Duration::from_millis(150), stream.read_u8()).await.is_err()
    }

    #[tokio::test]
    async fn bytes_and_ends_pass_both_ways() {
        let (proxy, mut client, mut server) = pair().await;
        client.write_all(b"there").await.unwrap();
        assert_eq!(read(&mut server, 5).await, b"there");
        server.write_all(b"back").await.unwrap();
        assert_eq!(read(&mut client, 4).await, b"back");
        drop(server);
        assert_eq!(soon(client.read_u8()).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(proxy.touched(), 0);
    }

    #[tokio::test]
    async fn a_direction_that_is_cut_holds_bytes_and_ends_and_the_other_works() {
        let (proxy, mut client, mut server) = pair().await;
        proxy.set(OneWay { cut: true, ..OneWay::default() }, OneWay::default());
        client.write_all(b"held").await.unwrap();
        server.write_all(b"free").await.unwrap();
        assert_eq!(read(&mut client, 4).await, b"free");
        client.shutdown().await.unwrap();
        assert!(silent(&mut server).await);
        assert!(proxy.touched() > 0);
        proxy.set(OneWay::default(), OneWay::default());
        assert_eq!(read(&mut server, 4).await, b"held");
        assert!(soon(server.read_u8()).await.is_err(), "and then the end");
    }

    #[tokio::test]
    async fn a_dial_over_a_cut_link_is_answered_by_nobody_until_it_is_mended() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap().to_string()).await.unwrap();
        proxy.set(OneWay::default(), OneWay { cut: true, ..OneWay::default() });
        let _client = TcpStream::connect(proxy.listens()).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(150), listener.accept()).await.is_err());
        proxy.set(OneWay::default(), OneWay::default());
        soon(listener.accept()).await.unwrap();
    }

    #[tokio::test]
    async fn nobody_behind_it_is_a_reset() {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let proxy = Proxy::start(free.to_string()).await.unwrap();
        let mut client = TcpStream::connect(proxy.listens()).await.unwrap();
        assert_eq!(soon(client.read_u8()).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn latency_delays_and_keeps_the_order() {
        let (proxy, mut client, mut server) = pair().await;
        let effect = LinkEffect { latency_ms: 80, jitter_ms: 40, ..LinkEffect::default() };
        proxy.set(OneWay { cut: false, effect }, OneWay::default());
        let begin = Instant::now();
        for byte in 0..20 {
            client.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(read(&mut server, 20).await, (0..20).collect::<Vec<_>>());
        assert!(begin.elapsed() >= Duration::from_millis(80), "{:?}", begin.elapsed());
    }

    #[tokio::test]
    async fn a_rate_lets_bytes_drip() {
        let (proxy, mut client, mut server) = pair().await;
        proxy.set(
            OneWay { cut: false, effect: LinkEffect { bytes_per_s: 2000, ..LinkEffect::default() } },
            OneWay::default(),
        );
        let begin = Instant::now();
        client.write_all(&[7; 640]).await.unwrap();
        read(&mut server, 640).await;
        // All but the last drop have been waited for.
        assert!(begin.elapsed() >= Duration::from_millis(280), "{:?}", begin.elapsed());
    }

    #[tokio::test]
    async fn one_bit_in_so_many_bytes_is_flipped() {
        let (proxy, mut client, mut server) = pair().await;
        let effect = LinkEffect { corrupt_every_bytes: 100, ..LinkEffect::default() };
        proxy.set(OneWay { cut: false, effect }, OneWay::default());
        let mut harmed = Vec::new();
        for _ in 0..10 {
            client.write_all(&[0; 30]).await.unwrap();
            harmed.extend(read(&mut server, 30).await);
        }
        let ones: u32 = harmed.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!((ones, harmed[99], harmed[199], harmed[299]), (3, 1, 2, 4));
    }

    #[tokio::test]
    async fn resets_end_connections_for_both() {
        let (proxy, mut client, mut server) = pair().await;
        let effect = LinkEffect { reset_every_ms: 20, ..LinkEffect::default() };
        proxy.set(OneWay { cut: false, effect }, OneWay { cut: false, effect });
        for stream in [&mut client, &mut server] {
            assert_eq!(soon(stream.read_u8()).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        }
    }

    #[tokio::test]
    async fn a_half_open_link_keeps_the_end_of_one_side_from_the_other() {
        let (proxy, client, mut server) = pair().await;
        let effect = LinkEffect { half_open: true, ..LinkEffect::default() };
        proxy.set(OneWay { cut: false, effect }, OneWay { cut: false, effect });
        drop(client);
        assert!(silent(&mut server).await);
        proxy.set(OneWay::default(), OneWay::default());
        assert!(soon(server.read_u8()).await.is_err());
    }
}
