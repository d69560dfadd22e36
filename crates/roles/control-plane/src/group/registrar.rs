//! Keeps this replica registered: at start, and again whenever the view shows it as down.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use symphony_cluster_state::{Command, Refusal};
use symphony_protocol::view::View;
use symphony_types::Level;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::ControlPlaneConfig;
use crate::error::{CallError, Fatal};
use crate::failure_detector::ContactState;
use crate::group::boot_history::BootHistory;
use crate::group::founding::names_another;
use crate::group::propose::Proposer;
use crate::metrics::Metrics;

/// Pause after a failed registration.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Limit from an accepted registration until this replica has applied it.
const APPLIED_WITHIN: Duration = Duration::from_secs(2);

/// Pause after a refused registration: an operator has to act.
const REFUSED_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Pause before a replica that was declared down registers again: doubled each time, so that a flapping replica does
/// not move sub-clusters with every flap.
const HOLD_DOWN_MIN: Duration = Duration::from_millis(100);
const HOLD_DOWN_MAX: Duration = Duration::from_secs(10);

/// The pause is halved for each period of this length that the replica stayed up. A replica that fails sooner stays
/// away longer and longer; one that fails every few seconds costs at most a take-over each time, and is more useful as
/// a standby than away.
const STAY: Duration = Duration::from_secs(2);

/// A replica's information on itself.
pub(crate) struct RegistrarInputs {
    pub(crate) views: watch::Receiver<Arc<View>>,
    pub(crate) contact_state: watch::Receiver<ContactState>,
}

/// The registering process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) config: ControlPlaneConfig,
    pub(crate) boot_history: Arc<BootHistory>,
    /// Whether blocking work may use a thread.
    pub(crate) on_threads: bool,
    /// Whether the cluster has registered this boot before.
    pub(crate) was_taken_in: bool,
}

