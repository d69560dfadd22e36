//! Plans as tables or JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use symphony_protocol::epoch_plan_view::{EpochPlanView, MoveCostView, MoveProgressView, MovedView, PlannedMoveView};
use symphony_protocol::view::View;
use symphony_types::SubclusterId;

use super::parts::{Part, parts};
use crate::cli::{Output, PlanShowArgs};
use crate::exit::bad_input;
use crate::inspect::{Shown, subcluster_name, table};

/// The timeout for finding a replica that answers.
const WITHIN: Duration = Duration::from_secs(5);

/// `symphony get epochs`: the epoch and the contents of each sub-cluster, then the plans, newest first.
pub(crate) fn epochs(view: &View) -> Shown {
    let (epoch, index) = (view.epoch.get().to_string(), view.applied_index.to_string());
    let mut rows = vec![vec![epoch, index, String::new(), "in force".into(), String::new(), String::new()]];
    let (mut plans, parts) = (Vec::new(), parts(view, &[]));
    for part in &parts {
        let [name, models, gpus] = part.cells();
        rows.push(vec![String::new(), String::new(), String::new(), format!("sub-cluster {name}"), models, gpus]);
    }
    for plan in view.plans.iter().rev() {
        let moves = plan.moves.len().to_string();
        let (status, cause) = (status(plan), plan.cause.clone());
        let left = left_alone(view, plan);
        let stays: Vec<_> = left.iter().map(|(model, why)| format!("; {model} stays: {why}")).collect();
        let summary = format!("{}{}", plan.summary, stays.concat());
        rows.push(vec![String::new(), plan.id.to_string(), moves, status, cause, summary]);
        plans.push(json!({ "id": plan.id, "status": plan.label(), "dropped": why_dropped(plan), "cause": plan.cause,
                           "summary": plan.summary, "moves": plan.moves.len(), "cost": cost(plan.cost),
                           "left_alone": left_alone_json(&left) }));
    }
    let parts: Vec<_> = parts.iter().map(Part::json).collect();
    let json = json!([{ "epoch": view.epoch.get(), "applied_index": view.applied_index, "subclusters": parts,
                        "plans": plans }]);
    (&["EPOCH", "LOG INDEX", "MOVES", "STATUS", "CAUSE", "SUMMARY"], rows, json)
}

pub(super) async fn plan(args: &PlanShowArgs) -> anyhow::Result<()> {
    let (view, plan) = find(args).await?;
    let shown = |planned: &PlannedMoveView| {
        let reason = match &planned.progress {
            MoveProgressView::GivenUp(reason) => reason.clone(),
            MoveProgressView::UnderWay(index) | MoveProgressView::Done(index) => format!("log index {index}"),
            MoveProgressView::Waiting => String::new(),
        };
        let (from, to) = (subcluster_name(&view, planned.from), subcluster_name(&view, planned.to));
        let [loads, seconds, beside] = cost_cells(planned.cost);
        let progress = planned.progress.label().to_owned();
        vec![what(&view, planned.what), from, to, progress, loads, seconds, beside, reason]
    };
    let rows: Vec<_> = plan.moves.iter().map(shown).collect();
    let left = left_alone(&view, &plan);
    match args.output {
        Output::Json => {
            let shown = |(row, planned): (&Vec<String>, &PlannedMoveView)| {
                json!({ "what": row[0], "from": row[1], "to": row[2], "progress": row[3], "note": row[7],
                        "cost": cost(planned.cost) })
            };
            let moves: Vec<_> = rows.iter().zip(&plan.moves).map(shown).collect();
            let parts: Vec<_> = parts(&view, &plan.moves).iter().map(Part::json).collect();
            let json = json!({ "id": plan.id, "status": plan.label(), "dropped": why_dropped(&plan), "cause": plan.cause,
                               "summary": plan.summary, "cost": cost(plan.cost), "left_alone": left_alone_json(&left),
                               "moves": moves, "subclusters": parts });
            println!("{}", serde_json::to_string_pretty(&json)?);
        }
        Output::Table => {
            println!("plan {} is {}: {} {}", plan.id, status(&plan), plan.cause, plan.summary);
            table::print(&["WHAT", "FROM", "TO", "PROGRESS", "LOADS", "TIME", "ON A GPU", "NOTE"], &rows);
            let [loads, seconds, beside] = cost_cells(plan.cost);
            println!("together {loads} are loaded, in {seconds} or more; at most {beside} more on one GPU");
            for (model, why) in left {
                println!("model {model} stays where it is: {why}");
            }
            println!("sub-clusters, with the moves that were not given up:");
            let rows: Vec<_> = parts(&view, &plan.moves).iter().map(|part| part.cells().into()).collect();
            table::print(&["SUBCLUSTER", "MODELS", "GPUS"], &rows);
        }
    }
    Ok(())
}

