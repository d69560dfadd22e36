//! `symphony health`: `/health/ready` or `/health/live` of a process of this machine, as an exit code.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use symphony_config::{Address, NodeConfig, Role};

use crate::cli::HealthArgs;
use crate::exit::bad_input;

/// A process that does not answer within this time that it is alive counts as dead; health checks wait 5 s themselves.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

pub(crate) async fn run(args: &HealthArgs) -> anyhow::Result<()> {
    let config = crate::node::load(&args.node, args.role)?;
    let metrics =
        metrics(&config, args.role).ok_or_else(|| bad_input(format!("the configuration has no [{}]", args.role)))?;
    // It listens everywhere; this machine is where it is asked.
    let at =
        if metrics.is_wildcard() { Address::at(Ipv4Addr::LOCALHOST.into(), metrics.port()) } else { metrics.clone() };
    let is_secured =
        args.role == Role::Frontend && config.frontend.as_ref().is_some_and(|own| own.tls.pair().is_some());
    let scheme = if is_secured { "https" } else { "http" };
    let url = format!("{scheme}://{at}/health/{}", if args.live { "live" } else { "ready" });
    // The certificate names the host that clients dial, not this one; only health is asked.
    let client = reqwest::Client::builder().timeout(ANSWERS_WITHIN).no_proxy().danger_accept_invalid_certs(is_secured);
    let client = client.build()?;
    let answer = client.get(&url).send().await.with_context(|| format!("{url} does not answer"))?;
    let status = answer.status();
    let body = answer.text().await.unwrap_or_default();
    ensure!(status.is_success(), "{url}: {}", body.trim());
    println!("{}", body.trim());
    Ok(())
}

fn metrics(config: &NodeConfig, role: Role) -> Option<&Address> {
    match role {
        Role::Scheduler => config.scheduler.as_ref().map(|own| &own.metrics),
        Role::Frontend => config.frontend.as_ref().map(|own| &own.metrics),
        Role::Backend => config.backend.as_ref().map(|own| &own.metrics),
        Role::Federation => config.federation.as_ref().map(|own| &own.metrics),
        Role::Up => None,
    }
}
