//! Where models run: GPUs and sub-clusters.

use symphony_protocol::view::View;

use super::{Description, elements, value};
use crate::cli::What;
use crate::inspect::gpus::gpu_state;
use crate::inspect::models::model_state;
use crate::inspect::subcluster_name;
use crate::inspect::subclusters::{advice, gpu_use, policy};
use crate::suggestions::unknown;
use crate::tools::get::show;

/// A GPU, by its id.
pub(super) fn gpu(view: &View, name: &str) -> Result<Description, String> {
    let all = view.backends.iter().flat_map(|(id, backend)| backend.gpus.iter().map(move |gpu| (*id, backend, gpu)));
    let Some((id, backend, gpu)) = all.clone().find(|(.., gpu)| gpu.id.to_string() == name) else {
        let known: Vec<_> = all.map(|(.., gpu)| gpu.id.to_string()).collect();
        return Err(unknown("GPU", name, known.iter().map(String::as_str), "symphony get gpus"));
    };
    let subcluster = subcluster_name(view, backend.subcluster);
    let load = view.subclusters.get(&backend.subcluster).and_then(|home| home.load.as_ref());
    let work = load.and_then(|load| Some((load.gpus.get(&gpu.id)?, load))).map(|(counted, load)| {
        let (batches, busy_s, age_s) = (counted.plans, counted.busy.as_secs_f64(), load.age.as_secs_f64());
        format!("{batches} batches of this lead, {busy_s:.1} s in all, {age_s:.1} s ago")
    });
    let facts = vec![
        ("state", gpu_state(view, backend, gpu)),
        ("kind", gpu.kind.clone()),
        ("memory", format!("{} MB", gpu.memory_bytes >> 20)),
        ("backend", format!("{} ({id}) at {}, executor {}", backend.name, backend.exec_addr, backend.executor)),
        ("duty", backend.duty.to_string()),
        ("sub-cluster", format!("{subcluster} ({})", backend.subcluster)),
        ("token", view.gpu_token(backend, gpu).to_string()),
        ("work", work.unwrap_or_default()),
    ];
    let models = view.models.iter().filter(|(_, model)| model.holders.get(&id).is_some_and(|held| held.state.is_ok()));
    let models = models.map(|(id, model)| format!("{} ({id})", model.spec.name)).collect();
    let json = value("gpu", name, &elements(show(view, What::Gpus).2, |one| one["id"] == gpu.id.get()));
    let described = Description { title: format!("GPU {name}"), facts, lists: vec![("models", models)], json };
    Ok(described.with_events(view, &[name, &id.to_string(), &backend.name]))
}

/// A sub-cluster, by its name or id.
pub(super) fn subcluster(view: &View, name: &str) -> Result<Description, String> {
    let by_name = view.subclusters.iter().find(|(_, own)| own.name == name);
    let found = by_name.or_else(|| view.subclusters.iter().find(|(id, _)| id.to_string() == name));
    let Some((&id, own)) = found else {
        let known = view.subclusters.values().map(|own| own.name.as_str());
        return Err(unknown("sub-cluster", name, known, "symphony get subclusters"));
    };
    let (idle, demand) = gpu_use(view, id, own);
    let standbys: Vec<_> = own.standbys.iter().map(ToString::to_string).collect();
    let facts = vec![
        ("id", id.to_string()),
        ("leader", own.leader.map_or_else(|| "none".to_owned(), |(node, _)| node.to_string())),
        ("token", own.token.to_string()),
        ("standbys", standbys.join(", ")),
        ("policy", policy(own)),
        ("idle GPUs", idle),
        ("demand", demand),
        ("GPUs wanted", advice(view, id, own)),
    ];
    let models = view.models.iter().filter(|(_, model)| model.subcluster == id);
    let models = models.map(|(of, model)| format!("{} ({of}): {}", model.spec.name, model_state(view, *of, model)));
    let backends = view.backends.iter().filter(|(_, backend)| backend.subcluster == id).map(|(of, backend)| {
        let state = if backend.up { "up" } else { "down" };
        format!("{} ({of}): {state}, {}, {} GPUs", backend.name, backend.duty, backend.gpus.len())
    });
    let lists = vec![("models", models.collect()), ("backends", backends.collect())];
    let json = value("subcluster", &own.name, &elements(show(view, What::Subclusters).2, |one| one["id"] == id.get()));
    let described = Description { title: format!("sub-cluster {}", own.name), facts, lists, json };
    Ok(described.with_events(view, &[&own.name, &id.to_string()]))
}
