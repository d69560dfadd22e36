//! `symphony get`: the cluster as tables, JSON or YAML.

use std::time::Duration;

use serde_json::{Value, json};
use symphony_protocol::view::{
    AdviceView, BackendView, DriftView, FrontendView, GpuView, GroupMemberView, KindAdviceView, ModelView, PolicyView,
    Readiness, SlowGpuView, SubclusterView, View,
};
use symphony_transport::{ControlClient, FederationClient};
use symphony_types::{GpuId, Level, ModelId, Nanos, SubclusterId, VersionedName};

use super::frontend_page::PageClient;
use super::operation::asked;
use super::page::Page;
use super::{events, federation, frontend_page, ledger, pipeline, plan, watch, wide};
use crate::cli::{Format, GetArgs, What};
use crate::exit::bad_input;

/// The timeout for finding a replica that answers.
const WITHIN: Duration = Duration::from_secs(5);
/// After this many seconds without a sign a frontend is not shown as up: longer than a change of the watched replica
/// takes.
const SILENT_S: u64 = 5;
/// After this many seconds without a heartbeat a replica is said to be silent: far longer than heartbeats are apart.
const REPLICA_SILENT_S: u64 = 2;

pub(crate) async fn run(args: &GetArgs) -> anyhow::Result<()> {
    let source = source(args)?;
    let name = args.name.as_deref();
    if !args.watch {
        let (page, _) = ask(args, &source).await?;
        print!("{}", page.only(args.what, name)?.text(args.output)?);
        return Ok(());
    }
    watch::run(async |is_first: bool| {
        let (page, compared) = ask(args, &source).await?;
        // What was there and is gone is shown as nothing.
        let text = |page: Page| -> anyhow::Result<String> {
            page.called(args.what, name, is_first)?.text_of_many(args.output)
        };
        anyhow::Ok((text(page)?, text(compared)?))
    })
    .await
}

/// What is asked. It stays the same while somebody watches, whatever becomes the current context.
enum Source {
    /// A cluster, and its frontends where they are asked, too.
    Cluster(ControlClient, Option<PageClient>),
    Federation(FederationClient),
}

fn source(args: &GetArgs) -> anyhow::Result<Source> {
    let is_federation = args.federation.federation.is_some();
    match args.what {
        What::Clusters => Ok(Source::Federation(federation::client(&args.federation, &args.cluster)?)),
        What::Events | What::Epochs if is_federation => {
            Ok(Source::Federation(federation::client(&args.federation, &args.cluster)?))
        }
        what if is_federation => Err(bad_input(format!(
            "--federation: a federation shows its clusters, epochs and events; `{}` is asked of one cluster",
            plural(what)
        ))),
        What::Ledger => {
            let pages = frontend_page::client(args.public.access(&args.cluster)?)?;
            Ok(Source::Cluster(args.cluster.control()?, Some(pages)))
        }
        _ => Ok(Source::Cluster(args.cluster.control()?, None)),
    }
}

/// Asks; the second page is without ages, to be compared with others.
async fn ask(args: &GetArgs, source: &Source) -> anyhow::Result<(Page, Page)> {
    let page = match source {
        Source::Federation(client) => {
            let view = client.get(!args.stale, WITHIN).await?;
            Page::from(match args.what {
                What::Events => events::of_federation(&view),
                What::Epochs => plan::epochs_of_federation(&view),
                _ => federation::show(&view),
            })
        }
        Source::Cluster(control, pages) => {
            let view = control.get(!args.stale, WITHIN).await.map_err(asked)?;
            let Some(pages) = pages else {
                return Ok((page(args, &view), page(args, &without_ages(view))));
            };
            Page::from(ledger::show(&view, pages).await?)
        }
    };
    Ok((page.clone(), page))
}

fn page(args: &GetArgs, view: &View) -> Page {
    let shown = show(view, args.what);
    if args.output == Format::Wide { wide::page(view, args.what, shown) } else { Page::from(shown) }
}

