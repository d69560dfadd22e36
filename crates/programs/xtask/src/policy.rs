//! The accepted exceptions and their reasons: `policy.toml`.

use anyhow::{Context as _, Result};
use serde::Deserialize;

const TEXT: &str = include_str!("../policy.toml");

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Policy {
    #[serde(default, rename = "licence")]
    pub(crate) licences: Vec<Licence>,
    #[serde(default, rename = "minimum")]
    pub(crate) minimums: Vec<Minimum>,
    #[serde(default)]
    pub(crate) accepted: Vec<Accepted>,
}

/// A licence that dependencies may have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Licence {
    pub(crate) id: String,
    pub(crate) reason: String,
}

/// The oldest acceptable version of a crate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Minimum {
    #[serde(rename = "crate")]
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) reason: String,
}

/// A known and accepted advisory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Accepted {
    pub(crate) id: String,
    #[serde(rename = "crate")]
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl Policy {
    pub(crate) fn read() -> Result<Self> {
        Self::parse(TEXT)
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("crates/programs/xtask/policy.toml")
    }

    /// Entries without a reason.
    pub(crate) fn unexplained(&self) -> Vec<String> {
        let licences = self.licences.iter().map(|l| (&l.id, &l.reason));
        let minimums = self.minimums.iter().map(|m| (&m.name, &m.reason));
        let accepted = self.accepted.iter().map(|a| (&a.id, &a.reason));
        let all = licences.chain(minimums).chain(accepted);
        all.filter(|(_, reason)| reason.trim().is_empty())
            .map(|(id, _)| format!("{id} is accepted without a reason"))
            .collect()
    }
}
