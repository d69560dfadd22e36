//! Ends data links that do not move. A host that has lost its power or its network sends nothing; TCP would go on for a
//! quarter of an hour, keep an idle link for ever, and after a cut wait about as long again as the cut lasted.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::echo::{EchoTimes, Movement};
use crate::link::EchoTrigger;

/// A data link ends after this time without an answer. It is well above the pauses of a machine and the cuts that TCP
/// survives by itself: results may be on the link that no other way would bring.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// Pauses between echo requests on a link in use, and on an idle one.
const ASK_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// A check that comes later than this was itself held up.
const LATE: Duration = Duration::from_millis(500);

/// The echo requests on data links.
pub(crate) fn data_echo() -> EchoTimes {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let (ask_again_after, ask_again_max) = ASK_EVERY;
    EchoTimes { origin: *ORIGIN, ask_again_after, ask_again_max, stuck_after: STUCK_AFTER, late: LATE }
}

/// Resolves when a watched link gets stuck, never if it ends before. The link must be received from meanwhile.
pub(crate) async fn stuck((mut movement, _echo_trigger): (watch::Receiver<Movement>, EchoTrigger), times: EchoTimes) {
    // A link that has never answered is never reported as stuck.
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
