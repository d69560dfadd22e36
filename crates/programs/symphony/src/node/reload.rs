//! SIGHUP: the configuration is read again. What can change while the process runs changes; the rest is named.

use anyhow::Context as _;
use symphony_config::{NodeConfig, Role};
use symphony_telemetry::LogFilter;
use tokio::signal::unix::{SignalKind, signal};
use toml::{Table, Value};

use super::{load, service_manager};
use crate::cli::NodeArgs;

/// The key whose change takes effect at once. Certificates are not among the keys: their files are watched.
const LOG_LEVEL: &str = "log.level";

/// Listens for SIGHUP as long as the process runs. The signal never ends it, also while it starts.
pub(super) fn on_hangup(args: NodeArgs, role: Role, config: NodeConfig, filter: LogFilter) -> anyhow::Result<()> {
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    tokio::spawn(async move {
        let mut running = config;
        while hangup.recv().await.is_some() {
            service_manager::reloading();
            let report = reload(&args, role, &mut running, &filter);
            service_manager::reloaded(&report);
        }
    });
    Ok(())
}

/// One reading; returns the result, in a line.
fn reload(args: &NodeArgs, role: Role, running: &mut NodeConfig, filter: &LogFilter) -> String {
    let new = match load(args, role) {
        Ok(new) => new,
        Err(error) => {
            tracing::error!(%error, "the configuration was not reloaded: everything stays as it was");
            return "the configuration was not reloaded: it is wrong".to_owned();
        }
    };
    let (applied, waiting): (Vec<_>, Vec<_>) = changed(running, &new).into_iter().partition(|key| key == LOG_LEVEL);
    if !applied.is_empty() {
        if let Err(error) = filter.change(&new.log.level) {
            tracing::error!(%error, "the configuration was not reloaded: everything stays as it was");
            return "the configuration was not reloaded: log.level is wrong".to_owned();
        }
        running.log.level.clone_from(&new.log.level);
    }
    let (applied, waiting) = (applied.join(", "), waiting.join(", "));
    match waiting.as_str() {
        "" => tracing::info!(applied, "configuration reloaded"),
        _ => tracing::warn!(applied, needs_restart = waiting, "configuration reloaded; some changes need a restart"),
    }
    match (applied.as_str(), waiting.as_str()) {
        ("", "") => "the configuration was reloaded: nothing has changed".to_owned(),
        (applied, "") => format!("the configuration was reloaded: {applied}"),
        (_, waiting) => format!("the configuration was reloaded; a restart is needed for {waiting}"),
    }
}

/// The keys (`section.key`) whose values differ. Lists are compared as a whole.
fn changed(old: &NodeConfig, new: &NodeConfig) -> Vec<String> {
    let table = |config: &NodeConfig| Table::try_from(config).unwrap_or_default();
    let mut keys = Vec::new();
    differences(&Value::Table(table(old)), &Value::Table(table(new)), "", &mut keys);
    keys
}

fn differences(old: &Value, new: &Value, key: &str, keys: &mut Vec<String>) {
    let (Value::Table(before), Value::Table(now)) = (old, new) else {
        if old != new {
            keys.push(key.to_owned());
        }
        return;
    };
    let mut names: Vec<_> = before.keys().chain(now.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        match (before.get(name), now.get(name)) {
            (Some(old), Some(new)) => differences(old, new, &key, keys),
            _ => keys.push(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_are_named_and_no_others() {
        let config = |overrides: &[&str]| {
            let file = include_str!("../../../../../deploy/config/dev.toml");
            let overrides: Vec<_> = overrides.iter().map(|&set| set.to_owned()).collect();
            let file = Some((std::path::Path::new("dev.toml"), file));
            NodeConfig::from_layers(Role::Up, file, [], &overrides).unwrap()
        };
        assert_eq!(changed(&config(&[]), &config(&[])), Vec::<String>::new());
        let new = config(&["log.level=debug", "scheduler.delays.reply_us=77", "backend.journal_file=/tmp/journal"]);
        let keys = changed(&config(&[]), &new);
        assert_eq!(keys, ["backend.journal_file", "log.level", "scheduler.delays.reply_us"]);
    }
}
