//! `symphony get epochs --federation`, `plan show|diff --federation`: moves between clusters, in the format of a
//! cluster's plans.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use symphony_protocol::epoch_plan_view::MoveProgressView;
use symphony_protocol::federation::{FederatedMoveView, FederatedPlanView, FederationView};

use super::parts::listed;
use crate::cli::{Output, PlanShowArgs};
use crate::exit::bad_input;
use crate::inspect::{Shown, table};
use crate::tools::federation;

/// Shown for a model without a home.
const NOWHERE: &str = "(none)";

/// The plan version and the models of each cluster, then the groups of moves, newest first.
pub(crate) fn epochs(view: &FederationView) -> Shown {
    let (plan, index) = (view.plan.to_string(), view.applied_index.to_string());
    let mut rows = vec![vec![plan, index, String::new(), "in force".into(), String::new(), String::new()]];
    let homes = homes(view, &[]);
    for (name, models) in &homes {
        let (cluster, models) = (format!("cluster {name}"), listed("model", models));
        rows.push(vec![String::new(), String::new(), String::new(), cluster, models, gpus(view, name)]);
    }
    for plan in view.plans.iter().rev() {
        let (id, moves) = (plan.id.to_string(), plan.moves.len().to_string());
        let models: Vec<_> = plan.moves.iter().map(|planned| planned.model.clone()).collect();
        let (label, cause) = (plan.label().to_owned(), plan.cause.clone());
        rows.push(vec![String::new(), id, moves, label, cause, listed("model", &models)]);
    }
    let plans =
        view.plans.iter().rev().map(
            |plan| json!({ "id": plan.id, "status": plan.label(), "cause": plan.cause, "moves": plan.moves.len() }),
        );
    let plans: Vec<_> = plans.collect();
    let json = json!([{ "epoch": view.plan, "applied_index": view.applied_index, "clusters": clusters_json(&homes),
                        "plans": plans }]);
    (&["EPOCH", "LOG INDEX", "MOVES", "STATUS", "CAUSE", "SUMMARY"], rows, json)
}

fn gpus(view: &FederationView, cluster: &str) -> String {
    let kinds = view.clusters.get(cluster).into_iter().flat_map(|cluster| &cluster.kinds);
    kinds.map(|(kind, (gpus, _))| format!("{gpus} {kind}")).collect::<Vec<_>>().join(", ")
}

/// The models of each cluster after these moves; cancelled moves change nothing.
fn homes<'a>(view: &'a FederationView, moves: &'a [FederatedMoveView]) -> BTreeMap<&'a str, Vec<String>> {
    let mut homes: BTreeMap<_, Vec<_>> = view.clusters.keys().map(|name| (name.as_str(), Vec::new())).collect();
    for (name, model) in &view.models {
        let planned = kept(moves).find(|planned| planned.model == *name).map(|planned| &planned.to);
        let Some(home) = planned.or(model.home.as_ref()) else { continue };
        homes.entry(home).or_default().push(name.clone());
    }
    homes
}

fn kept(moves: &[FederatedMoveView]) -> impl Iterator<Item = &FederatedMoveView> {
    moves.iter().filter(|planned| !matches!(planned.progress, MoveProgressView::GivenUp(_)))
}

fn clusters_json(homes: &BTreeMap<&str, Vec<String>>) -> Vec<Value> {
    homes.iter().map(|(name, models)| json!({ "cluster": name, "models": models })).collect()
}

