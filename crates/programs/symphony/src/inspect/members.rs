//! Processes of a cluster: replicas, backends, frontends.

use std::time::Duration;

use serde_json::{Value, json};
use symphony_protocol::view::{FrontendView, GroupMemberView, View};
use symphony_types::{Level, Nanos};

use super::{Shown, subcluster_name};

/// After this many seconds without a sign a frontend is not shown as up: longer than a change of the watched replica
/// takes.
pub(crate) const SILENT_S: u64 = 5;
/// After this many seconds without a heartbeat a replica is shown as silent: far longer than heartbeats are apart.
pub(crate) const REPLICA_SILENT_S: u64 = 2;

/// Whether a frontend is up, if known, and the same in words.
pub(crate) fn presence(frontend: &FrontendView) -> (Option<bool>, String) {
    match frontend.silent.map(|silent| Duration::from(silent).as_secs()) {
        _ if frontend.has_left() => (Some(false), "left".to_owned()),
        None => (None, "unknown".to_owned()),
        Some(silent_s) if silent_s < SILENT_S => (Some(true), "up".to_owned()),
        Some(silent_s) => (Some(false), format!("silent for {silent_s} s")),
    }
}

/// For how many seconds a replica is silent, in words; none if the leader of the control group receives its heartbeats,
/// or does not report that.
pub(crate) fn silent_s(member: &GroupMemberView) -> Option<u64> {
    member.silent.map(|silent| Duration::from(silent).as_secs()).filter(|seconds| *seconds >= REPLICA_SILENT_S)
}

/// A replica's part in the control group, how far it has applied the log, and what keeps it from following, in words.
pub(crate) fn log_progress(member: &GroupMemberView) -> String {
    let GroupMemberView { role, applied_index, lag, .. } = member;
    let prefix = format!("{}, applied {applied_index}, ", role.label());
    let entries = if *lag == 1 { "entry" } else { "entries" };
    match (silent_s(member), member.stuck) {
        (Some(silent_s), _) => format!("{prefix}lag {lag}, silent for {silent_s} s"),
        (None, Some(stuck)) => {
            format!("{prefix}stuck: behind by {lag} {entries} for {} s", Duration::from(stuck).as_secs())
        }
        (None, None) => format!("{prefix}lag {lag}"),
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
    let seconds = |time: Option<Nanos>| time.map(|time| Duration::from(time).as_secs_f64());
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
        let (silent, stuck) = (member.and_then(|m| m.silent), member.and_then(|m| m.stuck));
        let (group, applied, lag) =
            (member.map(|m| m.role.label()), member.map(|m| m.applied_index), member.map(|m| m.lag));
        let mut note = match member {
            Some(m) => format!("{}; ", log_progress(m)),
            None if control_leader => "leads the control group; ".to_owned(),
            None => String::new(),
        };
        note.push_str(&match leads {
            1 => "leads 1 sub-cluster".to_owned(),
            leads => format!("leads {leads} sub-clusters"),
        });
        let shown = json!({ "role": "scheduler", "id": id.to_string(), "name": "", "addr": addr, "up": is_up,
            "duty": duty.label(), "group": group, "applied_index": applied, "lag": lag, "leads": leads,
            "silent_s": seconds(silent), "stuck_s": seconds(stuck), "level": level.map(Level::get), "note": note });
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
            "left": f.has_left(), "silent_s": seconds(f.silent), "duty": f.duty.label(), "drained": f.drained,
            "level": f.level.map(Level::get), "note": "" });
        let (name, addr, duty) = (f.name.clone(), f.data_addr.clone(), finished(f.duty, f.drained));
        add(shown, ["frontend".into(), id.to_string(), name, addr, state, duty, known(f.level), String::new()]);
    }
    (&["ROLE", "ID", "NAME", "ADDRESS", "STATE", "DUTY", "LEVEL", "NOTE"], rows, Value::Array(json))
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::{GroupRole, NodeView, SubclusterView};
    use symphony_types::{BootId, NodeId, SubclusterId};

    use super::*;

    /// Two replicas, of which the first leads the only sub-cluster.
    fn view() -> View {
        let leader = Some((NodeId::new(1), BootId::new(1)));
        View {
            nodes: [1, 2].map(|id| (NodeId::new(id), NodeView { up: true, ..NodeView::default() })).into(),
            subclusters: [(SubclusterId::new(1), SubclusterView { leader, ..SubclusterView::default() })].into(),
            ..View::default()
        }
    }

    #[test]
    fn a_replica_that_does_not_follow_says_why() {
        let member = |lag, silent: Option<u64>, stuck: Option<u64>| GroupMemberView {
            control_addr: String::new(),
            role: GroupRole::Voter,
            applied_index: 39,
            lag,
            level: None,
            silent: silent.map(Nanos::from_millis),
            stuck: stuck.map(Nanos::from_millis),
        };
        let shown = |member: GroupMemberView| {
            let mut view = view();
            view.group.insert(NodeId::new(2), member);
            let (_, rows, json) = show(&view);
            let note = rows[1][7].strip_suffix("; leads 0 sub-clusters").unwrap().to_owned();
            (note, json[1]["silent_s"].clone(), json[1]["stuck_s"].clone())
        };
        let nothing = Value::Null;
        let plain = |silent| ("voter, applied 39, lag 4".to_owned(), silent, nothing.clone());
        assert_eq!(shown(member(4, None, None)), plain(Value::Null), "an older leader does not say");
        assert_eq!(shown(member(4, Some(1_900), None)), plain(json!(1.9)), "heartbeats come many times a second");
        let silent = ("voter, applied 39, lag 4, silent for 12 s".to_owned(), json!(12.7), nothing.clone());
        assert_eq!(shown(member(4, Some(12_700), None)), silent);
        let stuck = |words: &str| (format!("voter, applied 39, stuck: behind by {words}"), json!(0.003), json!(12.5));
        assert_eq!(shown(member(412, Some(3), Some(12_500))), stuck("412 entries for 12 s"));
        assert_eq!(shown(member(1, Some(3), Some(12_500))), stuck("1 entry for 12 s"));
    }

    #[test]
    fn one_sub_cluster_is_no_plural() {
        let rows = show(&view()).1;
        let notes: Vec<_> = rows.iter().filter(|row| row[0] == "scheduler").map(|row| row[7].as_str()).collect();
        assert_eq!(notes, ["leads 1 sub-cluster", "leads 0 sub-clusters"]);
    }
}