/// Without what differs each time although nothing has changed.
fn without_ages(mut view: View) -> View {
    for frontend in view.frontends.values_mut() {
        let is_up = frontend.silent.is_none_or(|silent| Duration::from(silent).as_secs() < SILENT_S);
        frontend.silent =
            frontend.silent.map(|_| if is_up { Nanos::ZERO } else { Nanos::from_millis(SILENT_S * 1000) });
    }
    for member in view.group.values_mut() {
        member.silent = silent_s(member).map(|_| Nanos::from_millis(REPLICA_SILENT_S * 1000));
        member.stuck = member.stuck.map(|_| Nanos::ZERO);
    }
    for advice in view.subclusters.values_mut().filter_map(|subcluster| subcluster.advice.as_mut()) {
        for slow in &mut advice.slow {
            slow.quarantined_ms = slow.quarantined_ms.map(|_| 0);
        }
    }
    view
}

/// A kind as the command line has it.
fn plural(what: What) -> String {
    clap::ValueEnum::to_possible_value(&what).map(|value| value.get_name().to_owned()).unwrap_or_default()
}

pub(crate) type Shown = (&'static [&'static str], Vec<Vec<String>>, Value);

pub(super) fn show(view: &View, what: What) -> Shown {
    match what {
        What::Models => models(view),
        What::Pipelines => pipeline::show(view),
        What::Gpus => gpus(view),
        What::Subclusters => subclusters(view),
        What::Members | What::Ledger | What::Clusters => members(view),
        What::Epochs => plan::epochs(view),
        What::Events => events::show(view),
    }
}

pub(crate) fn subcluster_name(view: &View, id: SubclusterId) -> String {
    view.subclusters.get(&id).map_or_else(|| id.to_string(), |s| s.name.clone())
}

fn models(view: &View) -> Shown {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (id, model) in &view.models {
        let ready = model.is_ready(view);
        let failed = failure(model);
        let state = model_state(view, *id, model);
        let subcluster = subcluster_name(view, model.subcluster);
        let going = moves_to(view, model);
        let drifts = drifts(view, *id, model.subcluster);
        let drifts: Vec<_> = drifts.iter().map(|drift| json!({ "kind": drift.kind, "factor": drift.factor })).collect();
        let slo_ms = model.spec.slo.as_millis_f64();
        let policy = model.spec.policy.to_string();
        rows.push(vec![
            id.to_string(),
            model.spec.name.clone(),
            subcluster.clone(),
            format!("{slo_ms} ms"),
            policy.clone(),
            model.spec.value.to_string(),
            state,
        ]);
        json.push(json!({ "id": id.get(), "name": model.spec.name, "subcluster": subcluster, "slo_ms": slo_ms,
                          "policy": policy, "value": model.spec.value.number(), "ready": ready, "error": failed, "no_gpu": no_gpu(view, model),
                          "moves_to": going, "measured": drifts, "family": family(view, model) }));
    }
    (&["ID", "NAME", "SUBCLUSTER", "SLO", "POLICY", "VALUE", "STATE"], rows, Value::Array(json))
}

/// The trunk that it shares, and with whom, itself included.
fn family(view: &View, model: &ModelView) -> Option<Value> {
    let trunk = model.shared_trunk()?;
    let members = view.family_of(model).into_iter().filter_map(|id| Some(view.models.get(&id)?.spec.name.clone()));
    Some(json!({ "trunk": format!("{:032x}", trunk.get()), "models": members.collect::<Vec<_>>() }))
}

/// Why no GPU serves it, if none does.
pub(crate) fn no_gpu(view: &View, model: &ModelView) -> Option<&'static str> {
    if let Readiness::NoGpu(why) = model.readiness(view) { Some(why.words()) } else { None }
}

/// Why a backend failed to load it, if one did.
fn failure(model: &ModelView) -> Option<String> {
    model.holders.values().find_map(|holder| holder.state.clone().err())
}

