//! The way of a replica's loads to the Raft leader.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use symphony_protocol::control as pb;

use super::load_book::LoadBook;
use crate::propose::Proposer;

/// How long a report may take: the next one says more.
const REPORT_WITHIN: Duration = Duration::from_millis(500);

/// Tells the Raft leader what this replica's leads have had to do; cheap to clone.
#[derive(Clone, Debug)]
pub struct LoadReports {
    pub(crate) proposer: Proposer,
    pub(crate) book: Arc<Mutex<LoadBook>>,
}

impl LoadReports {
    /// Reports, or not: without a leader of the group nobody plans anything, and a lost report is made up for by the next.
    pub async fn report(&self, subclusters: Vec<pb::SubclusterLoad>) {
        let leader = match self.proposer.leader_elsewhere() {
            Err(_) => return,
            Ok(None) => {
                let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
                let now = Instant::now();
                return subclusters.iter().for_each(|load| book.take(now, load));
            }
            Ok(Some(leader)) => leader,
        };
        let Ok(mut client) = self.proposer.client(leader) else { return };
        let report = client.report_load(pb::ReportLoadRequest { subclusters });
        match tokio::time::timeout(REPORT_WITHIN, report).await {
            Ok(Ok(_)) => {}
            Ok(Err(status)) => tracing::debug!(%leader, %status, "loads not reported"),
            Err(_) => tracing::debug!(%leader, "loads not reported in time"),
        }
    }
}
