//! `symphony upgrade`: how far an upgrade has come, and its end.

use serde_json::json;
use symphony_protocol::control as pb;
use symphony_protocol::control::control_client::ControlClient;
use symphony_protocol::view::{GroupRole, View};
use symphony_transport::{AGREE_WITHIN, ControlError};
use symphony_types::Level;
use tonic::Code;

use super::operation::{not_done, query_error};
use crate::cli::{Output, UpgradeCommand, UpgradeFinishArgs, UpgradeShowArgs};
use crate::exit::bad_input;

/// Said by a replica, or for it, whose release knows no levels.
const OLDER: &str =
    "a scheduler replica that was asked runs a release that knows no levels: replace it by the new release first";

/// Why a federation's top group is not asked.
const NO_LEVEL: &str = "the replicas of a federation have no level: releases that follow each other write its state alike, and there is nothing to \
                        finish. Replace them one by one, and upgrade each cluster for itself, with --cluster and its certificates";

pub(crate) async fn run(command: &UpgradeCommand) -> anyhow::Result<()> {
    let federation = match command {
        UpgradeCommand::Show(args) => &args.federation,
        UpgradeCommand::Finish(args) => &args.federation,
    };
    if federation.federation.is_some() {
        return Err(bad_input(NO_LEVEL));
    }
    match command {
        UpgradeCommand::Show(args) => show(args).await,
        UpgradeCommand::Finish(args) => finish(args).await,
    }
}

async fn show(UpgradeShowArgs { output, cluster, .. }: &UpgradeShowArgs) -> anyhow::Result<()> {
    let view = cluster.control()?.get(true, AGREE_WITHIN).await.map_err(query_error)?;
    let (known, behind) = progress(&view);
    match output {
        Output::Json => {
            let known = known.map(Level::get);
            println!("{}", json!({ "level": view.level.get(), "known": known, "behind": behind }));
        }
        Output::Table => words(&view, known, &behind).iter().for_each(|line| println!("{line}")),
    }
    Ok(())
}

/// The newest level that the leader of the control group knows, and who does not know it.
fn progress(view: &View) -> (Option<Level>, Vec<String>) {
    let leader = view.group.values().find(|member| member.role == GroupRole::Leader);
    let known = leader.and_then(|leader| leader.level);
    (known, known.map(|known| view.behind(known)).unwrap_or_default())
}

fn words(view: &View, known: Option<Level>, behind: &[String]) -> Vec<String> {
    let level = view.level;
    let mut words = vec![format!("the cluster is at level {level}")];
    match known {
        None => words.push(OLDER.to_owned()),
        Some(known) if known <= level => words.push("no upgrade is under way".to_owned()),
        Some(known) if behind.is_empty() => {
            words.push(format!("every process knows level {known}: `symphony upgrade finish` raises it"));
        }
        Some(known) => {
            words.push(format!("level {known} is not known to every process:"));
            words.extend(behind.iter().map(|who| format!("  {who}")));
        }
    }
    words
}

async fn finish(args: &UpgradeFinishArgs) -> anyhow::Result<()> {
    let operation = args.operation.id();
    let call = |mut client: ControlClient<_>| {
        let request = pb::RaiseLevelRequest { operation_id: operation.to_string(), actor: String::new() };
        async move { client.raise_level(request).await }
    };
    let raised = args.cluster.control()?.call(AGREE_WITHIN, call).await.map_err(|error| match error {
        ControlError::Refused(status) if status.code() == Code::Unimplemented => bad_input(OLDER),
        error => not_done(operation, error),
    })?;
    let level = Level::from_message(raised.level);
    if level < Level::NEWEST {
        return Err(bad_input(format!(
            "the cluster stays at level {level}: the leader of its control group knows no higher one. Replace it by the new release first"
        )));
    }
    println!("the cluster is at level {level}: older releases can join no more");
    Ok(())
}

#[cfg(test)]
mod tests {
    use symphony_protocol::view::{GroupMemberView, NodeView};
    use symphony_types::NodeId;

    use super::*;

    fn view(levels: [Option<Level>; 2]) -> View {
        let member = |(id, level): (u64, Option<Level>)| {
            let role = if id == 1 { GroupRole::Leader } else { GroupRole::Voter };
            let control_addr = format!("n{id}:1");
            let (silent, stuck) = (None, None);
            (NodeId::new(id), GroupMemberView { control_addr, role, applied_index: 1, lag: 0, level, silent, stuck })
        };
        View {
            nodes: [1, 2].map(|id| (NodeId::new(id), NodeView { up: true, ..NodeView::default() })).into(),
            group: (1..).zip(levels).map(member).collect(),
            ..View::default()
        }
    }

    fn shown(view: &View) -> String {
        let (known, behind) = progress(view);
        words(view, known, &behind).join("\n")
    }

    #[test]
    fn an_upgrade_is_shown_from_the_first_new_replica_to_its_end() {
        let (old, new) = (Some(Level::OLDEST), Some(Level::NEWEST));
        assert!(shown(&view([None, new])).contains("knows no levels"), "{}", shown(&view([None, new])));
        assert!(shown(&view([old, new])).contains("no upgrade is under way"), "the leader sees none");
        let half = shown(&view([new, old]));
        assert!(
            half.contains("level 3 (release 0.3.0) is not known to every process")
                && half.contains("  scheduler n2 knows"),
            "{half}"
        );
        let whole = view([new, new]);
        assert!(shown(&whole).contains("symphony upgrade finish"), "{}", shown(&whole));
        assert!(shown(&View { level: Level::NEWEST, ..whole }).contains("no upgrade is under way"));
    }
}