/// What the version gets of the requests that name none, if they are split.
fn gets(view: &View, model: &ModelView) -> Option<String> {
    let VersionedName { name, version } = VersionedName::parse(&model.spec.name);
    let traffic = view.traffic.get(name)?;
    let total: u64 = traffic.weights.values().map(|&weight| u64::from(weight)).sum();
    let part = traffic.weights.get(&version).map(|&weight| f64::from(weight) * 100.0 / total as f64);
    let copies = traffic.shadow.filter(|shadow| shadow.version == version).map(|shadow| shadow.percent);
    match (part, copies) {
        (Some(part), None) => Some(format!("{part:.1} % of the requests without a version")),
        (None, Some(copies)) => Some(format!("copies of {copies} % of the requests")),
        (Some(part), Some(copies)) => Some(format!("{part:.1} % of the requests, and copies of {copies} %")),
        (None, None) => (!traffic.weights.is_empty()).then(|| "no request without a version".to_owned()),
    }
}

/// The target of a model's move, until it is served there.
fn moves_to(view: &View, model: &ModelView) -> Option<String> {
    model.moving.filter(|moving| moving.switched.is_none()).map(|moving| subcluster_name(view, moving.to))
}

/// Whether a model is served, whether it moves, and whether its batches match its profile.
pub(crate) fn model_state(view: &View, id: ModelId, model: &ModelView) -> String {
    let state = match (model.readiness(view), failure(model)) {
        // It is served by the backends that hold it; the other one is not used until it does.
        (Readiness::Ready, Some(reason)) => format!("ready, not everywhere: {reason}"),
        (Readiness::Ready, None) => "ready".to_owned(),
        (Readiness::Failed(reason), _) => format!("failed: {reason}"),
        (Readiness::NoGpu(why), _) => why.to_string(),
        (Readiness::Loading, _) => "loading".to_owned(),
    };
    let state = match moves_to(view, model) {
        Some(to) => format!("{state}, moves to {to}"),
        None => state,
    };
    let off = drifts(view, id, model.subcluster);
    let state = match gets(view, model) {
        Some(part) => format!("{state}, gets {part}"),
        None => state,
    };
    let off = off.iter().map(|drift| format!("takes {:.2} times its profile on {}", drift.factor, drift.kind));
    std::iter::once(state).chain(off).collect::<Vec<_>>().join(", ")
}

fn gpus(view: &View) -> Shown {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for backend in view.backends.values() {
        for gpu in &backend.gpus {
            let subcluster = subcluster_name(view, backend.subcluster);
            let token = view.gpu_token(backend, gpu);
            let memory_mb = gpu.memory_bytes >> 20;
            let slow = slow(view, backend.subcluster, gpu.id);
            let up = gpu_state(view, backend, gpu);
            rows.push(vec![
                gpu.id.to_string(),
                gpu.kind.clone(),
                format!("{memory_mb} MB"),
                backend.name.clone(),
                subcluster.clone(),
                token.to_string(),
                up,
            ]);
            json.push(json!({ "id": gpu.id.get(), "kind": gpu.kind, "memory_bytes": gpu.memory_bytes,
                              "backend": backend.name, "subcluster": subcluster, "token": token.get(), "up": backend.up,
                              "quarantined": slow.map(|slow| json!({ "slowdown": slow.slowdown, "failed": slow.failed,
                                                                    "left_ms": slow.quarantined_ms })) }));
        }
    }
    (&["ID", "KIND", "MEMORY", "BACKEND", "SUBCLUSTER", "TOKEN", "STATE"], rows, Value::Array(json))
}

/// Whether a GPU is up, and whether it is set aside.
pub(crate) fn gpu_state(view: &View, backend: &BackendView, gpu: &GpuView) -> String {
    match slow(view, backend.subcluster, gpu.id) {
        _ if !backend.up => "down".to_owned(),
        None => "up".to_owned(),
        Some(slow) => slow.to_string(),
    }
}

/// The reason why a GPU is set aside.
fn slow(view: &View, subcluster: SubclusterId, gpu: GpuId) -> Option<&SlowGpuView> {
    view.subclusters.get(&subcluster)?.advice.as_ref()?.slow.iter().find(|slow| slow.gpu == gpu)
}

