//! Reads a pool in another host's memory: first READs the entry of a number, then the bytes that it refers to. The
//! owner takes no part in it.

use std::time::Duration;

use bytes::Bytes;
use symphony_shared_memory::{ENTRY_BYTES, RemoteLayout, Unreadable, why_wrong};

use crate::error::{Broken, RdmaError};
use crate::key::Key;
use crate::landing::Landing;
use crate::session::Pair;
use crate::verbs::Piece;

/// The longest payload that is READ; longer ones are requested by message. All devices accept this length.
pub const READ_BYTES_MAX: usize = 8 << 20;

/// Length of a proof's READ: the largest packet. If a switch dropped long packets, entries would arrive and payloads
/// would not.
const PROOF_BYTES: u64 = 4096;

/// Pause of a proof that has no room for its READ.
const ROOM_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// A pool elsewhere.
#[derive(Debug)]
pub struct RemotePool {
    pair: Pair,
    landing: Landing,
    layout: RemoteLayout,
    bytes: u64,
    address: u64,
    key: Key,
}

/// What was read, in memory that is used again once it is dropped.
struct Landed {
    piece: Piece,
    length: usize,
}

impl AsRef<[u8]> for Landed {
    fn as_ref(&self) -> &[u8] {
        &self.piece.bytes()[..self.length]
    }
}

impl RemotePool {
    /// The pool at that address, which the key opens.
    ///
    /// # Errors
    /// If it goes round the end of all addresses.
    pub fn new(
        pair: Pair,
        landing: Landing,
        layout: RemoteLayout,
        bytes: u64,
        address: u64,
        key: Key,
    ) -> Result<Self, RdmaError> {
        if address.checked_add(bytes).is_none() {
            let wrong = std::io::ErrorKind::InvalidInput.into();
            return Err(RdmaError::system("the other end says an address that cannot be", wrong));
        }
        Ok(Self { pair, landing: landing.of_one_owner(), layout, bytes, address, key })
    }

    /// The connection.
    #[must_use]
    pub const fn pair(&self) -> &Pair {
        &self.pair
    }

    /// READs a packet of full length, with any content: shows that the peer is reachable, grants access, and answers.
    /// Waits until the connection breaks: the caller bounds the time.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn prove(&self) -> Result<(), Broken> {
        // Without room nothing was read.
        while self.fetch(0, self.bytes.min(PROOF_BYTES) as usize).await?.is_none() {
            tokio::time::sleep(ROOM_AGAIN_AFTER).await;
        }
        Ok(())
    }

    /// The content of `number`, if it is at most [`READ_BYTES_MAX`] and there is room for it here.
    ///
    /// # Errors
    /// If the connection is broken. A number that cannot be read is not an error of the connection.
    pub async fn read(&self, number: u64) -> Result<Result<Bytes, Unreadable>, Broken> {
        // Without room it counts as absent: the owner is asked by message instead.
        let Some(entry) = self.entry(number).await? else { return Ok(Err(Unreadable::Absent)) };
        let found = match self.layout.find(number, &entry, usize::MAX) {
            Ok(found) if found.length() > READ_BYTES_MAX => return Ok(Err(Unreadable::Absent)),
            Ok(found) => found,
            Err(Unreadable::Absent) => return Ok(Err(Unreadable::Absent)),
            Err(Unreadable::Damaged) => return self.why(number, &entry).await,
        };
        let length = found.length();
        if length == 0 {
            return if found.holds(&[]) { Ok(Ok(Bytes::new())) } else { self.why(number, &entry).await };
        }
        let Some(piece) = self.fetch(found.at(), length).await? else { return Ok(Err(Unreadable::Absent)) };
        if found.holds(&piece.bytes()[..length]) {
            Ok(Ok(Bytes::from_owner(Landed { piece, length })))
        } else {
            self.why(number, &entry).await
        }
    }

    /// Why what was fetched by that entry is wrong.
    async fn why(&self, number: u64, before: &[u8; ENTRY_BYTES]) -> Result<Result<Bytes, Unreadable>, Broken> {
        let after = self.entry(number).await?;
        Ok(Err(after.map_or(Unreadable::Absent, |after| why_wrong(before, &after))))
    }

    async fn entry(&self, number: u64) -> Result<Option<[u8; ENTRY_BYTES]>, Broken> {
        let piece = self.fetch(self.layout.entry_at(number), ENTRY_BYTES).await?;
        Ok(piece.and_then(|piece| piece.bytes().first_chunk().copied()))
    }

    /// Bytes of the pool from `at` on; none if there is no room for them here.
    async fn fetch(&self, at: u64, length: usize) -> Result<Option<Piece>, Broken> {
        let credits = self.landing.credits(length).await?;
        let Some(piece) = self.landing.arena.take(length) else { return Ok(None) };
        self.pair.0.read(piece, length, self.address + at, self.key.0, credits).await.map(Some)
    }
}
