//! Descriptors change hands over a Unix socket, which both ends can reach on one host only: in the abstract namespace,
//! so that no file is left behind, and another network namespace is another place.
//!
//! Whoever comes sends the secret that it was told over an authenticated connection, together with the descriptor of
//! its own memory. It is answered with that of the other end, or the socket is closed.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;
/// What comes with the answering descriptor.
const GRANTED: &[u8] = b"granted.";

/// A name for such a socket: random, so that nobody is found by chance.
#[must_use]
pub fn fresh_name() -> String {
    format!("symphony-{:032x}", rand::random::<u128>())
}

/// A socket of that name.
///
/// # Errors
/// If the name is taken, or the system has no such sockets.
pub fn listen(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind(abstract_name(name))
}

/// A path that is no file's.
fn abstract_name(name: &str) -> String {
    format!("\0{name}")
}

/// Gives `mine` to the socket of that name, and gets what is given there. The socket is of no other use but to tell
/// that the other end lives. The caller bounds the time.
///
/// # Errors
/// If there is no such socket on this host, it is another user's, or it turns the secret away.
pub async fn ask(name: &str, secret: &[u8; SECRET_BYTES], mine: BorrowedFd<'_>) -> io::Result<(OwnedFd, UnixStream)> {
    let stream = UnixStream::connect(abstract_name(name)).await?;
    same_user(&stream)?;
    send(&stream, secret, mine).await?;
    let (word, theirs) = receive::<{ GRANTED.len() }>(&stream).await?;
    if word == GRANTED { Ok((theirs, stream)) } else { Err(refused("another answer than was agreed")) }
}

/// The other side, first half: the secret, and the descriptor of whoever comes.
///
/// # Errors
/// If it is another user, or something else comes.
pub async fn asked(stream: &UnixStream) -> io::Result<([u8; SECRET_BYTES], OwnedFd)> {
    same_user(stream)?;
    receive::<SECRET_BYTES>(stream).await
}

/// The other side, second half.
///
/// # Errors
/// If whoever came has gone.
pub async fn grant(stream: &UnixStream, mine: BorrowedFd<'_>) -> io::Result<()> {
    send(stream, GRANTED, mine).await
}

/// Other users of the host are kept out whatever they know.
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
    // So few bytes are taken whole by a socket that has sent nothing.
    if sent.await? == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Exactly so many bytes, with one descriptor.
async fn receive<const BYTES: usize>(stream: &UnixStream) -> io::Result<([u8; BYTES], OwnedFd)> {
    let mut bytes = [0; BYTES];
    let received = stream.async_io(Interest::READABLE, || {
        // The system closes what finds no room here.
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
