//! Descriptors change hands over a Unix socket, which both ends can reach on one host only: in the abstract namespace, so that
//! no file is left behind, and another network namespace is another place.
//!
//! A backend sends the secret that it was told over its authenticated data link, together with the descriptor of its own
//! memory. It is answered with the frontend's, or the connection ends.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use symphony_protocol::data::{SharingOffer, SharingSecret};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

/// Bytes of a secret.
pub(super) const SECRET_BYTES: usize = size_of::<SharingSecret>();
/// What comes with the frontend's descriptor.
const GRANTED: &[u8] = b"granted.";

/// A socket of that name.
pub(super) fn listen(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind(abstract_name(name))
}

/// A path that is no file's.
fn abstract_name(name: &str) -> String {
    format!("\0{name}")
}

/// The backend's side: gives `mine`, and gets the frontend's. The caller bounds the time.
pub(super) async fn ask(offer: &SharingOffer, mine: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let stream = UnixStream::connect(abstract_name(&offer.name)).await?;
    same_user(&stream)?;
    send(&stream, &offer.secret.0, mine).await?;
    let (word, theirs) = receive::<{ GRANTED.len() }>(&stream).await?;
    if word == GRANTED { Ok(theirs) } else { Err(refused("another answer than was agreed")) }
}

/// The frontend's side, first half: the secret, and the backend's descriptor.
pub(super) async fn asked(stream: &UnixStream) -> io::Result<(SharingSecret, OwnedFd)> {
    same_user(stream)?;
    let (secret, theirs) = receive::<SECRET_BYTES>(stream).await?;
    Ok((SharingSecret(secret), theirs))
}

/// The frontend's side, second half.
pub(super) async fn grant(stream: &UnixStream, mine: BorrowedFd<'_>) -> io::Result<()> {
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
