//! Keeps this replica registered: at start, and again whenever the view shows it as down.

use std::sync::Arc;
use std::time::Duration;

use symphony_cluster_state::{Command, Refusal};
use symphony_protocol::view::View;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::ControlPlaneConfig;
use crate::error::{CallError, Fatal};
use crate::failure_detector::ContactState;
use crate::group::founding::names_another;
use crate::group::lives::Lives;
use crate::group::propose::Proposer;
use crate::metrics::Metrics;

/// How long after a failed registration the next one begins.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// How long after an accepted registration the view should show it.
const APPLIED_WITHIN: Duration = Duration::from_secs(2);

/// How long a registration that was refused is held back: somebody has to look after it.
const REFUSED_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The wait before a replica that was declared down comes back: doubled each time, so that one that comes and goes does
/// not move sub-clusters with it.
const HOLD_DOWN_MIN: Duration = Duration::from_millis(100);
const HOLD_DOWN_MAX: Duration = Duration::from_secs(10);

/// The wait is halved for each such time that a replica stayed. Who does not even stay that long keeps away for longer
/// and longer; who is struck every few seconds costs a take-over each time at most, and is worth more as a standby than
/// away.
const STAY: Duration = Duration::from_secs(2);

/// What a replica hears of itself.
pub(crate) struct Heard {
    pub(crate) views: watch::Receiver<Arc<View>>,
    pub(crate) standing: watch::Receiver<ContactState>,
}

/// Who registers.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) config: ControlPlaneConfig,
    pub(crate) lives: Arc<Lives>,
    /// Whether what blocks may take a thread.
    pub(crate) on_threads: bool,
    /// Whether the cluster had this very life once.
    pub(crate) was_taken_in: bool,
}

impl Life {
    /// Notes on the disk that the cluster has taken this life in. Nobody waits for it.
    fn taken_in(&mut self) {
        self.was_taken_in = true;
        let (lives, boot) = (Arc::clone(&self.lives), self.config.boot);
        let note = move || {
            if let Err(error) = lives.taken_in(boot) {
                tracing::warn!(%error, "that this life was taken in cannot be written down");
            }
        };
        if self.on_threads {
            tokio::task::spawn_blocking(note);
        } else {
            note();
        }
    }
}

/// Registers until stopped.
pub(crate) async fn run(
    registration: Command,
    mut life: Life,
    proposer: Proposer,
    Heard { mut views, mut standing }: Heard,
    metrics: Metrics,
    fatal: watch::Sender<Option<Fatal>>,
    stop: CancellationToken,
) {
    let (node, boot) = (life.config.node, life.config.boot);
    let up = |view: &Arc<View>| view.nodes.get(&node).is_some_and(|n| n.up && n.boot == Some(boot));
    let mut hold_down = HoldDown::default();
    let keep = async {
        loop {
            if let Err(refusal) = register(&registration, &life, &proposer, &metrics).await {
                fatal.send_replace(Some(refusal));
                return;
            }
            // What was agreed is not applied here yet. Should the replica be declared down again before the view is
            // read, then waiting for it to be up would take for ever.
            let applied = timeout(APPLIED_WITHIN, views.wait_for(up)).await.map(|seen| seen.is_ok());
            match applied {
                Ok(true) => life.taken_in(),
                Ok(false) => return,
                // Who applies nothing is not answered by the leader, and shall not come and go with each try.
                Err(_) => {
                    tokio::time::sleep(hold_down.next(Duration::ZERO)).await;
                    if standing.wait_for(|standing| standing.heard).await.is_err() {
                        return;
                    }
                    continue;
                }
            }
            let came = Instant::now();
            if views.wait_for(|view| !up(view)).await.is_err() {
                return;
            }
            let wait = hold_down.next(came.elapsed());
            tracing::warn!(?wait, "this replica was declared down; it registers again");
            tokio::time::sleep(wait).await;
            // From the registration on it is missed if its heartbeats do not get through. After a partition other
            // connections may be back before that of the heartbeats.
            if standing.wait_for(|standing| standing.heard).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = keep => {}
        () = stop.cancelled() => {}
    }
}

/// Registers; an error if no attempt ever will.
async fn register(registration: &Command, life: &Life, proposer: &Proposer, metrics: &Metrics) -> Result<(), Fatal> {
    loop {
        let registered = match proposer.linearize(false).await {
            // By the leader's knowledge, which lacks nothing. A leader's own log lacks nothing either.
            Ok(view) => {
                let view = view.and_then(|view| View::try_from(view).ok());
                if view.is_some_and(|view| names_another(life.config.node, &life.lives, &view)) {
                    return Err(replaced(life, proposer));
                }
                proposer.propose(registration).await
            }
            Err(error) => Err(error),
        };
        let wait = match registered {
            Ok(_) => {
                metrics.registrations.inc();
                return Ok(());
            }
            Err(CallError::Refused(refusal @ (Refusal::NodeRemoved { .. } | Refusal::DiskLost { .. }))) => {
                return Err(Fatal(refusal.to_string()));
            }
            Err(CallError::Refused(refusal @ (Refusal::StaleLife { .. } | Refusal::Changed { .. }))) => {
                tracing::error!(%refusal, "the cluster does not take this replica: another process may have its id");
                REFUSED_RETRY_AFTER
            }
            Err(CallError::Refused(refusal)) => {
                tracing::error!(%refusal, "the cluster does not take this replica");
                REFUSED_RETRY_AFTER
            }
            Err(error) => {
                tracing::info!(%error, "not registered yet");
                RETRY_AFTER
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// The cluster has taken in a life of this replica that its disk does not know.
fn replaced(life: &Life, proposer: &Proposer) -> Fatal {
    if life.was_taken_in {
        // It came after this one, so the disk is not the older of the two.
        return Fatal(format!(
            "another process has registered as scheduler {}: two run with one id, perhaps over a copy of the disk. End one of them",
            life.config.node
        ));
    }
    proposer.group().forget();
    Fatal::forgotten(&life.config)
}

/// How long to stay away after being declared down.
#[derive(Debug, Default)]
struct HoldDown {
    last: Option<Duration>,
}

impl HoldDown {
    /// After it had been up for `stayed`.
    fn next(&mut self, stayed: Duration) -> Duration {
        let stays = u32::try_from(stayed.as_secs() / STAY.as_secs()).unwrap_or(u32::MAX);
        let halved = |wait: Duration| wait / 2_u32.saturating_pow(stays);
        let wait = self.last.map_or(HOLD_DOWN_MIN, |wait| halved(wait * 2).clamp(HOLD_DOWN_MIN, HOLD_DOWN_MAX));
        self.last = Some(wait);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_flaps_stays_away_for_longer_and_longer_and_is_trusted_again_in_the_end() {
        let mut hold_down = HoldDown::default();
        let (moment, stay) = (Duration::from_secs(1), STAY);
        let waits: Vec<_> = (0..9).map(|_| hold_down.next(moment).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        assert_eq!(hold_down.next(stay).as_secs(), 10, "no better");
        assert_eq!(hold_down.next(stay * 2).as_secs(), 5);
        assert_eq!(hold_down.next(stay * 20), HOLD_DOWN_MIN);
        assert_eq!(hold_down.next(stay * 2), HOLD_DOWN_MIN, "struck now and then");
    }
}
