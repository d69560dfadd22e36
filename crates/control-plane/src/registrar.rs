//! Keeps this replica registered: at start, and again whenever the view shows it as down.

use std::sync::Arc;
use std::time::Duration;

use symphony_cluster_state::{Command, Refusal};
use symphony_protocol::view::View;
use symphony_types::{BootId, NodeId};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::error::{CallError, Fatal};
use crate::metrics::Metrics;
use crate::propose::Proposer;

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

/// After so long without being declared down a replica is trusted as before.
const HOLD_DOWN_FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Registers until stopped.
pub(crate) async fn run(
    registration: Command,
    (node, boot): (NodeId, BootId),
    proposer: Proposer,
    mut views: watch::Receiver<Arc<View>>,
    metrics: Metrics,
    fatal: watch::Sender<Option<Fatal>>,
    stop: CancellationToken,
) {
    let up = |view: &Arc<View>| view.nodes.get(&node).is_some_and(|n| n.up && n.boot == Some(boot));
    let mut hold_down = HoldDown::default();
    let keep = async {
        loop {
            if let Err(refusal) = register(&registration, &proposer, &metrics).await {
                fatal.send_replace(Some(refusal));
                return;
            }
            // What was agreed is not applied here yet. Should the replica be declared down again before the view is
            // read, then waiting for it to be up would take for ever.
            match timeout(APPLIED_WITHIN, views.wait_for(up)).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return,
                Err(_) => continue,
            }
            if views.wait_for(|view| !up(view)).await.is_err() {
                return;
            }
            let wait = hold_down.next(Instant::now());
            tracing::warn!(?wait, "this replica was declared down; it registers again");
            tokio::time::sleep(wait).await;
        }
    };
    tokio::select! {
        () = keep => {}
        () = stop.cancelled() => {}
    }
}

/// Registers; an error if no attempt ever will.
async fn register(registration: &Command, proposer: &Proposer, metrics: &Metrics) -> Result<(), Fatal> {
    loop {
        let wait = match proposer.propose(registration).await {
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

/// How long to stay away after being declared down.
#[derive(Debug, Default)]
struct HoldDown {
    last: Option<(Instant, Duration)>,
}

impl HoldDown {
    fn next(&mut self, now: Instant) -> Duration {
        let wait = match self.last {
            Some((at, wait)) if now < at + HOLD_DOWN_FORGOTTEN_AFTER => (wait * 2).min(HOLD_DOWN_MAX),
            _ => HOLD_DOWN_MIN,
        };
        self.last = Some((now, wait));
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_flaps_stays_away_for_longer_and_longer_and_is_trusted_again_in_the_end() {
        let mut hold_down = HoldDown::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.push(hold_down.next(now).as_millis());
            now += Duration::from_secs(15);
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        assert_eq!(hold_down.next(now + HOLD_DOWN_FORGOTTEN_AFTER), HOLD_DOWN_MIN);
    }
}
