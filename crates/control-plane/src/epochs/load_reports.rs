//! The way of a replica's loads to the Raft leader.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use symphony_protocol::control as pb;

use super::learnt_profiles::LEARNT_MAX;
use super::reported::Reported;
use super::unsaid::Unsaid;
use crate::host::SharedState;
use crate::propose::Proposer;

/// How long a report may take: the next one says more.
const REPORT_WITHIN: Duration = Duration::from_millis(500);

/// Tells the Raft leader what this replica's leads have had to do.
#[derive(Clone, Debug)]
pub struct LoadReports {
    pub(crate) unsaid: Unsaid,
    pub(crate) proposer: Proposer,
    pub(crate) state: SharedState,
    pub(crate) reported: Arc<Mutex<Reported>>,
}

impl LoadReports {
    /// Reports, or not: without a leader of the group nobody plans anything, and a lost report is made up for by the next.
    pub async fn report(&mut self, mut subclusters: Vec<pb::SubclusterLoad>) {
        // More would not be heard at all; what is left out is planned as it was given.
        let mut room = LEARNT_MAX;
        for load in &mut subclusters {
            load.learnt.truncate(room);
            room -= load.learnt.len();
        }
        let leader = match self.proposer.leader_elsewhere() {
            Err(_) => return,
            Ok(None) => {
                let state = self.state.read();
                let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
                return reported.take(Instant::now(), &state, &subclusters);
            }
            Ok(Some(leader)) => leader,
        };
        let Ok(mut client) = self.proposer.client(leader) else { return };
        let subclusters = self.unsaid.take(Instant::now(), leader, subclusters);
        if subclusters.is_empty() {
            return;
        }
        let report = client.report_load(pb::ReportLoadRequest { subclusters });
        match tokio::time::timeout(REPORT_WITHIN, report).await {
            Ok(Ok(_)) => return,
            Ok(Err(status)) => tracing::debug!(%leader, %status, "loads not reported"),
            Err(_) => tracing::debug!(%leader, "loads not reported in time"),
        }
        self.unsaid.forget();
    }
}
