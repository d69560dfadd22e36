//! Publishes the view after every change. A slow reader skips to the latest one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use symphony_cluster_state::{EVENTS_MAX, OPERATIONS_KEPT, check};
use symphony_consensus::{ControlGroup, Leadership, Members};
use symphony_net::ClusterLevel;
use symphony_protocol::view::{GroupMemberView, GroupRole, SortedView, View};
use symphony_types::{Member, Nanos, NodeId};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::api::view;
use crate::error::Fatal;
use crate::failure_detector::Progress;
use crate::group::levels::ProcessLevels;
use crate::group::state_machine::SharedState;
use crate::initiatives::frontend_reaper::FrontendPresence;
use crate::metrics::Metrics;
use crate::planning::Reported;

/// Makes views of the state.
#[derive(Clone, Debug)]
pub(crate) struct Viewer {
    pub(crate) cluster: Arc<str>,
    pub(crate) node: NodeId,
    pub(crate) state: SharedState,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) group: ControlGroup,
    /// The leads' reports of their load; complete only while this replica leads the group.
    pub(crate) reported: Arc<Mutex<Reported>>,
    /// The frontends that watch this replica.
    pub(crate) presence: FrontendPresence,
    /// What the backends and frontends know that watch this replica.
    pub(crate) levels: ProcessLevels,
    /// How far each replica has applied the log, by its heartbeats.
    pub(crate) progress: Arc<Mutex<Progress>>,
    /// What this replica knows.
    pub(crate) own_level: ClusterLevel,
}

impl Viewer {
    /// The cluster as this replica has applied it now.
    pub(crate) fn view(&self) -> View {
        self.with_operations(EVENTS_MAX)
    }

    fn with_operations(&self, operations_max: usize) -> View {
        let leader = self.leadership.borrow().leader;
        view::view(&self.state.read(), &self.cluster, self.node, leader, operations_max)
    }

    /// The view with all operations and plans that are kept: for single reads.
    pub(crate) fn whole(&self) -> View {
        let mut view = self.with_operations(OPERATIONS_KEPT);
        let state = self.state.read();
        view.plans = state.plans().iter().map(|plan| view::plan(&state, plan)).collect();
        view
    }

    /// The view with what only the Raft leader knows, if this replica is it: advice, loads of leads and of pipelines,
    /// quarantined GPUs, silent frontends, what every process knows, members of the group, and whether they send
    /// heartbeats and apply the log.
    pub(crate) fn view_with_group(&self) -> View {
        let mut view = self.whole();
        if !self.leadership.borrow().is_leader {
            return view;
        }
        let (now, mut reported) = (Instant::now(), self.reported.lock().unwrap_or_else(PoisonError::into_inner));
        for (&id, subcluster) in &mut view.subclusters {
            subcluster.advice = reported.scaling.advice(id).as_ref().map(view::advice);
            subcluster.load = reported.last.of(id, now);
        }
        for (loaded_as, pipeline) in &mut view.pipelines {
            pipeline.load = Some(reported.pipelines.load_of(view.applied_index, loaded_as));
        }
        view.events.extend(reported.slow_gpus.notes());
        view.events.sort_by_key(|event| event.index);
        drop(reported);
        for (&id, frontend) in &mut view.frontends {
            frontend.silent = self.presence.silent(now, (id, frontend.boot)).map(Nanos::from);
            frontend.level = self.levels.of((Member::Frontend(id), frontend.boot));
        }
        for (&id, backend) in &mut view.backends {
            backend.level = self.levels.of((Member::Backend(id), backend.boot));
        }
        let Members { voters, addresses } = self.group.members();
        let leads_since = self.presence.leads_since().unwrap_or(now);
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let members = addresses.into_iter().map(|(node, control_addr)| {
            if node == self.node {
                let (applied_index, level) = (view.applied_index, Some(self.own_level.newest()));
                let (role, lag, silent, stuck) = (GroupRole::Leader, 0, None, None);
                return (node, GroupMemberView { control_addr, role, applied_index, lag, level, silent, stuck });
            }
            let role = if voters.contains(&node) { GroupRole::Voter } else { GroupRole::Learner };
            let boot = view.nodes.get(&node).and_then(|node| node.boot);
            let level = boot.and_then(|boot| progress.level_of(node, boot));
            let applied_index = progress.of(node);
            let lag = view.applied_index.saturating_sub(applied_index);
            let silent = Some(Nanos::from(progress.silent(now, node, leads_since)));
            let stuck = progress.stuck(now, node, leads_since).map(Nanos::from);
            (node, GroupMemberView { control_addr, role, applied_index, lag, level, silent, stuck })
        });
        view.group = members.collect();
        view
    }
}

/// The published views: plain, and sorted for the readers that cut their part from it.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) views: watch::Sender<Arc<View>>,
    pub(crate) sorted: watch::Sender<Arc<SortedView>>,
}

/// The published views and their receivers, which have the `first` one.
pub(crate) fn channels(first: View) -> (Published, watch::Receiver<Arc<View>>, watch::Receiver<Arc<SortedView>>) {
    let first = Arc::new(first);
    let (sorted_sender, sorted) = watch::channel(Arc::new(Arc::clone(&first).into()));
    let (view_sender, views) = watch::channel(first);
    (Published { views: view_sender, sorted: sorted_sender }, views, sorted)
}

impl Published {
    fn publish(&self, view: View) {
        let view = Arc::new(view);
        self.views.send_replace(Arc::clone(&view));
        self.sorted.send_replace(Arc::new(view.into()));
    }
}

/// Publishes until stopped. Many commands applied at once, as after a restart, make one view. When the Raft core ends,
/// the replica ends too: its view would become stale, and it would never learn that another replica has taken over its
/// leads.
pub(crate) async fn run(
    mut viewer: Viewer,
    mut applied: watch::Receiver<u64>,
    published: Published,
    metrics: Metrics,
    fatal: watch::Sender<Option<Fatal>>,
    stop: CancellationToken,
) {
    loop {
        applied.mark_unchanged();
        let leads = viewer.leadership.borrow_and_update().is_leader;
        metrics.is_leader.set(i64::from(leads));
        if !leads {
            metrics.replicas_not_applying.set(0);
        }
        let view = viewer.view();
        let voters = viewer.group.members().voters;
        let down = voters.iter().filter(|&voter| view.nodes.get(voter).is_some_and(|node| !node.up)).count();
        metrics.voters.set(voters.len() as i64);
        metrics.voters_down.set(down as i64);
        published.publish(view);
        // Walks the whole state: once for any number of commands, and after the waiting readers have the view.
        if let Err(violation) = check(&viewer.state.read()) {
            symphony_telemetry::violated(violation.invariant, &violation.what);
        }
        let more = tokio::select! {
            changed = applied.changed() => changed.is_ok(),
            changed = viewer.leadership.changed() => changed.is_ok(),
            () = stop.cancelled() => return,
        };
        if !more {
            // At a stop, the core may end before this task reads the stop.
            if !stop.is_cancelled() {
                fatal.send_replace(Some(Fatal("the Raft core has ended; the lines before this one say why".into())));
            }
            return;
        }
    }
}