pub(super) async fn show(args: &PlanShowArgs) -> anyhow::Result<()> {
    let view = federation::fetch_view(&args.federation, &args.cluster, true).await?;
    let plan = find(&view, args.plan)?;
    let homes = homes(&view, &plan.moves);
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&show_json(plan, &homes))?),
        Output::Table => {
            println!("plan {} is {}: {}", plan.id, plan.label(), plan.cause);
            let rows: Vec<_> = plan.moves.iter().map(|planned| cells(planned).into()).collect();
            table::print(&["WHAT", "FROM", "TO", "PROGRESS", "NOTE"], &rows);
            println!("clusters, with the moves that were not given up:");
            let row = |(name, models): (&&str, &Vec<String>)| {
                vec![(*name).to_owned(), listed("model", models), gpus(&view, name)]
            };
            table::print(&["CLUSTER", "MODELS", "GPUS"], &homes.iter().map(row).collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// Subject, source, target and progress of each move, and why it was cancelled.
fn cells(planned: &FederatedMoveView) -> [String; 5] {
    let note = match &planned.progress {
        MoveProgressView::GivenUp(reason) => reason.clone(),
        MoveProgressView::UnderWay(index) | MoveProgressView::Done(index) => format!("log index {index}"),
        MoveProgressView::Waiting => String::new(),
    };
    let from = planned.from.clone().unwrap_or_else(|| NOWHERE.to_owned());
    let (what, progress) = (format!("model {}", planned.model), planned.progress.label().to_owned());
    [what, from, planned.to.clone(), progress, note]
}

fn show_json(plan: &FederatedPlanView, homes: &BTreeMap<&str, Vec<String>>) -> Value {
    let moves = plan.moves.iter().map(|planned| {
        let [what, _, to, progress, note] = cells(planned);
        json!({ "what": what, "from": planned.from, "to": to, "progress": progress, "note": note })
    });
    let moves: Vec<_> = moves.collect();
    json!({ "id": plan.id, "status": plan.label(), "cause": plan.cause, "moves": moves, "clusters": clusters_json(homes) })
}

pub(super) async fn diff(args: &PlanShowArgs) -> anyhow::Result<()> {
    let view = federation::fetch_view(&args.federation, &args.cluster, true).await?;
    let plan = find(&view, args.plan)?;
    let changes = changes(&plan.moves);
    match args.output {
        Output::Json => {
            let shown = |(name, [comes, goes]): (&&str, &[Vec<String>; 2])| json!({ "cluster": name, "comes": comes, "goes": goes });
            let shown: Vec<_> = changes.iter().map(shown).collect();
            println!("{}", serde_json::to_string_pretty(&json!({ "id": plan.id, "clusters": shown }))?);
        }
        Output::Table => {
            println!("plan {} is {}", plan.id, plan.label());
            let row = |(name, [comes, goes]): (&&str, &[Vec<String>; 2])| {
                vec![(*name).to_owned(), comes.join(", "), goes.join(", ")]
            };
            table::print(&["CLUSTER", "COMES", "GOES"], &changes.iter().map(row).collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// What each cluster gains and loses.
fn changes(moves: &[FederatedMoveView]) -> BTreeMap<&str, [Vec<String>; 2]> {
    let mut changes: BTreeMap<&str, [Vec<String>; 2]> = BTreeMap::new();
    for FederatedMoveView { model, from, to, .. } in kept(moves) {
        let what = format!("model {model}");
        if let Some(from) = from {
            changes.entry(from).or_default()[1].push(what.clone());
        }
        changes.entry(to).or_default()[0].push(what);
    }
    changes
}

fn find(view: &FederationView, wanted: Option<u64>) -> anyhow::Result<&FederatedPlanView> {
    let found = match wanted {
        None => view.plans.last(),
        Some(id) => view.plans.iter().find(|plan| plan.id == id),
    };
    found.ok_or_else(|| {
        let known: Vec<_> = view.plans.iter().map(|plan| plan.id.to_string()).collect();
        bad_input(match wanted {
            Some(id) if !known.is_empty() => format!("there is no plan {id}; there are {}", known.join(", ")),
            _ => "there is no plan yet".to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use symphony_protocol::federation::{FederatedClusterView, FederatedModelView};

    use super::*;

    fn view() -> FederationView {
        let model = |home: &str| FederatedModelView { home: Some(home.into()), ..FederatedModelView::default() };
        let cluster = |name: &str| {
            let kinds = [("a100".to_owned(), (2, 9))].into();
            (name.to_owned(), FederatedClusterView { kinds, ..FederatedClusterView::default() })
        };
        let planned = |model: &str, from: Option<&str>, progress| FederatedMoveView {
            model: model.into(),
            from: from.map(str::to_owned),
            to: "west".into(),
            progress,
        };
        let given_up = MoveProgressView::GivenUp("no memory".into());
        let moves = vec![
            planned("goes", Some("east"), MoveProgressView::UnderWay(9)),
            planned("came", None, MoveProgressView::Done(11)),
            planned("stays", Some("east"), given_up.clone()),
        ];
        let balance = FederatedPlanView { id: 9, cause: "balance".into(), moves };
        let lost = FederatedPlanView { id: 4, cause: "loss".into(), moves: vec![planned("goes", None, given_up)] };
        FederationView {
            plan: 7,
            applied_index: 12,
            clusters: [cluster("east"), cluster("west")].into(),
            models: [("goes", "east"), ("came", "west"), ("stays", "east")]
                .map(|(name, home)| (name.to_owned(), model(home)))
                .into(),
            plans: vec![lost, balance],
            ..FederationView::default()
        }
    }

    #[test]
    fn a_plan_is_shown_with_where_everything_is_after_it() {
        let view = view();
        let plan = find(&view, None).unwrap();
        let moves = json!([
            { "what": "model goes", "from": "east", "to": "west", "progress": "under way", "note": "log index 9" },
            { "what": "model came", "from": null, "to": "west", "progress": "done", "note": "log index 11" },
            { "what": "model stays", "from": "east", "to": "west", "progress": "given up", "note": "no memory" },
        ]);
        let clusters =
            json!([{ "cluster": "east", "models": ["stays"] }, { "cluster": "west", "models": ["came", "goes"] }]);
        let expected =
            json!({ "id": 9, "status": "running", "cause": "balance", "moves": moves, "clusters": clusters });
        assert_eq!(show_json(plan, &homes(&view, &plan.moves)), expected);
        assert_eq!(find(&view, Some(4)).unwrap().label(), "given up");
        let unknown = find(&view, Some(5)).unwrap_err().to_string();
        assert_eq!(unknown, "there is no plan 5; there are 4, 9");
        assert_eq!(find(&FederationView::default(), None).unwrap_err().to_string(), "there is no plan yet");
    }

    #[test]
    fn what_changes_is_told_of_the_clusters_that_it_changes() {
        let view = view();
        let west = [vec!["model goes".to_owned(), "model came".to_owned()], vec![]];
        let east = [vec![], vec!["model goes".to_owned()]];
        assert_eq!(changes(&view.plans[1].moves), [("east", east), ("west", west)].into());
        assert_eq!(changes(&view.plans[0].moves), BTreeMap::new(), "it was given up");
    }

    #[test]
    fn epochs_are_who_has_what_and_then_the_plans() {
        let (header, rows, json) = epochs(&view());
        assert!(rows.iter().all(|row| row.len() == header.len()));
        let status: Vec<_> = rows.iter().map(|row| row[3].as_str()).collect();
        assert_eq!(status, ["in force", "cluster east", "cluster west", "running", "given up"]);
        assert_eq!((rows[1][5].as_str(), rows[3][1].as_str()), ("2 a100", "9"));
        assert_eq!(json[0]["plans"][1], json!({ "id": 4, "status": "given up", "cause": "loss", "moves": 1 }));
    }
}
