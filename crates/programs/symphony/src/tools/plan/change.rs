//! Moves requested by operators, and approval of waiting plans.

use std::sync::Arc;
use std::time::Duration;

use symphony_protocol::control as pb;
use symphony_protocol::epoch_plan_view::{EpochPlanView, MoveProgressView, PlanStatus};
use symphony_protocol::view::View;
use symphony_transport::{AGREE_WITHIN, ControlClient, ControlError};
use symphony_types::SubclusterId;

use super::show;
use crate::cli::{FEDERATION_OF_UP, FederationArgs, PlanMoveArgs, PlanNowArgs, PlanReviewArgs};
use crate::exit::bad_input;
use crate::inspect::subcluster_name;
use crate::tools::federation;
use crate::tools::operation::not_done;

/// The timeout of the search for a plan and its confirmation.
const SOLVE_WITHIN: Duration = Duration::from_secs(30);
/// The longest period between checks of the moves' progress.
const POLL_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn move_to(args: &PlanMoveArgs) -> anyhow::Result<()> {
    if let Some(cluster) = &args.to_cluster {
        let standard = FederationArgs { federation: Some(FEDERATION_OF_UP.to_owned()) };
        let named = if args.federation.federation.is_some() { &args.federation } else { &standard };
        let federation = named.client(&args.cluster)?.ok_or_else(|| bad_input("--to-cluster needs a federation"))?;
        return federation::move_to(&federation, cluster, args).await;
    }
    let (control, operation) = (args.cluster.control()?, args.operation.id());
    let view = control.get(true, AGREE_WITHIN).await?;
    let moves = wanted(&view, args).map_err(bad_input)?;
    if moves.is_empty() {
        println!("everything is in {} already", args.to.as_deref().unwrap_or_default());
        return Ok(());
    }
    let wanted = moves.len();
    let request = pb::ProposePlanRequest {
        epoch: 0,
        cause: "an operator asked for it".into(),
        summary: String::new(),
        moves,
        adopt: !args.propose,
        operation_id: operation.to_string(),
    };
    let call = |mut client: pb::control_client::ControlClient<_>| {
        let request = request.clone();
        async move { client.propose_plan(request).await }
    };
    let plan = control.call(AGREE_WITHIN, call).await.map_err(|error| not_done(operation, error))?.plan;
    if args.propose {
        println!("plan {plan} waits for approval: `symphony plan approve {plan}`");
        return Ok(());
    }
    if args.wait_s == 0 {
        println!("plan {plan} runs; see `symphony plan show {plan}`");
        return Ok(());
    }
    eprintln!("plan {plan} runs");
    follow(&control, (plan, wanted), Duration::from_secs(args.wait_s)).await
}

pub(super) async fn review(args: &PlanReviewArgs, approve: bool) -> anyhow::Result<()> {
    let (control, operation, plan) = (args.cluster.control()?, args.operation.id(), args.plan);
    let call = |mut client: pb::control_client::ControlClient<_>| {
        let request = pb::ReviewPlanRequest { plan, approve, operation_id: operation.to_string() };
        async move { client.review_plan(request).await }
    };
    control.call(AGREE_WITHIN, call).await.map_err(|error| not_done(operation, error))?;
    println!("plan {plan} {}", if approve { "runs" } else { "is dropped" });
    Ok(())
}

pub(super) async fn now(args: &PlanNowArgs) -> anyhow::Result<()> {
    if let Some(federation) = args.federation.client(&args.cluster)? {
        return federation::balance(&federation, args).await;
    }
    let (control, operation, adopt) = (args.cluster.control()?, args.operation.id(), args.adopt);
    let call = |mut client: pb::control_client::ControlClient<_>| {
        let request = pb::PlanEpochRequest { adopt, operation_id: operation.to_string(), actor: String::new() };
        async move { client.plan_epoch(request).await }
    };
    let what = match control.call(SOLVE_WITHIN, call).await {
        Ok(reply) => reply.what,
        Err(ControlError::Refused(status)) => anyhow::bail!("no plan: {}", status.message()),
        Err(error) => return Err(error.into()),
    };
    println!("{what}");
    Ok(())
}

/// The requested moves, without models and backends that are at the target already.
fn wanted(view: &View, args: &PlanMoveArgs) -> Result<Vec<pb::WantedMove>, String> {
    let named = view.subclusters.iter().find(|(_, s)| Some(&s.name) == args.to.as_ref()).map(|(&id, _)| id);
    let to = named.ok_or_else(|| {
        let known: Vec<_> = view.subclusters.values().map(|s| s.name.as_str()).collect();
        format!(
            "--to: no sub-cluster is named `{}`; there are {}",
            args.to.as_deref().unwrap_or_default(),
            known.join(", ")
        )
    })?;
    let wanted = |what, from: SubclusterId| pb::WantedMove { what: Some(what), from: from.get(), to: to.get() };
    let mut moves = Vec::new();
    for name in &args.models {
        let (id, model) = view.model_named(name).ok_or_else(|| format!("--model: no model is named `{name}`"))?;
        if model.subcluster != to {
            moves.push(wanted(pb::wanted_move::What::Model(id.get()), model.subcluster));
        }
    }
    for name in &args.backends {
        let found = view.backends.iter().find(|(_, backend)| backend.name == *name);
        let (id, backend) = found.ok_or_else(|| format!("--backend: no backend is named `{name}`"))?;
        if backend.subcluster != to {
            moves.push(wanted(pb::wanted_move::What::Backend(id.get()), backend.subcluster));
        }
    }
    Ok(moves)
}

/// Waits until this many moves have ended.
async fn follow(control: &ControlClient, (id, moves): (u64, usize), within: Duration) -> anyhow::Result<()> {
    let mut news = control.watch(&format!("plan {id}"));
    // Possibly no answer came before the timeout; moves of unknown state count as not ended.
    let mut left = moves;
    let ended = async {
        loop {
            let _ = Arc::clone(&news.borrow_and_update());
            let view = control.get(true, AGREE_WITHIN).await?;
            let plan = view.plans.iter().find(|plan| plan.id == id).cloned();
            let plan = plan.ok_or_else(|| anyhow::anyhow!("plan {id} is forgotten: many others came after it"))?;
            if matches!(plan.status, PlanStatus::Done | PlanStatus::Dropped) {
                return anyhow::Ok((view, plan));
            }
            left = plan.moves.iter().filter(|m| !is_over(&m.progress)).count();
            let _ = tokio::time::timeout(POLL_EVERY, news.changed()).await;
        }
    };
    let Ok(ended) = tokio::time::timeout(within, ended).await else {
        anyhow::bail!(
            "{left} of {moves} moves are not over after {} s; they go on, see `symphony plan show {id}`",
            within.as_secs()
        );
    };
    let (view, plan) = ended?;
    report(&view, &plan)
}

fn report(view: &View, plan: &EpochPlanView) -> anyhow::Result<()> {
    let mut given_up = 0;
    for planned in &plan.moves {
        let (what, to) = (show::what(view, planned.what), subcluster_name(view, planned.to));
        match &planned.progress {
            MoveProgressView::GivenUp(reason) => {
                given_up += 1;
                eprintln!("{what} was not moved: {reason}");
            }
            _ => println!("{what} is in {to}"),
        }
    }
    anyhow::ensure!(given_up == 0, "{given_up} of {} moves were given up", plan.moves.len());
    Ok(())
}

const fn is_over(progress: &MoveProgressView) -> bool {
    matches!(progress, MoveProgressView::Done(_) | MoveProgressView::GivenUp(_))
}
