//! Data links that do not move end. A host that has lost its power or its network says nothing; TCP would go on for a
//! quarter of an hour, keep an idle link for ever, and after a cut wait about as long again as that has lasted.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::echo::{EchoTimes, Movement};
use crate::link::Asker;

/// Without an answer for so long a data link ends. Well above the pauses of a machine and the cuts that TCP gets over
/// by itself: results may be on the link that no other way would bring.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// How often the other end of a link in use is asked, and of one that rests.
const ASK_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Who looks later than this was held up itself.
const LATE: Duration = Duration::from_millis(500);

/// How data links are asked whether they move.
pub(crate) fn data_echo() -> EchoTimes {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let (ask_again_after, ask_again_max) = ASK_EVERY;
    EchoTimes { origin: *ORIGIN, ask_again_after, ask_again_max, stuck_after: STUCK_AFTER, late: LATE }
}

/// Resolves when a link that is watched does not move, never if it ends before. Somebody has to receive from it
/// meanwhile.
pub(crate) async fn stuck((mut movement, _asker): (watch::Receiver<Movement>, Asker), times: EchoTimes) {
    // Of a link that has not answered once it is never said that it is stuck.
    let first = times.ask_again_after + times.stuck_after + times.late;
    let answered = movement.wait_for(|movement| *movement != Movement::Unknown);
    match tokio::time::timeout(first, answered).await {
        Err(_) => return,
        Ok(answered) => drop(answered),
    }
    if movement.wait_for(|movement| *movement == Movement::Stuck).await.is_err() {
        std::future::pending().await
    }
}