/// The real execution time of batches, if it differs from the profile: `1.50 × its profile on a100`.
fn drifts(view: &View, id: ModelId, subcluster: SubclusterId) -> Vec<&DriftView> {
    let advice = view.subclusters.get(&subcluster).and_then(|subcluster| subcluster.advice.as_ref());
    advice.map(|advice| advice.drifts.iter().filter(|drift| drift.model == id).collect()).unwrap_or_default()
}

fn subclusters(view: &View) -> Shown {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    for (id, subcluster) in &view.subclusters {
        let (idle, demand) = gpu_use(view, *id, subcluster);
        let leader = subcluster.leader.map(|(node, _)| node);
        let standbys: Vec<_> = subcluster.standbys.iter().map(ToString::to_string).collect();
        let leader_name = leader.map_or_else(|| "none".to_owned(), |n| n.to_string());
        rows.push(vec![
            id.to_string(),
            subcluster.name.clone(),
            leader_name,
            subcluster.token.to_string(),
            standbys.join(", "),
            idle,
            demand,
            advice(view, *id, subcluster),
            policy(subcluster),
        ]);
        json.push(json!({ "id": id.get(), "name": subcluster.name, "leader": leader.map(|n| n.get()),
                          "token": subcluster.token.get(),
                          "standbys": subcluster.standbys.iter().map(|n| n.get()).collect::<Vec<_>>(),
                          "policy": subcluster.policy.as_ref().map(|policy| &policy.text),
                          "policy_failed": subcluster.policy.as_ref().and_then(|policy| policy.failed.as_ref()),
                          "advice": subcluster.advice.as_ref().map(advice_json) }));
    }
    let header = &["ID", "NAME", "LEADER", "TOKEN", "STANDBYS", "IDLE GPUS", "DEMAND", "GPUS WANTED", "POLICY"];
    (header, rows, Value::Array(json))
}

/// The policy that decides for the sub-cluster, with what became of it; `auto` if each model has its own.
pub(crate) fn policy(subcluster: &SubclusterView) -> String {
    subcluster.policy.as_ref().map_or_else(|| "auto".to_owned(), PolicyView::words)
}

/// The measured number of idle GPUs, and the number that the demand keeps busy, on which the advice is based:
/// `0.1 of 8`, `3.4 of 8`. GPUs that are set aside are left out.
pub(super) fn gpu_use(view: &View, id: SubclusterId, subcluster: &SubclusterView) -> (String, String) {
    let Some(advice) = &subcluster.advice else { return Default::default() };
    let backends = view.backends.values().filter(|b| b.subcluster == id && b.up && b.duty.takes_work());
    let serving = backends.flat_map(|b| &b.gpus).filter(|gpu| slow(view, id, gpu.id).is_none()).count();
    let of_all = |gpus: f64| format!("{gpus:.1} of {serving}");
    let idle = (serving as f64 - advice.busy_gpus).max(0.0);
    (of_all(idle), advice.demand_gpus.map_or_else(|| "-".to_owned(), of_all))
}

/// The autoscaler's advice beside the present number: `3 of kind a100 (2 there, 1 on order): bad_rate`. For the reason,
/// GPUs on order count as present: with them there may be enough. Where there is a budget, what they cost and why.
pub(crate) fn advice(view: &View, id: SubclusterId, subcluster: &SubclusterView) -> String {
    let Some(advice) = &subcluster.advice else { return String::new() };
    let serving = |kind: &str| {
        let backends = view.backends.values().filter(|b| b.subcluster == id && b.up && b.duty.takes_work());
        backends.flat_map(|b| &b.gpus).filter(|gpu| gpu.kind == kind).count()
    };
    let of_kind = |wanted: &KindAdviceView| {
        let (kind, there) = (&wanted.kind, serving(&wanted.kind));
        let ordered = (wanted.target as usize).saturating_sub(there);
        let ordered = if ordered == 0 { String::new() } else { format!(", {ordered} on order") };
        let gone: Vec<_> = wanted.release.iter().map(ToString::to_string).collect();
        let gone = if gone.is_empty() { String::new() } else { format!(", without {}", gone.join(" ")) };
        let price = wanted.price_per_hour.map(|price| format!(" at {price}")).unwrap_or_default();
        format!("{} of kind {kind}{price} ({there} there{ordered}{gone})", wanted.target)
    };
    let kinds: Vec<_> = advice.kinds.iter().map(of_kind).collect();
    let fleet = advice.fleet.as_ref().map(|fleet| format!("; {fleet}")).unwrap_or_default();
    format!("{}: {}{fleet}", kinds.join(", "), advice.reason)
}

