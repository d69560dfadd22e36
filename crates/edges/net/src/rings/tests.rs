use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

const SOON: Duration = Duration::from_secs(20);

/// The streams of both processes.
async fn two(spin: Duration) -> (RingStreams, RingStreams) {
    let (accepts, dials) = (Rings::start(spin).unwrap(), Rings::start(spin).unwrap());
    let (offer, mut pending) = accepts.offer();
    let joined = dials.join(&offer).await.unwrap();
    (pending.streams().expect("it was there before the other end heard of it"), joined)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_bytes_pass_each_way_while_both_sleep_and_wake() {
    const BYTES: usize = 20 << 20;
    for spin in [Duration::ZERO, Duration::from_micros(50)] {
        let ((mut a_in, mut a), (mut b_in, mut b)) = two(spin).await;
        let byte = |n: usize| (n % 251) as u8;
        let write = async move |to: &mut RingWriter| {
            let bytes: Vec<_> = (0..BYTES).map(byte).collect();
            // Of all lengths: some fill the ring, after others the reader sleeps.
            let (mut at, mut step) = (0, 1);
            while at < BYTES {
                step = step * 31 % 99_991;
                let end = BYTES.min(at + step % (2 * RING_BYTES) + 1);
                to.write_all(&bytes[at..end]).await.unwrap();
                at = end;
                if step % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            to.shutdown().await.unwrap();
        };
        let read = async move |from: &mut RingReader| {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).await.unwrap();
            assert_eq!(bytes.len(), BYTES);
            assert!(bytes.iter().enumerate().all(|(n, &is)| is == byte(n)));
        };
        let (one, other) = (
            tokio::spawn(async move { tokio::join!(write(&mut a), read(&mut a_in)) }),
            tokio::spawn(async move { tokio::join!(write(&mut b), read(&mut b_in)) }),
        );
        tokio::time::timeout(SOON, async { (one.await.unwrap(), other.await.unwrap()) }).await.expect("nobody hangs");
    }
}

#[tokio::test]
async fn what_was_written_comes_before_the_end_however_that_came() {
    for shuts_down in [true, false] {
        let ((mut a_in, _a), (b_in, mut b)) = two(Duration::ZERO).await;
        b.write_all(b"last words").await.unwrap();
        if shuts_down {
            b.shutdown().await.unwrap();
            assert!(b.write_all(b"more").await.is_err());
        }
        drop((b, b_in));
        let mut bytes = Vec::new();
        tokio::time::timeout(SOON, a_in.read_to_end(&mut bytes)).await.unwrap().unwrap();
        assert_eq!(bytes, b"last words");
    }
}

#[tokio::test]
async fn who_waits_for_a_peer_that_goes_hears_of_it_at_once() {
    let ((mut a_in, mut a), other) = two(Duration::ZERO).await;
    let reading = tokio::spawn(async move { a_in.read(&mut [0; 8]).await });
    let writing = tokio::spawn(async move { a.write_all(&vec![0; 2 * RING_BYTES]).await });
    tokio::task::yield_now().await;
    drop(other);
    assert_eq!(tokio::time::timeout(SOON, reading).await.unwrap().unwrap().unwrap(), 0);
    assert!(tokio::time::timeout(SOON, writing).await.unwrap().unwrap().is_err());
}

#[tokio::test]
async fn nobody_rings_who_is_not_waited_for() {
    let (accepts, dials) = (Rings::start(Duration::ZERO).unwrap(), Rings::start(Duration::ZERO).unwrap());
    let (offer, mut pending) = accepts.offer();
    let (_b_in, mut b) = dials.join(&offer).await.unwrap();
    let (mut a_in, _a) = pending.streams().unwrap();
    let mut into = [0; 8];
    for _ in 0..1000 {
        b.write_all(b"frame").await.unwrap();
        assert_eq!(a_in.read(&mut into).await.unwrap(), 5);
    }
    assert_eq!((dials.wake_ups(), accepts.wake_ups()), (0, 0), "both were busy all the time");
    assert!(a_in.read(&mut into).now_or_never().is_none());
    for _ in 0..1000 {
        b.write_all(b"frame").await.unwrap();
    }
    assert_eq!(dials.wake_ups(), 1, "once for each sleep");
}

#[tokio::test]
async fn a_secret_is_good_once_and_as_long_as_it_is_wanted() {
    let (accepts, dials) = (Rings::start(Duration::ZERO).unwrap(), Rings::start(Duration::ZERO).unwrap());
    let (good, mut pending) = accepts.offer();
    let wrong = RingOffer { secret: [0; SECRET_BYTES], ..good.clone() };
    let reason = dials.join(&wrong).await.unwrap_err();
    assert!(reason.contains("turned away"), "{reason}");
    assert!(pending.streams().is_none());
    let _streams = dials.join(&good).await.unwrap();
    assert!(pending.streams().is_some());
    assert!(dials.join(&good).await.is_err(), "a second time");
    let (late, gone) = accepts.offer();
    drop(gone);
    assert!(dials.join(&late).await.is_err(), "its connection has ended");
    let name = descriptor_exchange::fresh_name();
    let reason = dials.join(&RingOffer { name: name.clone(), ..late.clone() }).await.unwrap_err();
    assert!(reason.contains("refused"), "nobody has such a socket on this host: {reason}");
    let _silent = descriptor_exchange::listen(&name).unwrap();
    let reason = dials.join(&RingOffer { name, ..late }).await.unwrap_err();
    assert!(reason.contains("within 250 ms"), "{reason}");
    assert!(format!("{good:?}").len() < 100, "no secret is shown");
}

#[tokio::test]
async fn who_hands_over_something_else_gets_nothing() {
    let accepts = Rings::start(Duration::ZERO).unwrap();
    let pool = symphony_shared_memory::Pool::create(RING_BYTES as u64, 1).unwrap();
    let lies: [OwnedFd; 2] =
        [pool.descriptor().try_clone_to_owned().unwrap(), std::fs::File::open("/dev/zero").unwrap().into()];
    for lie in lies {
        let (good, mut pending) = accepts.offer();
        assert!(descriptor_exchange::ask(&good.name, &good.secret, lie.as_fd()).await.is_err());
        assert!(pending.streams().is_none());
        // The other way round.
        let name = descriptor_exchange::fresh_name();
        let listener = descriptor_exchange::listen(&name).unwrap();
        let offer = RingOffer { name, ..good };
        let (joined, ()) = tokio::join!(accepts.join(&offer), async {
            let (socket, _) = listener.accept().await.unwrap();
            descriptor_exchange::asked(&socket).await.unwrap();
            descriptor_exchange::grant(&socket, lie.as_fd()).await.unwrap();
        });
        assert!(joined.is_err());
    }
}

#[tokio::test]
async fn a_peer_that_rings_without_end_is_gone() {
    let rings = Rings::start(Duration::ZERO).unwrap();
    let (offer, mut pending) = rings.offer();
    let mine = RingMemory::create(RING_BYTES).unwrap();
    let (_theirs, socket) = descriptor_exchange::ask(&offer.name, &offer.secret, mine.descriptor()).await.unwrap();
    let (mut reader, mut writer) = pending.streams().unwrap();
    assert!(reader.read(&mut [0; 8]).now_or_never().is_none());
    assert_eq!(socket.try_write(&[1; 5000]).unwrap(), 5000);
    let read = tokio::time::timeout(SOON, reader.read(&mut [0; 8])).await.unwrap();
    assert_eq!(read.unwrap(), 0);
    assert!(writer.write_all(b"anything").await.is_err());
}

/// If a socket refuses a wake-up now, for whatever reason, the sleeping peer is woken later.
#[tokio::test]
async fn a_ring_that_the_socket_does_not_take_is_made_up_for() {
    let rings = Rings::start(Duration::ZERO).unwrap();
    let (offer, mut pending) = rings.offer();
    let mine = RingMemory::create(RING_BYTES).unwrap();
    let (theirs, socket) = descriptor_exchange::ask(&offer.name, &offer.secret, mine.descriptor()).await.unwrap();
    let (_reader, mut writer) = pending.streams().unwrap();
    let (_sender, mut receiver) = mine.join(theirs).unwrap();
    let (mut into, mut unhandled) = ([0; 8], [0; 4096]);
    // A faulty peer that claims to have reacted and has not: its wake-ups pile up until the socket is full.
    for _ in 0..2000 {
        assert!(receiver.sleeps().unwrap());
        writer.write_all(b"frame").await.unwrap();
        receiver.woken();
        let _ = receiver.receive(&mut into).unwrap();
    }
    assert!(writer.flush().now_or_never().is_none(), "the last wake-up is owed");
    let gathered = socket.try_read(&mut unhandled).unwrap();
    assert!((1..2000).contains(&gathered), "{gathered} wake-ups: the socket was full");
    tokio::time::timeout(SOON, writer.flush()).await.expect("the socket takes it now").unwrap();
    socket.readable().await.unwrap();
    assert!(socket.try_read(&mut unhandled).unwrap() > 0, "it is woken");
}

#[tokio::test]
async fn with_the_last_handle_goes_the_socket() {
    let (rings, other) = (Rings::start(Duration::ZERO).unwrap(), Rings::start(Duration::ZERO).unwrap());
    let (offer, pending) = rings.offer();
    drop((rings, pending));
    tokio::task::yield_now().await;
    assert!(other.join(&offer).await.is_err());
}
