//! The text of policies: a name, or a TOML table of the name and keys of that policy. Unknown keys are errors.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Value;

use crate::choices::ModelPolicyName;
use crate::error::PolicyError;

/// The longest text of a policy in bytes: three times the longest formatted one.
pub const POLICY_TEXT_BYTES_MAX: usize = 512;

/// A policy as written, not validated yet.
#[derive(Debug)]
pub enum PolicyText {
    /// The name alone.
    Name(String),
    /// The name, and options that differ from its defaults.
    Table(Box<PolicyTable>),
}

impl Default for PolicyText {
    fn default() -> Self {
        Self::Name(ModelPolicyName::default().label().to_owned())
    }
}

/// Implemented by hand: the error of an untagged enum would not name the invalid key.
impl<'de> Deserialize<'de> for PolicyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;
        impl<'de> Visitor<'de> for NameOrTable {
            type Value = PolicyText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a policy name in quotes, or a table with a name and keys of that policy")
            }

            fn visit_str<E>(self, name: &str) -> Result<PolicyText, E> {
                Ok(PolicyText::Name(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PolicyText, A::Error> {
                PolicyTable::deserialize(MapAccessDeserializer::new(map))
                    .map(|table| PolicyText::Table(Box::new(table)))
            }
        }
        deserializer.deserialize_any(NameOrTable)
    }
}

/// Every key of every policy.
#[derive(Debug, Default, Deserialize)]
pub struct PolicyTable {
    pub(crate) name: String,
    pub(crate) trigger: Option<TriggerText>,
    pub(crate) drop: Option<DropText>,
    pub(crate) ready_order: Option<String>,
    pub(crate) gpu_choice: Option<String>,
    pub(crate) shed: Option<String>,
    pub(crate) share: Option<f64>,
    pub(crate) commit_ms: Option<f64>,
    pub(crate) early_ms: Option<f64>,
    pub(crate) frontends: Option<u32>,
    pub(crate) preempt_factor: Option<f64>,
    pub(crate) threshold: Option<u32>,
    pub(crate) learn: Option<bool>,
    /// Further keys: options of a policy that the program added, otherwise an error.
    #[serde(flatten)]
    pub(crate) unknown: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a drop rule in quotes, or { window = share }")]
pub(crate) enum DropText {
    Name(String),
    Window(WindowTable),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WindowTable {
    pub(crate) window: f64,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a trigger name in quotes, or { timeout_ms = x }")]
pub(crate) enum TriggerText {
    Name(String),
    Timeout(TimeoutTable),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimeoutTable {
    pub(crate) timeout_ms: f64,
}

/// A bare name needs no quotes; a text that begins like a TOML string or table is parsed as TOML.
impl FromStr for PolicyText {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let text = text.trim();
        if text.len() > POLICY_TEXT_BYTES_MAX {
            return Err(PolicyError::Text(format!("{} bytes; at most {POLICY_TEXT_BYTES_MAX}", text.len())));
        }
        // A line break could inject further keys.
        if text.contains(['\n', '\r']) {
            return Err(PolicyError::Text("it has a line break".to_owned()));
        }
        if !text.starts_with(['{', '"', '\'']) {
            return Ok(Self::Name(text.to_owned()));
        }
        let read = format!("policy = {text}").parse::<toml::Table>();
        let value = read.map_err(|error| PolicyError::Text(error.message().to_owned()))?.remove("policy");
        let value = value.unwrap_or(Value::Boolean(false));
        value.try_into().map_err(|error: toml::de::Error| PolicyError::Text(error.message().to_owned()))
    }
}
