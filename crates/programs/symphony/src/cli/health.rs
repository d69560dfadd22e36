//! `symphony health`.

use clap::Args;
use symphony_config::Role;

use super::NodeArgs;

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// The role of the process: scheduler, frontend, backend or federation.
    #[arg(value_parser = role)]
    pub(crate) role: Role,
    /// Only ask whether it is alive: whether it serves its metrics port.
    #[arg(long)]
    pub(crate) live: bool,
    /// The configuration of the process: it says where its metrics port is.
    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

fn role(text: &str) -> Result<Role, String> {
    let roles = [Role::Scheduler, Role::Frontend, Role::Backend, Role::Federation];
    let found = roles.into_iter().find(|role| role.label() == text);
    found.ok_or_else(|| "expected scheduler, frontend, backend or federation".to_owned())
}
