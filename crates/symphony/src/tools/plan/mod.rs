//! `symphony plan`: who serves what, and how that changes.

mod change;
mod parts;
mod show;

pub(crate) use show::epochs;

use super::partition;
use crate::cli::PlanCommand;

pub(crate) async fn run(command: &PlanCommand) -> anyhow::Result<()> {
    match command {
        PlanCommand::Partition(args) => partition::run(args),
        PlanCommand::Move(args) => change::move_to(args).await,
        PlanCommand::Now(args) => change::now(args).await,
        PlanCommand::Approve(args) => change::judge(args, true).await,
        PlanCommand::Refuse(args) => change::judge(args, false).await,
        PlanCommand::Show(args) => show::plan(args).await,
        PlanCommand::Diff(args) => show::diff(args).await,
    }
}
