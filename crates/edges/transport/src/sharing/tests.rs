//! Peers that share, lie, or stay silent.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::pipe::pipe;
use symphony_net::descriptor_exchange;
use symphony_protocol::data::{SharingOffer, SharingSecret};
use symphony_shared_memory::Unreadable;
use tokio_util::sync::CancellationToken;

use super::SharedInputs;
use super::pair::SharedPair;

const POOL_BYTES: u64 = 1 << 20;

/// Memory as a pool has it, with these words from the start; of 64 KiB.
pub(crate) fn sealed(words: &[u64]) -> OwnedFd {
    let fd = memfd_create("lie", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let mut file = File::from(fd.try_clone().unwrap());
    let mut bytes: Vec<_> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.resize(64 << 10, 0);
    file.write_all(&bytes).unwrap();
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE).unwrap();
    fd
}

/// A pool of one entry, which says that `number` has eight bytes, and has the wrong checksum.
pub(crate) fn damaged(number: u64) -> OwnedFd {
    let mut words = [0; 13];
    (words[0], words[1]) = (u64::from_le_bytes(*b"SYMPOOL1"), 1);
    words[8..12].copy_from_slice(&[2, number, 128, 8 | 7 << 32]);
    sealed(&words)
}

/// A frontend that hands out anything to any caller.
pub(crate) async fn hands_out(name: &str, descriptor: OwnedFd) {
    let listener = descriptor_exchange::listen(name).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        descriptor_exchange::asked(&stream).await.unwrap();
        descriptor_exchange::grant(&stream, descriptor.as_fd()).await.unwrap();
    }
}

pub(crate) fn offer(name: &str) -> SharingOffer {
    SharingOffer { name: name.to_owned(), secret: SharingSecret([1; 32]) }
}

fn name() -> String {
    format!("symphony-test-{:032x}", rand::random::<u128>())
}

fn inputs() -> std::sync::Arc<SharedInputs> {
    SharedInputs::start(POOL_BYTES, 16, false, CancellationToken::new()).unwrap()
}

#[tokio::test]
async fn a_secret_is_good_once_and_as_long_as_its_link() {
    let inputs = inputs();
    let (good, mut pending) = inputs.offer();
    let wrong = SharingOffer { secret: SharingSecret([0; 32]), ..good.clone() };
    let reason = SharedPair::join(&wrong, POOL_BYTES).await.unwrap_err();
    assert!(reason.contains("turned away"), "{reason}");
    assert_eq!((inputs.readers(), inputs.put(1, b"nobody reads it").is_some()), (0, false));

    let pair = SharedPair::join(&good, POOL_BYTES).await.unwrap();
    assert!(pending.sharing_backend().is_some());
    assert_eq!(inputs.readers(), 1);
    let placed = inputs.put(7, b"input").unwrap();
    assert_eq!(pair.input(7).unwrap(), "input");
    drop(placed);
    assert_eq!(pair.input(7), Err(Unreadable::Absent));
    assert!(pair.lend(3, b"output"));
    assert_eq!(pending.sharing_backend().unwrap().results.read(3, 100).unwrap(), "output");
    pair.taken(&[3]);
    pair.all_taken().await;
    assert!(pending.sharing_backend().unwrap().results.read(3, 100).is_err());
    assert!(SharedPair::join(&good, POOL_BYTES).await.is_err(), "a second time");

    let (late, gone) = inputs.offer();
    drop((pending, gone));
    assert!(SharedPair::join(&late, POOL_BYTES).await.is_err(), "its link has ended");
    assert_eq!(inputs.readers(), 0);
}

#[tokio::test]
async fn a_frontend_that_hands_out_something_else_is_not_read_from() {
    let bare = memfd_create("bare", MemfdFlags::CLOEXEC).unwrap();
    let (silent, _writer) = pipe().unwrap();
    let lies = [
        ("is no sealed memory", bare),
        ("is no sealed memory", silent),
        ("is no sealed memory", File::open("/dev/zero").unwrap().into()),
        ("does not begin as a pool", sealed(&[])),
        ("does not begin as a pool", sealed(&[u64::from_le_bytes(*b"SYMPOOL1"), 3])),
    ];
    for (expected, lie) in lies {
        let name = name();
        tokio::spawn({
            let name = name.clone();
            async move { hands_out(&name, lie).await }
        });
        tokio::task::yield_now().await;
        let reason = SharedPair::join(&offer(&name), POOL_BYTES).await.unwrap_err();
        assert!(reason.contains(expected), "{reason}");
    }
}

#[tokio::test]
async fn a_frontend_that_is_silent_or_elsewhere_holds_nobody_up() {
    let name = name();
    let reason = SharedPair::join(&offer(&name), POOL_BYTES).await.unwrap_err();
    assert!(reason.contains("refused"), "nobody has such a socket on this host: {reason}");
    let _silent = descriptor_exchange::listen(&name).unwrap();
    let reason = SharedPair::join(&offer(&name), POOL_BYTES).await.unwrap_err();
    assert!(reason.contains("within 250 ms"), "{reason}");
}

#[tokio::test]
async fn a_backend_that_hands_out_something_else_gets_nothing() {
    let inputs = inputs();
    let (silent, _writer) = pipe().unwrap();
    for lie in [silent, sealed(&[])] {
        let (good, mut pending) = inputs.offer();
        assert!(descriptor_exchange::ask(&good.name, &good.secret.0, lie.as_fd()).await.is_err());
        assert!(pending.sharing_backend().is_none());
        assert_eq!(inputs.readers(), 0);
    }
}