/// The advice for programs.
pub(crate) fn advice_json(advice: &AdviceView) -> Value {
    let kinds: Vec<_> = advice
        .kinds
        .iter()
        .map(|kind| {
            let release: Vec<_> = kind.release.iter().map(|gpu| gpu.get()).collect();
            let price = kind.price_per_hour;
            json!({ "kind": kind.kind, "target": kind.target, "release": release, "price_per_hour": price })
        })
        .collect();
    let fleet = advice.fleet.as_ref().map(|fleet| {
        let chosen = fleet.chosen.map(|chosen| {
            json!({ "price_per_hour": chosen.price_per_hour, "bound_rps": chosen.bound_rps,
                    "needed_rps": chosen.needed_rps, "rate_rps": chosen.rate_rps })
        });
        let refused = (!fleet.refused.is_empty()).then_some(&fleet.refused);
        json!({ "budget_per_hour": fleet.budget_per_hour, "chosen": chosen, "refused": refused })
    });
    json!({ "reason": advice.reason, "bad_rate": advice.bad_rate, "idle_fraction": advice.idle_fraction,
            "busy_gpus": advice.busy_gpus, "demand_gpus": advice.demand_gpus, "kinds": kinds, "fleet": fleet })
}

/// Whether a frontend is up, if known, and the same in words.
pub(super) fn presence(frontend: &FrontendView) -> (Option<bool>, String) {
    match frontend.silent.map(|silent| Duration::from(silent).as_secs()) {
        _ if frontend.has_left() => (Some(false), "left".to_owned()),
        None => (None, "unknown".to_owned()),
        Some(silent_s) if silent_s < SILENT_S => (Some(true), "up".to_owned()),
        Some(silent_s) => (Some(false), format!("silent for {silent_s} s")),
    }
}

/// For how many seconds a replica is silent; none if the leader of the control group hears it, or does not say.
fn silent_s(member: &GroupMemberView) -> Option<u64> {
    member.silent.map(|silent| Duration::from(silent).as_secs()).filter(|seconds| *seconds >= REPLICA_SILENT_S)
}

/// A replica's part in the control group, how far it has applied the log, and what keeps it from following, in words.
pub(super) fn standing(member: &GroupMemberView) -> String {
    let GroupMemberView { role, applied_index, lag, .. } = member;
    let told = format!("{}, applied {applied_index}, ", role.label());
    let entries = if *lag == 1 { "entry" } else { "entries" };
    match (silent_s(member), member.stuck) {
        (Some(silent_s), _) => format!("{told}lag {lag}, silent for {silent_s} s"),
        (None, Some(stuck)) => {
            format!("{told}stuck: behind by {lag} {entries} for {} s", Duration::from(stuck).as_secs())
        }
        (None, None) => format!("{told}lag {lag}"),
    }
}

