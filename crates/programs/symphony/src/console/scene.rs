//! A small cluster and its history for the tests of this folder.

use std::time::Duration;

use symphony_protocol::view::{EventView, NodeView, View};
use symphony_telemetry::history::{History, RequestEnd};
use symphony_types::{BootId, DropReason, FrontendId, Nanos, NodeId, Outcome, RequestId};

use super::ProcessInfo;
use crate::inspect::scene;

pub(super) const NOW_MS: u64 = 1_700_000_040_000;

/// The cluster of `top`'s tests, with the replica that leads it and an event.
pub(super) fn view() -> View {
    let mut view = scene::view();
    view.nodes.insert(NodeId::new(1), NodeView { up: true, control_addr: "n:1".into(), ..NodeView::default() });
    view.events.push(EventView { index: 1, at_unix_ms: NOW_MS, what: "model m (m1) loaded".into() });
    view
}

pub(super) fn me() -> ProcessInfo {
    ProcessInfo { role: "frontend", name: "front".into(), note: None }
}

/// A history with this many requests of model `m`, twenty seconds ago; every tenth was dropped.
pub(super) fn history(requests: u64) -> History {
    let mut history = History::new(NOW_MS - 60_000);
    for sequence in 0..requests {
        let outcome = if sequence % 10 == 9 { Outcome::Dropped(DropReason::QueueFull) } else { Outcome::InTime };
        let request = Some(RequestId { frontend: FrontendId::new(1), boot: BootId::new(5), sequence });
        let ran = (outcome == Outcome::InTime).then_some((4, Nanos::from_millis(5)));
        let end = RequestEnd { request, outcome, items: 1, elapsed: Duration::from_millis(8 + sequence), ran };
        history.ended(NOW_MS - 20_000, "m", &end);
    }
    history
}
