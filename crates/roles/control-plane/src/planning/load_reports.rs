//! Sends a replica's loads to the Raft leader.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use symphony_protocol::control as pb;

use crate::group::propose::Proposer;
use crate::group::state_machine::SharedState;
use crate::planning::learnt_profiles::LEARNT_MAX;
use crate::planning::reported::Reported;
use crate::planning::unreported::Unreported;

/// How long a report may take: the next one supersedes it.
const REPORT_WITHIN: Duration = Duration::from_millis(500);

/// Reports the load of this replica's leads to the Raft leader.
#[derive(Clone, Debug)]
pub struct LoadReports {
    pub(crate) unsaid: Unreported,
    pub(crate) proposer: Proposer,
    pub(crate) state: SharedState,
    pub(crate) reported: Arc<Mutex<Reported>>,
}

impl LoadReports {
    /// Makes one attempt to report. Without a Raft leader there is no planning, and the next report makes up for a
    /// lost one.
    pub async fn report(&mut self, mut subclusters: Vec<pb::SubclusterLoad>) {
        leave_out(&mut subclusters, LEARNT_MAX);
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

/// Leaves out learnt profiles beyond `most`: a larger message would be rejected whole. First go those equal to the
/// given profile, which is the default anyway.
fn leave_out(subclusters: &mut [pb::SubclusterLoad], most: usize) {
    let is_as_given = |learnt: &pb::LearntProfile| learnt.points.iter().all(|point| point.factor == 1.0);
    let all = subclusters.iter().flat_map(|load| &load.learnt);
    let mut corrected = all.filter(|learnt| !is_as_given(learnt)).count().min(most);
    let mut as_given = most - corrected;
    for load in subclusters {
        load.learnt.retain(|learnt| {
            let room = if is_as_given(learnt) { &mut as_given } else { &mut corrected };
            let has_room = *room > 0;
            *room -= usize::from(has_room);
            has_room
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::problem::tests::learnt;

    #[test]
    fn of_too_many_profiles_those_that_are_as_given_are_left_out_first() {
        let kept = |most: usize| {
            let of = |learnt| pb::SubclusterLoad { learnt, ..Default::default() };
            let mut loads = [
                of(vec![learnt(1, "gpu", 1.0), learnt(2, "gpu", 2.0)]),
                of(vec![learnt(3, "gpu", 1.0), learnt(4, "gpu", 2.0)]),
            ];
            leave_out(&mut loads, most);
            loads.iter().flat_map(|load| &load.learnt).map(|learnt| learnt.model).collect::<Vec<_>>()
        };
        assert_eq!([kept(4), kept(3), kept(2), kept(1)], [vec![1, 2, 3, 4], vec![1, 2, 4], vec![2, 4], vec![2]]);
    }
}
