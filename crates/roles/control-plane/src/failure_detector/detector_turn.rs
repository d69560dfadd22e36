//! One turn of the detector with its events and effects, for threads and tasks alike.

use std::sync::Arc;
use std::time::Instant;

use symphony_consensus::Leadership;
use symphony_protocol::view::View;
use symphony_types::NodeId;
use tokio::sync::watch;

use crate::config::Liveness;
use crate::failure_detector::{Action, Detector, TimedEvent};
use crate::metrics::Metrics;

/// The detector and its sources.
pub(crate) struct DetectorTurn {
    me: NodeId,
    detector: Detector,
    limits: Liveness,
    views: watch::Receiver<Arc<View>>,
    leadership: watch::Receiver<Leadership>,
    metrics: Metrics,
    due: Instant,
}

impl DetectorTurn {
    pub(crate) fn new(
        me: NodeId,
        limits: Liveness,
        mut views: watch::Receiver<Arc<View>>,
        leadership: watch::Receiver<Leadership>,
        metrics: Metrics,
        now: Instant,
    ) -> Self {
        views.mark_changed();
        Self { me, detector: Detector::new(me, limits), limits, views, leadership, metrics, due: now }
    }

    /// When the next turn is due without an event.
    pub(crate) const fn due(&self) -> Instant {
        self.due
    }

    /// Whether this replica watches others. If not, no turn is due before the leadership changes.
    pub(crate) fn is_needed(&self) -> bool {
        self.leadership.borrow().leader == Some(self.me)
    }

    /// Makes the next turn due now: the time before it does not count as a delay.
    pub(crate) const fn begin(&mut self, now: Instant) {
        self.due = now;
    }

    /// One turn, with an event if there is one.
    pub(crate) fn run(&mut self, now: Instant, heard: impl IntoIterator<Item = TimedEvent>, actions: &mut Vec<Action>) {
        if now > self.due + self.limits.late {
            self.metrics.detector_late.inc();
            tracing::debug!(late = ?(now - self.due), "the failure detector was held up; it discards its suspicions");
            self.detector.reset_suspicions(now);
            self.due = now;
        }
        if self.views.has_changed().unwrap_or(false) {
            let view = self.views.borrow_and_update().clone();
            let up = view.nodes.iter().filter(|(_, n)| n.up);
            self.detector.set_members(now, up.filter_map(|(&id, n)| Some((id, n.boot?))));
        }
        let leader = self.leadership.borrow().leader;
        self.detector.set_leader(now, leader, actions);
        for (at, event) in heard {
            self.detector.step(at, event, actions);
        }
        if now >= self.due {
            self.detector.tick(now, actions);
            self.due = now + self.limits.heartbeat;
        }
    }
}
