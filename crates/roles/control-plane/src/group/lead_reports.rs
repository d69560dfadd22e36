//! Hosts the [`LeadReporter`]: proposes its reports, and stops this replica's heartbeats when it asks for that.

use std::collections::BTreeMap;
use std::time::Duration;

use symphony_cluster_state::{LeadReport, LeadReportAction, LeadReportInput, LeadReporter};
use symphony_types::{BootId, Nanos, NodeId, Time};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::error::CallError;
use crate::failure_detector::{SilenceHold, SilenceSwitch};
use crate::group::propose::Proposer;

/// Runs until the replica stops.
pub(crate) async fn run(
    me: (NodeId, BootId),
    mut reports: mpsc::UnboundedReceiver<LeadReport>,
    proposer: Proposer,
    silence: SilenceSwitch,
    stop: CancellationToken,
) {
    let began = Instant::now();
    let now = || Time::ZERO + Nanos::from(began.elapsed());
    let (ended, mut ends) = mpsc::unbounded_channel();
    let mut reporter = LeadReporter::new(me);
    let mut proposals: BTreeMap<u64, AbortHandle> = BTreeMap::new();
    // While this is held, no heartbeats are sent.
    let mut silent = Option::<SilenceHold>::None;
    let mut actions = Vec::new();
    loop {
        let wake_at = Some(reporter.wake_at()).filter(|&at| at < Time::NEVER);
        let due = sleep_until(began + wake_at.map_or(Duration::ZERO, |at| Duration::from_nanos(at.as_nanos())));
        let input = tokio::select! {
            () = stop.cancelled() => return,
            Some(report) = reports.recv() => Some(LeadReportInput::Report(report)),
            Some(input) = ends.recv() => Some(input),
            () = due, if wake_at.is_some() => None,
        };
        if let Some(LeadReportInput::Settled(number) | LeadReportInput::Open(number)) = input {
            proposals.remove(&number);
        }
        reporter.step(now(), input, &mut actions);
        for action in actions.drain(..) {
            match action {
                LeadReportAction::BeSilent => silent = Some(silence.hold()),
                #[cfg(feature = "planted-faults")]
                LeadReportAction::Speak
                    if symphony_consensus::planted::is(symphony_consensus::planted::Bug::SilentForever) => {}
                LeadReportAction::Speak => drop(silent.take()),
                LeadReportAction::Propose { number, command } => {
                    let (proposer, ended) = (proposer.clone(), ended.clone());
                    // In its own task: a proposal that finds no leader must not delay the others.
                    let task = tokio::spawn(async move {
                        let fate = match proposer.propose(&command).await {
                            Ok(_) => LeadReportInput::Settled(number),
                            Err(error) => {
                                tracing::info!(command = command.label(), %error, "not agreed on");
                                match error {
                                    CallError::Refused(_) | CallError::Stopped => LeadReportInput::Settled(number),
                                    _ => LeadReportInput::Open(number),
                                }
                            }
                        };
                        let _ = ended.send(fate);
                    });
                    if let Some(earlier) = proposals.insert(number, task.abort_handle()) {
                        earlier.abort();
                    }
                }
            }
        }
    }
}
