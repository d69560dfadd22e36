//! Exchanges file descriptors over a Unix socket that only processes of one host can reach. It is in the abstract
//! namespace: it leaves no file behind, and is invisible from other network namespaces.
//!
//! The caller sends a secret, which it got over an authenticated connection, with the descriptor of its own memory.
//! The answer is the peer's descriptor; otherwise the socket is closed.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

/// Length of the secret by which the caller is known.
pub const SECRET_BYTES: usize = 32;
/// The message with the answering descriptor.
const GRANTED: &[u8] = b"granted.";

/// A random socket name that cannot be guessed.
#[must_use]
pub fn fresh_name() -> String {
    format!("symphony-{:032x}", rand::random::<u128>())
}

/// Listens on a socket of that name.
///
/// # Errors
/// If the name is taken, or the system has no such sockets.
pub fn listen(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind(abstract_name(name))
}

/// The address in the abstract namespace.
fn abstract_name(name: &str) -> String {
    format!("\0{name}")
}

/// Sends `mine` to the socket of that name, and receives the peer's descriptor. Afterwards the socket only shows that
/// the peer lives. The caller bounds the time.
///
/// # Errors
/// If there is no such socket on this host, it belongs to another user, or the secret is refused.
pub async fn ask(name: &str, secret: &[u8; SECRET_BYTES], mine: BorrowedFd<'_>) -> io::Result<(OwnedFd, UnixStream)> {
    let stream = UnixStream::connect(abstract_name(name)).await?;
    same_user(&stream)?;
    send(&stream, secret, mine).await?;
    let (word, theirs) = receive::<{ GRANTED.len() }>(&stream).await?;
    if word == GRANTED { Ok((theirs, stream)) } else { Err(refused("another answer than was agreed")) }
}

/// The other side, first half: receives the secret and the caller's descriptor.
///
/// # Errors
/// If the caller is another user, or sends something else.
pub async fn asked(stream: &UnixStream) -> io::Result<([u8; SECRET_BYTES], OwnedFd)> {
    same_user(stream)?;
    receive::<SECRET_BYTES>(stream).await
}

/// The other side, second half.
///
/// # Errors
/// If the caller has gone.
pub async fn grant(stream: &UnixStream, mine: BorrowedFd<'_>) -> io::Result<()> {
    send(stream, GRANTED, mine).await
}

/// Other users of the host are refused, whatever they know.
fn same_user(stream: &UnixStream) -> io::Result<()> {
    let (theirs, mine) = (stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
    if theirs == mine { Ok(()) } else { Err(refused("another user")) }
}

fn refused(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

async fn send(stream: &UnixStream, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let sent = stream.async_io(Interest::WRITABLE, || {
        let descriptors = [descriptor];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
    });
    // An empty send buffer takes these few bytes at once.
    if sent.await? == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives exactly this many bytes, with one descriptor.
async fn receive<const BYTES: usize>(stream: &UnixStream) -> io::Result<([u8; BYTES], OwnedFd)> {
    let mut bytes = [0; BYTES];
    let received = stream.async_io(Interest::READABLE, || {
        // The system closes descriptors that do not fit here.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        Ok((got.bytes, descriptor))
    });
    match received.await? {
        (count, Some(descriptor)) if count == BYTES => Ok((bytes, descriptor)),
        (0, None) => Err(refused("turned away")),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "something else than a word and a descriptor came")),
    }
}
