//! Processes of a cluster: replicas, backends, frontends.

use std::time::Duration;

use serde_json::{Value, json};
use symphony_protocol::view::{FrontendView, View};
use symphony_types::Level;

use super::{Shown, subcluster_name};

/// After this many seconds without a sign a frontend is not shown as up: longer than a change of the watched replica
/// takes.
pub(crate) const SILENT_S: u64 = 5;

/// Whether a frontend is up, if known, and the same in words.
pub(crate) fn presence(frontend: &FrontendView) -> (Option<bool>, String) {
    match frontend.silent.map(|silent| Duration::from(silent).as_secs()) {
        _ if frontend.has_left() => (Some(false), "left".to_owned()),
        None => (None, "unknown".to_owned()),
        Some(silent_s) if silent_s < SILENT_S => (Some(true), "up".to_owned()),
        Some(silent_s) => (Some(false), format!("silent for {silent_s} s")),
    }
}

/// All processes.
pub(crate) fn show(view: &View) -> Shown {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    let mut add = |member: Value, cells: [String; 8]| {
        json.push(member);
        rows.push(cells.into());
    };
    let known = |level: Option<Level>| level.map_or_else(|| "-".to_owned(), |level| level.get().to_string());
    let up = |up: bool| if up { "up" } else { "down" }.to_owned();
    let ids: std::collections::BTreeSet<_> = view.nodes.keys().chain(view.group.keys()).collect();
    for id in ids {
        let (node, member) = (view.nodes.get(id), view.group.get(id));
        let leads = view.subclusters.values().filter(|s| s.leader.is_some_and(|(leader, _)| leader == *id)).count();
        let control_leader = view.control_leader == Some(*id);
        let addr = node.map(|n| n.control_addr.clone()).or_else(|| member.map(|m| m.control_addr.clone()));
        let (addr, is_up) = (addr.unwrap_or_default(), node.is_some_and(|n| n.up));
        let duty = node.map(|n| n.duty).unwrap_or_default();
        let level = member.and_then(|m| m.level);
        let (group, applied, lag) =
            (member.map(|m| m.role.label()), member.map(|m| m.applied_index), member.map(|m| m.lag));
        let mut note = match member {
            Some(m) => format!("{}, applied {}, lag {}; ", m.role.label(), m.applied_index, m.lag),
            None if control_leader => "leads the control group; ".to_owned(),
            None => String::new(),
        };
        note.push_str(&match leads {
            1 => "leads 1 sub-cluster".to_owned(),
            leads => format!("leads {leads} sub-clusters"),
        });
        let shown = json!({ "role": "scheduler", "id": id.to_string(), "name": "", "addr": addr, "up": is_up,
            "duty": duty.label(), "group": group, "applied_index": applied, "lag": lag, "leads": leads,
            "level": level.map(Level::get), "note": note });
        let state = if node.is_some() { up(is_up) } else { "joining".to_owned() };
        let (id, duty) = (id.to_string(), duty.to_string());
        add(shown, ["scheduler".into(), id, String::new(), addr, state, duty, known(level), note]);
    }
    let finished = |duty: symphony_types::Duty, drained| match (duty.takes_work(), drained) {
        (false, true) => format!("{duty}, done"),
        _ => duty.to_string(),
    };
    for (id, b) in &view.backends {
        let shown = json!({ "role": "backend", "id": id.to_string(), "name": b.name, "addr": b.exec_addr, "up": b.up,
            "duty": b.duty.label(), "drained": b.drained, "moves_to": b.moving.map(|m| subcluster_name(view, m.to)),
            "level": b.level.map(Level::get), "note": b.executor });
        let duty = match b.moving {
            Some(moving) => format!("moves to {}", subcluster_name(view, moving.to)),
            None => finished(b.duty, b.drained),
        };
        let (name, addr, note) = (b.name.clone(), b.exec_addr.clone(), b.executor.clone());
        add(shown, ["backend".into(), id.to_string(), name, addr, up(b.up), duty, known(b.level), note]);
    }
    for (id, f) in &view.frontends {
        let (up, state) = presence(f);
        let shown = json!({ "role": "frontend", "id": id.to_string(), "name": f.name, "addr": f.data_addr, "up": up,
            "left": f.has_left(), "silent_s": f.silent.map(|silent| Duration::from(silent).as_secs_f64()),
            "duty": f.duty.label(), "drained": f.drained, "level": f.level.map(Level::get), "note": "" });
        let (name, addr, duty) = (f.name.clone(), f.data_addr.clone(), finished(f.duty, f.drained));
        add(shown, ["frontend".into(), id.to_string(), name, addr, state, duty, known(f.level), String::new()]);
    }
    (&["ROLE", "ID", "NAME", "ADDRESS", "STATE", "DUTY", "LEVEL", "NOTE"], rows, Value::Array(json))
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::{NodeView, SubclusterView};
    use symphony_types::{BootId, NodeId, SubclusterId};

    use super::*;

    #[test]
    fn one_sub_cluster_is_no_plural() {
        let leader = Some((NodeId::new(1), BootId::new(1)));
        let view = View {
            nodes: [1, 2].map(|id| (NodeId::new(id), NodeView { up: true, ..NodeView::default() })).into(),
            subclusters: [(SubclusterId::new(1), SubclusterView { leader, ..SubclusterView::default() })].into(),
            ..View::default()
        };
        let rows = show(&view).1;
        let notes: Vec<_> = rows.iter().filter(|row| row[0] == "scheduler").map(|row| row[7].as_str()).collect();
        assert_eq!(notes, ["leads 1 sub-cluster", "leads 0 sub-clusters"]);
    }
}
