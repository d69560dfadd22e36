//! Limits concurrent dials where a process would start very many at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::callers::HANDSHAKES_PER_PEER_MAX;

/// Concurrent handshakes of this process as a caller, among dials that take turns. A handshake takes a fraction of a
/// millisecond of one core: more of them end no sooner, and delay everything else in the process. Half of a port's
/// limit per address, so no port refuses the callers of one process.
pub const DIALS_AT_ONCE: usize = HANDSHAKES_PER_PEER_MAX / 2;

/// The longest turn. A longer dial only waits for its peer, which costs this process nothing: it continues while the
/// next turn begins. So a hundred hosts that do not answer delay the others by a third of a second. Shorter turns
/// would end before their handshakes on a busy machine, and limit nothing.
const TURN_MAX: Duration = Duration::from_millis(100);

/// Turns to dial; clones share them.
#[derive(Clone, Debug)]
pub struct DialTurns(Arc<Semaphore>);

impl Default for DialTurns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(DIALS_AT_ONCE)))
    }
}

/// The right to dial now.
#[derive(Debug)]
pub struct DialTurn {
    /// None if the turns have been closed.
    place: Option<OwnedSemaphorePermit>,
}

impl DialTurns {
    pub(crate) async fn next(&self) -> DialTurn {
        DialTurn { place: Arc::clone(&self.0).acquire_owned().await.ok() }
    }
}

impl DialTurn {
    /// Dials. The turn ends with the dial, or after a limit.
    pub async fn spend<T>(self, dial: impl Future<Output = T>) -> T {
        let mut dial = std::pin::pin!(dial);
        match tokio::time::timeout(TURN_MAX, &mut dial).await {
            Ok(done) => done,
            Err(_) => {
                drop(self.place);
                dial.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_dial_at_a_time_and_who_waits_for_its_peer_holds_nobody_up() {
        let turns = DialTurns::default();
        let mut dead = tokio::task::JoinSet::new();
        for _ in 0..2 * DIALS_AT_ONCE {
            let turns = turns.clone();
            dead.spawn(async move { turns.next().await.spend(std::future::pending::<()>()).await });
        }
        // Until all of them are queued: the runtime returns here after some dozens of tasks.
        for _ in 0..2 * DIALS_AT_ONCE {
            tokio::task::yield_now().await;
        }
        let begun = Instant::now();
        let turn = turns.next().await;
        assert_eq!(begun.elapsed(), 2 * TURN_MAX, "after two rounds of dials that nobody answers");
        assert_eq!(turn.spend(async { 7 }).await, 7);
        assert_eq!(turns.0.available_permits(), DIALS_AT_ONCE, "nothing is lost");
        dead.abort_all();
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_ends_with_its_dial() {
        let turns = DialTurns::default();
        let mut held = Vec::new();
        for _ in 0..DIALS_AT_ONCE {
            held.push(turns.next().await);
        }
        assert!(tokio::time::timeout(TURN_MAX * 9, turns.next()).await.is_err(), "none is spent");
        held.pop().unwrap().spend(async {}).await;
        assert!(tokio::time::timeout(TURN_MAX, turns.next()).await.is_ok());
        assert!(held.len() < DIALS_AT_ONCE);
    }
}
