//! `symphony get`: the cluster as tables or JSON.

use std::time::Duration;

use serde_json::{Value, json};
use symphony_protocol::view::View;

use super::table;
use crate::cli::{GetArgs, Output, What};

/// How long to look for a replica that answers.
const WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &GetArgs) -> anyhow::Result<()> {
    let control = args.cluster.control()?;
    let view = control.get(!args.stale, WITHIN).await?;
    let (header, rows, json) = show(&view, args.what);
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&json)?),
        Output::Table => table::print(header, &rows),
    }
    Ok(())
}

type Shown = (&'static [&'static str], Vec<Vec<String>>, Value);

fn show(view: &View, what: What) -> Shown {
    match what {
        What::Models => models(view),
        What::Gpus => gpus(view),
        What::Subclusters => subclusters(view),
        What::Members => members(view),
        What::Epochs => {
            let row = vec![view.epoch.get().to_string(), view.applied_index.to_string()];
            let json = json!([{ "epoch": view.epoch.get(), "applied_index": view.applied_index }]);
            (&["EPOCH", "LOG INDEX"], vec![row], json)
        }
        What::Events => {
            let rows = view.events.iter().map(|(index, what)| vec![index.to_string(), what.clone()]).collect();
            let json = view.events.iter().map(|(index, what)| json!({ "index": index, "what": what })).collect();
            (&["LOG INDEX", "WHAT"], rows, Value::Array(json))
        }
    }
}

fn subcluster_name(view: &View, id: symphony_types::SubclusterId) -> String {
    view.subclusters.get(&id).map_or_else(|| id.to_string(), |s| s.name.clone())
}

fn models(view: &View) -> Shown {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (id, model) in &view.models {
        let ready = model.is_ready(view);
        let failed = model.replicas.values().find_map(|r| r.state.clone().err());
        let state = match (&failed, ready) {
            (None, true) => "ready".to_owned(),
            // Served by the backends that hold it; the one that does not stays unused until it does.
            (Some(reason), true) => format!("ready, not everywhere: {reason}"),
            (Some(reason), _) => format!("failed: {reason}"),
            (None, _) => "loading".to_owned(),
        };
        let subcluster = subcluster_name(view, model.subcluster);
        let slo_ms = model.spec.slo.as_millis_f64();
        let policy = if model.spec.policy.is_empty() { "symphony" } else { &model.spec.policy };
        rows.push(vec![
            id.to_string(),
            model.spec.name.clone(),
            subcluster.clone(),
            format!("{slo_ms} ms"),
            policy.into(),
            model.spec.value.to_string(),
            state,
        ]);
        json.push(json!({ "id": id.get(), "name": model.spec.name, "subcluster": subcluster, "slo_ms": slo_ms,
                          "policy": policy, "value": model.spec.value.number(), "ready": ready, "error": failed }));
    }
    (&["ID", "NAME", "SUBCLUSTER", "SLO", "POLICY", "VALUE", "STATE"], rows, Value::Array(json))
}

fn gpus(view: &View) -> Shown {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for backend in view.backends.values() {
        for gpu in &backend.gpus {
            let subcluster = subcluster_name(view, backend.subcluster);
            let token = view.gpu_token(backend, gpu);
            let memory_mb = gpu.memory_bytes >> 20;
            let up = if backend.up { "up" } else { "down" };
            rows.push(vec![
                gpu.id.to_string(),
                gpu.kind.clone(),
                format!("{memory_mb} MB"),
                backend.name.clone(),
                subcluster.clone(),
                token.to_string(),
                up.into(),
            ]);
            json.push(json!({ "id": gpu.id.get(), "kind": gpu.kind, "memory_bytes": gpu.memory_bytes,
                              "backend": backend.name, "subcluster": subcluster, "token": token.get(), "up": backend.up }));
        }
    }
    (&["ID", "KIND", "MEMORY", "BACKEND", "SUBCLUSTER", "TOKEN", "STATE"], rows, Value::Array(json))
}

fn subclusters(view: &View) -> Shown {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (id, subcluster) in &view.subclusters {
        let leader = subcluster.leader.map(|(node, _)| node);
        let standbys: Vec<_> = subcluster.standbys.iter().map(ToString::to_string).collect();
        let leader_name = leader.map_or_else(|| "none".to_owned(), |n| n.to_string());
        rows.push(vec![
            id.to_string(),
            subcluster.name.clone(),
            leader_name,
            subcluster.token.to_string(),
            standbys.join(", "),
        ]);
        json.push(json!({ "id": id.get(), "name": subcluster.name, "leader": leader.map(|n| n.get()),
                          "token": subcluster.token.get(),
                          "standbys": subcluster.standbys.iter().map(|n| n.get()).collect::<Vec<_>>() }));
    }
    (&["ID", "NAME", "LEADER", "TOKEN", "STANDBYS"], rows, Value::Array(json))
}

fn members(view: &View) -> Shown {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    let mut add = |kind: &str, id: String, name: String, addr: &str, up: bool, note: &str| {
        let state = if up { "up" } else { "down" };
        json.push(json!({ "role": kind, "id": id, "name": name, "addr": addr, "up": up, "note": note }));
        rows.push(vec![kind.to_owned(), id, name, addr.to_owned(), state.to_owned(), note.to_owned()]);
    };
    for (id, node) in &view.nodes {
        let note = if view.control_leader == Some(*id) { "leads the control group" } else { "" };
        add("scheduler", id.to_string(), String::new(), &node.control_addr, node.up, note);
    }
    for (id, backend) in &view.backends {
        add("backend", id.to_string(), backend.name.clone(), &backend.exec_addr, backend.up, &backend.executor);
    }
    for (id, frontend) in &view.frontends {
        add("frontend", id.to_string(), frontend.name.clone(), &frontend.data_addr, true, "");
    }
    (&["ROLE", "ID", "NAME", "ADDRESS", "STATE", "NOTE"], rows, Value::Array(json))
}
