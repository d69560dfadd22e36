//! The configuration of one process.

use std::fmt;
use std::io::Read as _;
use std::path::Path;

use toml::{Table, Value};

use crate::layers::{self, Origin};
use crate::{
    BackendConfig, ClusterConfig, Error, FederationConfig, FramesConfig, FrontendConfig, LogConfig, NetworkConfig,
    Problem, SchedulerConfig, SecurityConfig, TelemetryConfig, validate,
};

/// What a configuration is used for: which sections must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `symphony scheduler`.
    Scheduler,
    /// `symphony frontend`.
    Frontend,
    /// `symphony backend`.
    Backend,
    /// `symphony federation`.
    Federation,
    /// `symphony up`: all of them on one machine.
    Up,
}

impl Role {
    /// The subcommand.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Frontend => "frontend",
            Self::Backend => "backend",
            Self::Federation => "federation",
            Self::Up => "up",
        }
    }

    /// The sections it cannot do without, besides those that every role has.
    #[must_use]
    pub const fn sections(self) -> &'static [&'static str] {
        match self {
            Self::Scheduler => &["scheduler"],
            Self::Frontend => &["frontend"],
            Self::Backend => &["backend"],
            Self::Federation => &["federation"],
            Self::Up => &["scheduler", "frontend", "backend"],
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// The configuration of one process.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// The cluster it belongs to.
    pub cluster: ClusterConfig,
    /// As a scheduler replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerConfig>,
    /// As a frontend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontend: Option<FrontendConfig>,
    /// As a backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendConfig>,
    /// As a part of a federation: a replica of its top-level group, or a frontend of all its clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub federation: Option<FederationConfig>,
    /// How the others are reached.
    pub network: NetworkConfig,
    /// What carries frames between this process and others.
    pub frames: FramesConfig,
    /// Its log.
    pub log: LogConfig,
    /// Traces of requests.
    pub telemetry: TelemetryConfig,
    /// Who may talk to it.
    pub security: SecurityConfig,
}

impl NodeConfig {
    /// Reads `file` if there is one, lays `env` and then `overrides` (`section.key=value`) over it, and validates.
    ///
    /// `env` is usually `std::env::vars()`; other variables than `SYMPHONY__…` are passed over.
    ///
    /// # Errors
    /// If the file cannot be read, a layer has an unknown key or a wrong type, or the whole cannot work for `role`.
    pub fn load(
        role: Role,
        file: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
        overrides: &[String],
    ) -> Result<Self, Error> {
        let text = file.map(read).transpose()?;
        Self::from_layers(role, file.zip(text.as_deref()), env, overrides)
    }

    /// Like [`NodeConfig::load`], with the file's text given; its path is only used in messages.
    ///
    /// # Errors
    /// If a layer has an unknown key or a wrong type, or the whole cannot work for `role`.
    pub fn from_layers(
        role: Role,
        file: Option<(&Path, &str)>,
        env: impl IntoIterator<Item = (String, String)>,
        overrides: &[String],
    ) -> Result<Self, Error> {
        let origin = file.map_or(Origin::Defaults, |(path, _)| Origin::File(path.to_owned()));
        let mut given = match file {
            Some((_, text)) => layers::from_text(&origin, text)?,
            None => Table::new(),
        };
        layers::lay_over(&mut given, layers::from_env(env)?);
        layers::lay_over(&mut given, layers::from_overrides(overrides)?);

        // A role's own section only exists if somebody speaks of it or the role needs it; the others always do.
        let optional = ["scheduler", "frontend", "backend", "federation"];
        let mut whole = layers::defaults();
        whole.retain(|section, _| {
            !optional.contains(&section) || given.contains_key(section) || role.sections().contains(&section)
        });
        layers::lay_over(&mut whole, given);

        // What the layers could not see: members of lists, words out of a closed set, ranges of numbers.
        let config: Self = Value::Table(whole).try_into().map_err(|e: toml::de::Error| {
            let text = e.to_string();
            let (message, key) = text.trim_end().split_once("\nin `").unwrap_or((text.trim_end(), "configuration`"));
            let problem = Problem::new(key.trim_end_matches('`'), message.replace('\n', "; "));
            Error::Key { origin: origin.clone(), problem }
        })?;
        let problems = config.validate(role);
        if problems.is_empty() { Ok(config) } else { Err(Error::Invalid { origin, role, problems }) }
    }

    /// Everything about this configuration that cannot work for `role`; empty if it can.
    #[must_use]
    pub fn validate(&self, role: Role) -> Vec<Problem> {
        validate::problems(self, role)
    }

    /// The whole configuration as TOML, defaults included: what `--dump-config` prints. Reading it gives `self` again.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("strings, numbers, lists and tables are always TOML")
    }
}

fn read(path: &Path) -> Result<String, Error> {
    let fail = |source| Error::Read { path: path.to_owned(), source };
    let mut text = String::new();
    // One byte more than allowed tells a file that is too long from one that just fits, and bounds what is read.
    let file = std::fs::File::open(path).map_err(fail)?;
    file.take(layers::CONFIG_BYTES_MAX + 1).read_to_string(&mut text).map_err(fail)?;
    Ok(text)
}
