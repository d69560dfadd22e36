//! Operators' commands to a federation: `get clusters`, `model load --federation`, `plan move --to-cluster`,
//! `plan now --federation`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use symphony_protocol::control as pb;
use symphony_protocol::control::federation_client::FederationClient as Grpc;
use symphony_protocol::federation::{FederatedModelView, FederationView};
use symphony_protocol::view::ModelSpec;
use symphony_transport::{AGREE_WITHIN, FederationClient, fresh_operation_id};
use symphony_types::{FailReason, OperationId, VersionedName};

use super::operation::not_done;
use crate::cli::{ClusterArgs, FederationArgs, PlanMoveArgs, PlanNowArgs};
use crate::exit::bad_input;
use crate::inspect::Shown;

/// The timeout for finding a replica that answers.
const VIEW_WITHIN: Duration = Duration::from_secs(5);

impl FederationArgs {
    /// The federation's control surface, if it was named.
    pub(crate) fn client(&self, who: &ClusterArgs) -> anyhow::Result<Option<FederationClient>> {
        let Some(addrs) = &self.federation else { return Ok(None) };
        let (net, addrs) = match addrs.as_str() {
            "" => (who.federation_net()?, who.federation_addresses()?),
            addrs => {
                let addrs = addrs.split(',').map(|addr| addr.trim().to_owned()).collect();
                (who.clone().at_another_place().federation_net()?, addrs)
            }
        };
        FederationClient::new(&net, &addrs).map(Some).map_err(bad_input)
    }
}

/// Adds a model to the federation and waits until a cluster serves it.
pub(crate) async fn load(
    federation: &FederationClient,
    spec: &ModelSpec,
    (wanted_rps, cluster): (f64, &str),
    operation: OperationId,
    wait: Duration,
) -> anyhow::Result<()> {
    let request = pb::FederationLoadRequest {
        spec: Some(spec.into()),
        wanted_rps,
        cluster: cluster.to_owned(),
        operation_id: operation.to_string(),
    };
    let call = |mut client: Grpc<_>| {
        let request = request.clone();
        async move { client.load(request).await }
    };
    federation.call(AGREE_WITHIN, call).await.map_err(|error| not_done(operation, error))?;
    if wait.is_zero() {
        println!("model {} is to be served; see `symphony get clusters`", spec.name);
        return Ok(());
    }
    let home = until(federation, &spec.name, wait, |model| model.home.clone()).await?;
    println!("model {} is ready in cluster {home}", spec.name);
    Ok(())
}

/// Removes a model from the federation.
pub(crate) async fn unload(federation: &FederationClient, name: &str, operation: OperationId) -> anyhow::Result<()> {
    let call = |mut client: Grpc<_>| {
        let request = pb::FederationUnloadRequest { name: name.to_owned(), operation_id: operation.to_string() };
        async move { client.unload(request).await }
    };
    federation.call(AGREE_WITHIN, call).await.map_err(|error| not_done(operation, error))?;
    println!("model {name} is unloaded");
    Ok(())
}

