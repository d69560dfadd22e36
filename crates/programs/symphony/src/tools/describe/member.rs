//! A process: a scheduler, a backend or a frontend.

use symphony_protocol::view::View;
use symphony_types::{BackendId, FrontendId, Member, NodeId};

use super::{Description, elements, requests, value};
use crate::cli::What;
use crate::inspect::gpus::gpu_state;
use crate::inspect::members::{log_progress, presence};
use crate::inspect::sample::Sample;
use crate::inspect::subcluster_name;
use crate::suggestions::unknown;
use crate::tools::duty::find;
use crate::tools::get::show;

/// The process of this name or id.
pub(super) fn describe(sample: &Sample, name: &str) -> Result<Description, String> {
    let view = &sample.view;
    let known = || {
        let schedulers = view.nodes.keys().map(|id| format!("scheduler-{}", id.get()));
        let backends = view.backends.values().map(|backend| backend.name.clone());
        schedulers.chain(backends).chain(view.frontends.values().map(|frontend| frontend.name.clone()))
    };
    let (id, description) = match find(view, name) {
        Ok(Member::Scheduler(id)) => (id.to_string(), scheduler(view, id)),
        Ok(Member::Backend(id)) => (id.to_string(), backend(view, id)),
        Ok(Member::Frontend(id)) => (id.to_string(), frontend(sample, id)),
        Err(several) if known().any(|own| own == name) => return Err(several),
        Err(_) => {
            let known: Vec<_> = known().collect();
            return Err(unknown("process", name, known.iter().map(String::as_str), "symphony get members"));
        }
    };
    let (own, mut description) = description.ok_or_else(|| format!("`{name}` is known no more"))?;
    let items = elements(show(view, What::Members).2, |one| one["id"] == id.as_str());
    description.json = value("member", &own, &items);
    // Events name a scheduler by its id.
    Ok(description.with_events(view, &[&id, &own]))
}

/// Its name, and the page without its value.
type Page = Option<(String, Description)>;

fn page(kind: &str, name: &str, facts: Vec<(&'static str, String)>, lists: Vec<(&'static str, Vec<String>)>) -> Page {
    let title = format!("{kind} {name}");
    Some((name.to_owned(), Description { title, facts, lists, json: serde_json::Value::Null }))
}

fn scheduler(view: &View, id: NodeId) -> Page {
    let node = view.nodes.get(&id)?;
    let group = view.group.get(&id).map(log_progress);
    let led = view.subclusters.values().filter(|own| own.leader.is_some_and(|(leader, _)| leader == id));
    let led: Vec<_> = led.map(|own| format!("{}, token {}", own.name, own.token)).collect();
    let stands_by = view.subclusters.values().filter(|own| own.standbys.contains(&id));
    let stands_by: Vec<_> = stands_by.map(|own| own.name.clone()).collect();
    let facts = vec![
        ("state", if node.up { "up" } else { "down" }.to_owned()),
        ("duty", node.duty.to_string()),
        ("control", node.control_addr.clone()),
        ("dispatch", node.dispatch_addr.clone()),
        ("heartbeats", node.beat_addr.clone()),
        ("control group", group.unwrap_or_default()),
    ];
    page("scheduler", &format!("scheduler-{}", id.get()), facts, vec![("leads", led), ("stands by for", stands_by)])
}

fn backend(view: &View, id: BackendId) -> Page {
    let own = view.backends.get(&id)?;
    let drained = if own.drained && !own.duty.takes_work() { ", nothing is left" } else { "" };
    let moving = own.moving.map(|moving| subcluster_name(view, moving.to)).unwrap_or_default();
    let facts = vec![
        ("id", id.to_string()),
        ("state", if own.up { "up" } else { "down" }.to_owned()),
        ("duty", format!("{}{drained}", own.duty)),
        ("address", own.exec_addr.clone()),
        ("executor", own.executor.clone()),
        ("sub-cluster", subcluster_name(view, own.subcluster)),
        ("moves to", moving),
    ];
    let gpus = own
        .gpus
        .iter()
        .map(|gpu| format!("{}: {}, {} MB, {}", gpu.id, gpu.kind, gpu.memory_bytes >> 20, gpu_state(view, own, gpu)));
    let models = view.models.values().filter(|model| own.is_to_hold(model)).map(|model| {
        let held = model.holders.get(&id).filter(|held| held.boot == own.boot).map(|held| &held.state);
        let state = match held {
            Some(Ok(())) => "loaded".to_owned(),
            Some(Err(reason)) => format!("failed: {reason}"),
            None => "loading".to_owned(),
        };
        format!("{}: {state}", model.spec.name)
    });
    page("backend", &own.name, facts, vec![("GPUs", gpus.collect()), ("models", models.collect())])
}

fn frontend(sample: &Sample, id: FrontendId) -> Page {
    let own = sample.view.frontends.get(&id)?;
    let drained = if own.drained && !own.duty.takes_work() { ", nothing is left" } else { "" };
    let facts = vec![
        ("id", id.to_string()),
        ("state", presence(own).1),
        ("duty", format!("{}{drained}", own.duty)),
        ("data", own.data_addr.clone()),
        ("console", own.console_addr.clone()),
    ];
    let requests = match sample.frontends.get(&id) {
        Some(Ok(counts)) => {
            counts.models.iter().map(|(name, counts)| format!("{name}: {}", requests::words(counts))).collect()
        }
        Some(Err(error)) => vec![format!("unknown: {error}")],
        None => Vec::new(),
    };
    page("frontend", &own.name, facts, vec![("requests", requests)])
}