/// The state of a plan, and why it was dropped if so.
fn status(plan: &EpochPlanView) -> String {
    why_dropped(plan).map_or_else(|| plan.label().to_owned(), |why| format!("{}: {why}", plan.label()))
}

fn why_dropped(plan: &EpochPlanView) -> Option<&str> {
    (!plan.dropped.is_empty()).then_some(plan.dropped.as_str())
}

/// Models that the plan leaves in place, by name, and why.
fn left_alone(view: &View, plan: &EpochPlanView) -> Vec<(String, String)> {
    let name = |id| view.models.get(&id).map_or_else(|| id.to_string(), |model| model.spec.name.clone());
    plan.left_alone.iter().map(|(id, why)| (name(*id), why.clone())).collect()
}

fn left_alone_json(left: &[(String, String)]) -> Vec<Value> {
    left.iter().map(|(model, why)| json!({ "model": model, "reason": why })).collect()
}

/// The least seconds of the backend with most to load, if its speed is known. Without bytes the speed does not matter.
fn seconds(cost: MoveCostView) -> Option<f64> {
    (cost.backend_ms > 0 || cost.backend_bytes == 0).then(|| cost.backend_ms as f64 / 1000.0)
}

fn cost(cost: MoveCostView) -> Value {
    json!({ "bytes": cost.bytes, "backend_bytes": cost.backend_bytes, "gpu_bytes": cost.gpu_bytes, "seconds": seconds(cost) })
}

/// Bytes to load, time, and additional memory of a GPU.
fn cost_cells(cost: MoveCostView) -> [String; 3] {
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / f64::from(1 << 20));
    let time = seconds(cost).map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2} s"));
    [megabytes(cost.bytes), time, megabytes(cost.gpu_bytes)]
}

/// What a sub-cluster gains and loses.
#[derive(Debug, Default)]
struct Change {
    comes: Vec<String>,
    goes: Vec<String>,
}

pub(super) async fn diff(args: &PlanShowArgs) -> anyhow::Result<()> {
    let (view, plan) = find(args).await?;
    let mut changes: BTreeMap<SubclusterId, Change> = BTreeMap::new();
    for planned in plan.moves.iter().filter(|m| !matches!(m.progress, MoveProgressView::GivenUp(_))) {
        changes.entry(planned.from).or_default().goes.push(what(&view, planned.what));
        changes.entry(planned.to).or_default().comes.push(what(&view, planned.what));
    }
    match args.output {
        Output::Json => {
            let shown = |(&id, change): (&SubclusterId, &Change)| json!({ "subcluster": subcluster_name(&view, id), "comes": change.comes, "goes": change.goes });
            let shown: Vec<Value> = changes.iter().map(shown).collect();
            println!("{}", serde_json::to_string_pretty(&json!({ "id": plan.id, "subclusters": shown }))?);
        }
        Output::Table => {
            let row = |(&id, change): (&SubclusterId, &Change)| {
                vec![subcluster_name(&view, id), change.comes.join(", "), change.goes.join(", ")]
            };
            let rows: Vec<_> = changes.iter().map(row).collect();
            println!("plan {} is {}", plan.id, status(&plan));
            table::print(&["SUBCLUSTER", "COMES", "GOES"], &rows);
        }
    }
    Ok(())
}

async fn find(args: &PlanShowArgs) -> anyhow::Result<(View, EpochPlanView)> {
    let view = args.cluster.control()?.get(true, WITHIN).await?;
    let found = match args.plan {
        None => view.plans.last(),
        Some(id) => view.plans.iter().find(|plan| plan.id == id),
    };
    let plan = found.cloned().ok_or_else(|| {
        let known: Vec<_> = view.plans.iter().map(|plan| plan.id.to_string()).collect();
        bad_input(match args.plan {
            Some(id) if !known.is_empty() => format!("there is no plan {id}; there are {}", known.join(", ")),
            _ => "there is no plan yet".to_owned(),
        })
    })?;
    Ok((view, plan))
}

/// The subject of a move, for display.
pub(super) fn what(view: &View, what: MovedView) -> String {
    match what {
        MovedView::Model(id) => {
            let name = view.models.get(&id).map(|model| model.spec.name.clone());
            format!("model {}", name.unwrap_or_else(|| id.to_string()))
        }
        MovedView::Backend(id) => {
            let name = view.backends.get(&id).map(|backend| backend.name.clone());
            format!("backend {}", name.unwrap_or_else(|| id.to_string()))
        }
    }
}