pub(crate) fn members(view: &View) -> Shown {
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
        let (level, stuck) = (member.and_then(|m| m.level), member.and_then(|m| m.stuck));
        let (group, applied, lag) =
            (member.map(|m| m.role.label()), member.map(|m| m.applied_index), member.map(|m| m.lag));
        let mut note = match member {
            Some(m) => format!("{}; ", standing(m)),
            None if control_leader => "leads the control group; ".to_owned(),
            None => String::new(),
        };
        note.push_str(&match leads {
            1 => "leads 1 sub-cluster".to_owned(),
            leads => format!("leads {leads} sub-clusters"),
        });
        let shown = json!({ "role": "scheduler", "id": id.to_string(), "name": "", "addr": addr, "up": is_up,
            "duty": duty.label(), "group": group, "applied_index": applied, "lag": lag, "leads": leads,
            "silent_s": member.and_then(silent_s), "stuck_s": stuck.map(|stuck| Duration::from(stuck).as_secs_f64()),
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
    use symphony_protocol::view::{FleetAdviceView, GroupRole, NodeView};
    use symphony_types::{BackendId, BootId, NodeId, Token};

    use super::*;

    const SUBCLUSTER: SubclusterId = SubclusterId::new(1);

    /// A sub-cluster with three GPUs, led by the first of two schedulers.
    fn view() -> View {
        let gpus = (1..=3).map(|id| GpuView {
            id: GpuId::new(id),
            kind: "a100".into(),
            memory_bytes: 0,
            binding: Token::default(),
        });
        let backend = BackendView { up: true, subcluster: SUBCLUSTER, gpus: gpus.collect(), ..BackendView::default() };
        let leader = Some((NodeId::new(1), BootId::new(1)));
        let subcluster = SubclusterView { name: "default".into(), leader, ..SubclusterView::default() };
        View {
            nodes: [1, 2].map(|id| (NodeId::new(id), NodeView { up: true, ..NodeView::default() })).into(),
            subclusters: [(SUBCLUSTER, subcluster)].into(),
            backends: [(BackendId::new(1), backend)].into(),
            ..View::default()
        }
    }

    #[test]
    fn a_frontend_that_stays_silent_is_no_change() {
        let silent = |millis| {
            let mut view = crate::top::scene::view();
            view.frontends.values_mut().for_each(|frontend| frontend.silent = Some(Nanos::from_millis(millis)));
            Page::from(members(&without_ages(view)))
        };
        assert_eq!(silent(100), silent(1200), "up");
        assert_eq!(silent(7000), silent(60_000), "silent");
        assert_ne!(silent(100), silent(7000));
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
            let (_, rows, json) = members(&view);
            let note = rows[1][7].strip_suffix("; leads 0 sub-clusters").unwrap().to_owned();
            (note, json[1]["silent_s"].clone(), json[1]["stuck_s"].clone())
        };
        let nothing = Value::Null;
        let plain = ("voter, applied 39, lag 4".to_owned(), nothing.clone(), nothing.clone());
        assert_eq!(shown(member(4, None, None)), plain, "an older leader does not say");
        assert_eq!(shown(member(4, Some(1_900), None)), plain, "heartbeats come many times a second");
        let silent = ("voter, applied 39, lag 4, silent for 12 s".to_owned(), json!(12), nothing.clone());
        assert_eq!(shown(member(4, Some(12_700), None)), silent);
        let stuck =
            |words: &str| (format!("voter, applied 39, stuck: behind by {words}"), nothing.clone(), json!(12.5));
        assert_eq!(shown(member(412, Some(3), Some(12_500))), stuck("412 entries for 12 s"));
        assert_eq!(shown(member(1, Some(3), Some(12_500))), stuck("1 entry for 12 s"));

        let compared = |silent, stuck| {
            let mut view = view();
            view.group.insert(NodeId::new(2), member(4, silent, stuck));
            Page::from(members(&without_ages(view)))
        };
        assert_eq!(compared(Some(3), None), compared(Some(1_200), None), "heard");
        assert_eq!(compared(Some(5_000), None), compared(Some(9_000), None), "silent");
        assert_eq!(compared(Some(3), Some(3_000)), compared(Some(4), Some(9_000)), "stuck");
        assert_ne!(compared(Some(3), None), compared(Some(5_000), None));
        assert_ne!(compared(Some(3), None), compared(Some(3), Some(3_000)));
    }

    #[test]
    fn one_sub_cluster_is_no_plural() {
        let rows = members(&view()).1;
        let notes: Vec<_> = rows.iter().filter(|row| row[0] == "scheduler").map(|row| row[7].as_str()).collect();
        assert_eq!(notes, ["leads 1 sub-cluster", "leads 0 sub-clusters"]);
    }

    fn advised(reason: &str) -> AdviceView {
        AdviceView {
            reason: reason.to_owned(),
            bad_rate: 0.0,
            idle_fraction: 0.0,
            busy_gpus: 0.0,
            demand_gpus: None,
            kinds: Vec::new(),
            slow: Vec::new(),
            drifts: Vec::new(),
            fleet: None,
        }
    }

    #[test]
    fn the_demand_is_shown_beside_what_idles() {
        let shown = |busy_gpus, demand_gpus, slow| {
            let mut view = view();
            let advice = AdviceView { busy_gpus, demand_gpus, slow, ..advised("enough") };
            view.subclusters.get_mut(&SUBCLUSTER).unwrap().advice = Some(advice);
            let (header, rows, json) = subclusters(&view);
            let of = |name: &str| rows[0][header.iter().position(|head| *head == name).unwrap()].clone();
            let advice = json[0]["advice"].clone();
            (of("IDLE GPUS"), of("DEMAND"), advice["busy_gpus"].clone(), advice["demand_gpus"].clone())
        };
        // Batches that start early keep two busy; deferred ones would keep one busy for less than half of the time.
        let (idle, demand, busy_gpus, demand_gpus) = shown(2.25, Some(0.4), Vec::new());
        assert_eq!((idle.as_str(), demand.as_str()), ("0.8 of 3", "0.4 of 3"));
        assert_eq!((busy_gpus, demand_gpus), (json!(2.25), json!(0.4)));
        let aside = SlowGpuView { gpu: GpuId::new(3), slowdown: 2.0, failed: 0, quarantined_ms: Some(900) };
        let (idle, demand, _, demand_gpus) = shown(1.5, None, vec![aside]);
        assert_eq!((idle.as_str(), demand.as_str()), ("0.5 of 2", "-"), "it serves nobody");
        assert_eq!(demand_gpus, Value::Null, "a lead that does not measure it");
        let rows = subclusters(&view()).1;
        assert_eq!(rows[0][5..], ["", "", "", "auto"], "nobody has reported");
    }

    #[test]
    fn a_policy_that_failed_is_shown_with_what_it_did_and_what_decides_now() {
        let shown = |policy| {
            let mut view = view();
            view.subclusters.get_mut(&SUBCLUSTER).unwrap().policy = policy;
            let (_, rows, json) = subclusters(&view);
            (rows[0][8].clone(), json[0]["policy"].clone(), json[0]["policy_failed"].clone())
        };
        let named = |failed: Option<&str>| PolicyView { text: "nexus".into(), failed: failed.map(Into::into) };
        assert_eq!(shown(None), ("auto".into(), Value::Null, Value::Null));
        assert_eq!(shown(Some(named(None))), ("nexus".into(), json!("nexus"), Value::Null));
        let failed = shown(Some(named(Some("panicked on n1"))));
        assert_eq!(failed, ("auto (nexus panicked on n1)".into(), json!("nexus"), json!("panicked on n1")));
    }

    #[test]
    fn gpus_on_order_are_told_from_those_that_are_there() {
        let priced = |target, release: &[u32], reason: &str, price_per_hour, fleet| {
            let release = release.iter().map(|&id| GpuId::new(id)).collect();
            let kinds = vec![KindAdviceView { kind: "a100".into(), target, release, price_per_hour }];
            let advice = AdviceView { kinds, fleet, ..advised(reason) };
            let mut view = view();
            let subcluster = view.subclusters.get_mut(&SUBCLUSTER).unwrap();
            subcluster.advice = Some(advice);
            let subcluster = subcluster.clone();
            super::advice(&view, SUBCLUSTER, &subcluster)
        };
        let shown = |target, release: &[u32], reason: &str| priced(target, release, reason, None, None);
        assert_eq!(shown(4, &[], "enough"), "4 of kind a100 (3 there, 1 on order): enough");
        assert_eq!(shown(3, &[], "enough"), "3 of kind a100 (3 there): enough");
        assert_eq!(shown(2, &[3], "idle"), "2 of kind a100 (3 there, without g3): idle");
        let fleet = FleetAdviceView { budget_per_hour: 9.0, chosen: None, refused: "expected x".into() };
        let words = "3 of kind a100 at 2.5 (3 there): enough; no fleet is chosen: expected x";
        assert_eq!(priced(3, &[], "enough", Some(2.5), Some(fleet)), words);
    }
}