/// Moves models to another cluster and waits until it is their home.
pub(crate) async fn move_to(federation: &FederationClient, to: &str, args: &PlanMoveArgs) -> anyhow::Result<()> {
    if args.models.len() > 1 && args.operation.operation_id.is_some() {
        return Err(bad_input("--operation-id names one command; give one --model with it"));
    }
    for model in &args.models {
        let operation = args.operation.operation_id.unwrap_or_else(fresh_operation_id);
        let call = |mut client: Grpc<_>| {
            let request = pb::FederationMoveRequest {
                model: model.clone(),
                to: to.to_owned(),
                operation_id: operation.to_string(),
            };
            async move { client.r#move(request).await }
        };
        federation.call(AGREE_WITHIN, call).await.map_err(|error| not_done(operation, error))?;
    }
    for model in &args.models {
        if args.wait_s == 0 {
            println!("model {model} is to move to cluster {to}; see `symphony get clusters`");
            continue;
        }
        let wait = Duration::from_secs(args.wait_s);
        let began = std::cell::Cell::new(false);
        let home = until(federation, model, wait, |model| {
            let there = model.home.as_deref() == Some(to);
            // A replica that lags shows an old state of the model.
            began.set(began.get() || there || model.moves_to.as_deref() == Some(to));
            model.home.clone().filter(|_| began.get() && model.moves_to.is_none())
        });
        let home = home.await?;
        if home != to {
            anyhow::bail!("model {model} stayed in cluster {home}; `symphony get clusters -o json` says why");
        }
        println!("model {model} is at home in cluster {to}");
    }
    Ok(())
}

/// Redistributes all models of the federation.
pub(crate) async fn balance(federation: &FederationClient, args: &PlanNowArgs) -> anyhow::Result<()> {
    let operation = args.operation.id();
    let call = |mut client: Grpc<_>| {
        let request = pb::FederationBalanceRequest { adopt: args.adopt, operation_id: operation.to_string() };
        async move { client.balance(request).await }
    };
    let reply = federation.call(AGREE_WITHIN, call).await.map_err(|error| not_done(operation, error))?;
    println!("{}", reply.what);
    for moved in reply.moves {
        println!("  {}: {} -> {}", moved.model, moved.from, moved.to);
    }
    Ok(())
}

/// Waits until the federation reports a result for a model.
async fn until<T>(
    federation: &FederationClient,
    name: &str,
    wait: Duration,
    condition: impl Fn(&FederatedModelView) -> Option<T>,
) -> anyhow::Result<T> {
    let mut view = federation.watch(&format!("wait for {name}"));
    let mut last = String::new();
    let waiting = async {
        loop {
            let current = std::sync::Arc::clone(&view.borrow_and_update());
            if let Some(model) = current.models.get(name) {
                if let Some(found) = condition(model) {
                    return anyhow::Ok(found);
                }
                last = model.unplaced.clone().unwrap_or_default();
            }
            view.changed().await?;
        }
    };
    match tokio::time::timeout(wait, waiting).await {
        Ok(found) => found,
        Err(_) => {
            // Only the leader knows the GPUs.
            let newest = federation.get(true, VIEW_WITHIN).await.ok();
            let no_gpu = newest.as_ref().and_then(|view| view.models.get(name)).map(without_gpu).unwrap_or_default();
            let why = match (last.is_empty(), no_gpu.is_empty()) {
                (false, _) => last,
                (true, false) => no_gpu,
                (true, true) => "its cluster has not loaded it".to_owned(),
            };
            anyhow::bail!("model {name} is not there after {} s: {why}; see `symphony get clusters`", wait.as_secs())
        }
    }
}

/// Where no GPU takes a model, and why: `east: no GPU takes it: all its backends are down`.
fn without_gpu(model: &FederatedModelView) -> String {
    model.no_gpu.iter().map(|(cluster, why)| format!("{cluster}: {why}")).collect::<Vec<_>>().join("; ")
}

/// Refuses what a federation leaves to its clusters: why, and the command for each that serves the model.
pub(crate) async fn left_to_clusters(
    federation: &FederationClient,
    name: &str,
    refused: &str,
    command: &str,
) -> anyhow::Error {
    match federation.get(true, VIEW_WITHIN).await {
        Ok(view) => bad_input(format!("{refused}. {}", where_to_ask(&view, name, command))),
        Err(error) => error.into(),
    }
}

/// In which clusters the versions of a model are, and the command for each.
fn where_to_ask(view: &FederationView, name: &str, command: &str) -> String {
    let is_version = |loaded_as: &str| loaded_as == name || VersionedName::parse(loaded_as).name == name;
    let of_name = view.models.iter().filter(|(loaded_as, _)| is_version(loaded_as));
    let homes: BTreeSet<&String> = of_name.flat_map(|(_, model)| model.home.iter().chain(&model.moves_to)).collect();
    let mut words = match homes.len() {
        0 => format!("The federation has `{name}` nowhere; ask the cluster that has"),
        1 => format!("`{name}` is in the cluster below; ask that"),
        _ => format!(
            "Versions of `{name}` are in several clusters, and only versions in one share requests: `symphony plan move --federation \
             --model NAME --to-cluster CLUSTER` brings them together. Or ask each"
        ),
    };
    words += ", with a certificate of its own:";
    let clusters = view.clusters.iter().filter(|(cluster, _)| homes.is_empty() || homes.contains(cluster));
    for (cluster, known) in clusters {
        words +=
            &format!("\n  symphony {command} {name} … --cluster {} --pki PKI-OF-{cluster}", known.control.join(","));
    }
    words
}

/// The named federation, or the one of the context, or of `symphony up --clusters`.
pub(crate) fn client(federation: &FederationArgs, who: &ClusterArgs) -> anyhow::Result<FederationClient> {
    let standard = || FederationClient::new(&who.federation_net()?, &who.federation_addresses()?).map_err(bad_input);
    federation.client(who)?.map_or_else(standard, Ok)
}

/// The view of that federation.
pub(crate) async fn fetch_view(
    federation: &FederationArgs,
    who: &ClusterArgs,
    linearizable: bool,
) -> anyhow::Result<FederationView> {
    Ok(client(federation, who)?.get(linearizable, VIEW_WITHIN).await?)
}

/// `symphony get clusters`.
pub(super) fn show(view: &FederationView) -> Shown {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (name, cluster) in &view.clusters {
        let kinds = cluster.kinds.iter().map(|(kind, (gpus, bytes))| format!("{gpus} {kind} ({} MB)", bytes >> 20));
        let here = |model: &&FederatedModelView| model.home.as_ref() == Some(name);
        let models = view.models.iter().filter(|(_, model)| here(model)).map(|(model, _)| model.clone());
        let models: Vec<_> = models.collect();
        let moves = |to: bool| {
            let concerns = |model: &FederatedModelView| match to {
                true => model.moves_to.as_ref() == Some(name),
                false => model.moves_to.is_some() && model.home.as_ref() == Some(name),
            };
            let moving = view.models.iter().filter(|(_, model)| concerns(model)).map(|(model, _)| model.clone());
            moving.collect::<Vec<_>>()
        };
        let (comes, goes) = (moves(true), moves(false));
        let left = view.models.iter().filter(|(_, model)| model.leftovers.contains(name));
        let left: Vec<_> = left.map(|(model, _)| model.clone()).collect();
        let state = if cluster.reachable { "answers" } else { "lost" };
        rows.push(vec![
            name.clone(),
            state.to_owned(),
            kinds.collect::<Vec<_>>().join(", "),
            models.join(" "),
            comes.join(" "),
            goes.join(" "),
        ]);
        let kinds = cluster
            .kinds
            .iter()
            .map(|(kind, (gpus, bytes))| json!({ "kind": kind, "gpus": gpus, "memory_bytes": bytes }));
        json.push(json!({ "name": name, "reachable": cluster.reachable, "since": cluster.since,
                          "control": cluster.control, "kinds": kinds.collect::<Vec<_>>(), "models": models,
                          "comes": comes, "goes": goes, "leftovers": left }));
    }
    let mut without: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (name, model) in &view.models {
        for (cluster, why) in &model.no_gpu {
            without.entry((cluster, why.words())).or_default().push(name.as_str());
        }
    }
    for ((cluster, why), models) in without {
        let state = FailReason::NoGpu.label().to_owned();
        rows.push(vec![cluster.clone(), state, String::new(), models.join(" "), String::new(), why.to_owned()]);
    }
    for (name, model) in view.models.iter().filter(|(_, model)| model.unplaced.is_some() || model.home.is_none()) {
        let why = model.unplaced.clone().unwrap_or_else(|| "a place is looked for".to_owned());
        rows.push(vec!["(none)".to_owned(), String::new(), String::new(), name.clone(), String::new(), why]);
    }
    let models = view.models.iter().map(|(name, m)| {
        json!({ "name": name, "home": m.home, "moves_to": m.moves_to, "cause": m.cause, "leftovers": m.leftovers,
                "unloading": m.unloading, "unplaced": m.unplaced, "slo_ms": m.slo.as_millis_f64(),
                "value": m.value.number(), "wanted_rps": m.wanted_rps, "measured_rps": m.measured_rps,
                "no_gpu": m.no_gpu.iter().map(|(cluster, why)| (cluster.clone(), why.words().into())).collect::<serde_json::Map<_, _>>() })
    });
    let events = view
        .events
        .iter()
        .map(|event| json!({ "index": event.index, "at_unix_ms": event.at_unix_ms, "what": event.what }));
    let all = json!({ "federation": view.federation, "plan": view.plan, "leader": view.leader,
                      "clusters": Value::Array(json), "models": models.collect::<Vec<_>>(),
                      "events": events.collect::<Vec<_>>() });
    (&["CLUSTER", "STATE", "GPUS", "MODELS", "COMES", "GOES"], rows, all)
}

#[cfg(test)]
mod tests {
    use symphony_protocol::federation::FederatedClusterView;
    use symphony_protocol::view::NoGpu;

    use super::*;

    #[test]
    fn what_is_left_to_clusters_is_asked_where_the_versions_are() {
        let cluster = |address: &str| FederatedClusterView {
            control: vec![address.to_owned()],
            reachable: true,
            ..FederatedClusterView::default()
        };
        let at = |home: &str| FederatedModelView { home: Some(home.to_owned()), ..FederatedModelView::default() };
        let view = |models: &[(&str, &str)]| FederationView {
            clusters: [("east", "e:1"), ("west", "w:1")].map(|(name, at)| (name.to_owned(), cluster(at))).into(),
            models: models.iter().map(|&(model, home)| (model.to_owned(), at(home))).collect(),
            ..FederationView::default()
        };
        let together = where_to_ask(&view(&[("m@1", "east"), ("m@2", "east"), ("mm", "west")]), "m", "model traffic");
        assert!(together.ends_with("  symphony model traffic m … --cluster e:1 --pki PKI-OF-east"), "{together}");
        assert!(!together.contains("w:1"), "{together}");
        let apart = where_to_ask(&view(&[("m@1", "east"), ("m@2", "west")]), "m", "model traffic");
        assert!(apart.contains("plan move") && apart.contains("e:1") && apart.contains("w:1"), "{apart}");
        let one = where_to_ask(&view(&[("m@1", "east"), ("m@2", "west")]), "m@2", "model set");
        assert!(one.ends_with("  symphony model set m@2 … --cluster w:1 --pki PKI-OF-west"), "{one}");
        assert!(!one.contains("e:1"), "{one}");
        let unknown = where_to_ask(&view(&[]), "m", "model set");
        assert!(unknown.contains("nowhere") && unknown.contains("e:1") && unknown.contains("w:1"), "{unknown}");
    }

    #[test]
    fn models_that_no_gpu_takes_are_shown_by_cluster_and_reason_in_the_words_of_a_cluster() {
        let cluster = FederatedClusterView { reachable: true, ..FederatedClusterView::default() };
        let model = |no_gpu: &[(&str, NoGpu)]| FederatedModelView {
            home: Some("east".into()),
            no_gpu: no_gpu.iter().map(|&(cluster, why)| (cluster.to_owned(), why)).collect(),
            ..FederatedModelView::default()
        };
        let (gone, both) = ([("east", NoGpu::AllDown)], [("east", NoGpu::AllDown), ("west", NoGpu::NoBackend)]);
        let models = [("m", model(&gone)), ("n", model(&both)), ("o", model(&[]))];
        let view = FederationView {
            clusters: ["east", "west"].map(|name| (name.to_owned(), cluster.clone())).into(),
            models: models.map(|(name, model)| (name.to_owned(), model)).into(),
            ..FederationView::default()
        };
        let (_, rows, json) = show(&view);
        assert_eq!(rows[2], ["east", "no_gpu", "", "m n", "", NoGpu::AllDown.words()]);
        assert_eq!(rows[3..], [["west", "no_gpu", "", "n", "", NoGpu::NoBackend.words()]]);
        assert_eq!(json["models"][0]["no_gpu"], json!({ "east": NoGpu::AllDown.words() }));
        assert_eq!(json["models"][2]["no_gpu"], json!({}));
        assert_eq!(
            without_gpu(&view.models["n"]),
            "east: no GPU takes it: all its backends are down; west: no GPU takes it: its sub-cluster has no backend"
        );
    }
}