impl Process {
    /// Records on the disk that the cluster has registered this boot. Does not wait for the disk.
    fn taken_in(&mut self) {
        self.was_taken_in = true;
        let (boot_history, boot) = (Arc::clone(&self.boot_history), self.config.boot);
        let note = move || {
            if let Err(error) = boot_history.taken_in(boot) {
                tracing::warn!(%error, "that this boot was taken in cannot be written down");
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
    mut process: Process,
    proposer: Proposer,
    RegistrarInputs { mut views, mut contact_state }: RegistrarInputs,
    metrics: Metrics,
    fatal: watch::Sender<Option<Fatal>>,
    stop: CancellationToken,
) {
    let (node, boot) = (process.config.node, process.config.boot);
    let up = |view: &Arc<View>| view.nodes.get(&node).is_some_and(|n| n.up && n.boot == Some(boot));
    let mut hold_down = HoldDown::default();
    let policy_views = views.clone();
    let keep = async {
        loop {
            let index = match register(&registration, &process, &proposer, &metrics).await {
                Ok(index) => index,
                Err(refusal) => {
                    fatal.send_replace(Some(refusal));
                    return;
                }
            };
            let registered = wait_until_applied(index, up, &mut views).await;
            if matches!(registered, Registered::Up | Registered::DownAgain) {
                process.taken_in();
            }
            let problem = match registered {
                Registered::Up => None,
                Registered::DownAgain => Some("this replica was declared down as it registered"),
                // One that applies nothing gets no answer from the leader.
                Registered::NotApplied => Some("this replica does not apply its registration"),
                Registered::Ended => return,
            };
            if let Some(problem) = problem {
                // It must not flap with each attempt.
                let wait = hold_down.next(Duration::ZERO);
                tracing::warn!(?wait, "{problem}; it registers again");
                tokio::time::sleep(wait).await;
                if contact_state.wait_for(|contact_state| contact_state.heard).await.is_err() {
                    return;
                }
                continue;
            }
            let came = Instant::now();
            let over = tokio::select! {
                down = views.wait_for(|view| !up(view)) => down.is_err(),
                never = report_policies(&process, &proposer, policy_views.clone()) => match never {},
            };
            if over {
                return;
            }
            let wait = hold_down.next(came.elapsed());
            tracing::warn!(?wait, "this replica was declared down; it registers again");
            tokio::time::sleep(wait).await;
            // From the registration on the detector misses its heartbeats. After a partition other connections may
            // recover before the one of the heartbeats.
            if contact_state.wait_for(|contact_state| contact_state.heard).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = keep => {}
        () = stop.cancelled() => {}
    }
}

/// What came of a registration, by this replica's own view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registered {
    Up,
    /// It was declared down again at once: both entries can be applied together.
    DownAgain,
    /// Nothing that late was applied within [`APPLIED_WITHIN`].
    NotApplied,
    /// There are no more views.
    Ended,
}

/// Waits until this replica's view has the registration that was committed at `index`.
async fn wait_until_applied(
    index: u64,
    up: impl Fn(&Arc<View>) -> bool,
    views: &mut watch::Receiver<Arc<View>>,
) -> Registered {
    match timeout(APPLIED_WITHIN, views.wait_for(|view| view.applied_index >= index)).await {
        Ok(Ok(view)) if up(&view) => Registered::Up,
        Ok(Ok(_)) => Registered::DownAgain,
        Ok(Err(_)) => Registered::Ended,
        Err(_) => Registered::NotApplied,
    }
}

/// Tells the cluster which policies this program adds, as soon as that can be written down.
async fn report_policies(process: &Process, proposer: &Proposer, mut views: watch::Receiver<Arc<View>>) -> Infallible {
    let names: Vec<_> = process.config.policies.names().map(str::to_owned).collect();
    if !names.is_empty() && views.wait_for(|view| view.level >= Level::WITH_POLICIES).await.is_ok() {
        let known = Command::KnowPolicies { node: process.config.node, boot: process.config.boot, names };
        while let Err(error) = proposer.propose(&known).await {
            tracing::warn!(%error, "the cluster does not know yet which policies this program adds");
            if matches!(error, CallError::Refused(_) | CallError::Stopped) {
                break;
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
    std::future::pending().await
}

/// Whether a boot of this replica is registered that its disk does not know.
fn is_another(process: &Process, view: &View) -> bool {
    #[cfg(feature = "planted-faults")]
    if symphony_consensus::planted::is(symphony_consensus::planted::Bug::RegistrationsUnread) {
        return false;
    }
    names_another(process.config.node, &process.boot_history, view)
}

/// Registers, and returns the index of the log at which it did; an error if no attempt can succeed.
async fn register(
    registration: &Command,
    process: &Process,
    proposer: &Proposer,
    metrics: &Metrics,
) -> Result<u64, Fatal> {
    loop {
        let registered = match proposer.linearize(false).await {
            // By the leader's view, which is complete. A leader's own log is complete too.
            Ok(view) => {
                let view = view.and_then(|view| View::try_from(view).ok());
                if view.is_some_and(|view| is_another(process, &view)) {
                    return Err(replaced(process, proposer));
                }
                proposer.propose(registration).await
            }
            Err(error) => Err(error),
        };
        let wait = match registered {
            Ok(accepted) => {
                metrics.registrations.inc();
                return Ok(accepted.index);
            }
            Err(CallError::Refused(refusal @ (Refusal::NodeRemoved { .. } | Refusal::DiskLost { .. }))) => {
                return Err(Fatal(refusal.to_string()));
            }
            Err(CallError::Refused(refusal @ (Refusal::StaleBoot { .. } | Refusal::Changed { .. }))) => {
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

/// The cluster has registered a boot of this replica that its disk does not know.
fn replaced(process: &Process, proposer: &Proposer) -> Fatal {
    if process.was_taken_in {
        // That boot is later, so this disk is not the older of the two.
        return Fatal(format!(
            "another process has registered as scheduler {}: two run with one id, perhaps over a copy of the disk. End one of them",
            process.config.node
        ));
    }
    proposer.group().forget();
    Fatal::forgotten(&process.config)
}

/// How long to stay away after being declared down.
#[derive(Debug, Default)]
struct HoldDown {
    last: Option<Duration>,
}

impl HoldDown {
    /// The pause after the replica had been up for `stayed`.
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

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_is_declared_down_with_its_registration_sees_so_at_once() {
        let at = |applied_index| Arc::new(View { applied_index, ..View::default() });
        let (publish, mut views) = watch::channel(at(6));
        let began = Instant::now();
        assert_eq!(wait_until_applied(7, |_| true, &mut views).await, Registered::NotApplied);
        assert!(began.elapsed() >= APPLIED_WITHIN);

        let began = Instant::now();
        publish.send_replace(at(8));
        let down_again = wait_until_applied(7, |view| view.applied_index < 8, &mut views).await;
        assert_eq!(down_again, Registered::DownAgain);
        assert_eq!(wait_until_applied(7, |view| view.applied_index == 8, &mut views).await, Registered::Up);
        assert_eq!(began.elapsed(), Duration::ZERO, "no view has to show that it ever was up");

        drop(publish);
        assert_eq!(wait_until_applied(9, |_| true, &mut views).await, Registered::Ended);
    }

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
