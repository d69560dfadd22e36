//! `symphony plan`: which sub-cluster serves which models, and changes of that.

mod change;
mod federated;
#[cfg(feature = "simulation")]
mod fleet;
mod parts;
mod show;

pub(crate) use federated::epochs as epochs_of_federation;
pub(crate) use show::epochs;

use symphony_scheduler::PolicyRegistry;

use super::{pack, partition, split};
use crate::cli::PlanCommand;

pub(crate) async fn run(command: &PlanCommand, policies: &PolicyRegistry) -> anyhow::Result<()> {
    match command {
        PlanCommand::Partition(args) => partition::run(args),
        #[cfg(feature = "simulation")]
        PlanCommand::Fleet(args) => fleet::run(args, policies),
        #[cfg(not(feature = "simulation"))]
        PlanCommand::Fleet(_) => Err(crate::left_out::left_out("plan fleet", "simulation")),
        PlanCommand::Pack(args) => pack::run(args),
        PlanCommand::Split(args) => split::run(args),
        PlanCommand::Move(args) => change::move_to(args).await,
        PlanCommand::Now(args) => change::now(args).await,
        PlanCommand::Approve(args) => change::review(args, true).await,
        PlanCommand::Refuse(args) => change::review(args, false).await,
        PlanCommand::Show(args) if args.federation.federation.is_some() => federated::show(args).await,
        PlanCommand::Diff(args) if args.federation.federation.is_some() => federated::diff(args).await,
        PlanCommand::Show(args) => show::plan(args).await,
        PlanCommand::Diff(args) => show::diff(args).await,
    }
}
