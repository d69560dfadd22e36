//! Scenarios of experiments: a few settings, turned into TOML and parsed like any other scenario.

use std::fmt::Write as _;

use anyhow::Context as _;
use symphony_workload::Scenario;

use crate::data::ZooRow;
use crate::system::policies;

/// A model, or several equal ones.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Models {
    pub(crate) name: String,
    pub(crate) count: u32,
    pub(crate) alpha_ms: f64,
    pub(crate) beta_ms: f64,
    pub(crate) slo_ms: f64,
    /// Further keys, as TOML.
    pub(crate) more: String,
}

impl Models {
    /// One model of the zoo with the SLO of its table.
    pub(crate) fn of(row: &ZooRow) -> Self {
        let ZooRow { name, alpha_ms, beta_ms, slo_ms, .. } = row.clone();
        Self { name, count: 1, alpha_ms, beta_ms, slo_ms, more: String::new() }
    }

    /// One model with ℓ(b) = α·b + β and an SLO of 100 ms.
    pub(crate) fn line(name: &str, alpha_ms: f64, beta_ms: f64) -> Self {
        Self { name: name.to_owned(), count: 1, alpha_ms, beta_ms, slo_ms: 100.0, more: String::new() }
    }

    /// Models like the ResNet50 of the Symphony paper, Table 4: what sections 5.2 to 5.5 use.
    pub(crate) fn resnet50_like(count: u32, slo_ms: f64) -> Self {
        Self { count, slo_ms, ..Self::line("resnet50", 1.053, 5.072) }
    }
}

/// Delays of the network in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Network {
    pub(crate) ctrl_us: f64,
    pub(crate) data_us_per_item: f64,
    pub(crate) reply_us: f64,
}

/// One scenario.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setup {
    pub(crate) name: String,
    /// As TOML.
    pub(crate) policy: String,
    pub(crate) gpus: u32,
    pub(crate) models: Vec<Models>,
    /// As TOML.
    pub(crate) arrival: String,
    /// As TOML.
    pub(crate) popularity: String,
    pub(crate) network: Network,
    pub(crate) duration_s: f64,
    pub(crate) seeds: Vec<u64>,
    /// The text of the trace, for `arrival = { trace_csv = "trace" }`.
    pub(crate) trace: String,
    /// Further keys of the GPUs, as TOML.
    pub(crate) more_of_gpus: String,
    /// Further tables, as TOML.
    pub(crate) more: String,
}

impl Setup {
    /// The scenario's text.
    pub(crate) fn to_toml(&self) -> String {
        let mut text = String::new();
        let Self { name, policy, gpus, arrival, popularity, duration_s, seeds, more_of_gpus, more, .. } = self;
        let Network { ctrl_us, data_us_per_item, reply_us } = self.network;
        // Writing into a string cannot fail.
        let _ = write!(
            text,
            "name = \"{name}\"\npolicy = {policy}\nduration_s = {duration_s:?}\nwarmup_s = 2\nseeds = {seeds:?}\n\
             [network]\nctrl_us = {ctrl_us:?}\ndata_us_per_item = {data_us_per_item:?}\nreply_us = {reply_us:?}\n\
             [[gpu]]\nkind = \"emulated\"\ncount = {gpus}\n{more_of_gpus}"
        );
        for Models { name, count, alpha_ms, beta_ms, slo_ms, more } in &self.models {
            let count = if *count > 1 { format!("count = {count}\n") } else { String::new() };
            let _ = write!(
                text,
                "[[model]]\nname = \"{name}\"\n{count}alpha_ms = {alpha_ms:?}\nbeta_ms = {beta_ms:?}\nslo_ms = {slo_ms:?}\n{more}"
            );
        }
        let rate = if self.trace.is_empty() { "rate_rps = 1000.0\n" } else { "" };
        let _ = write!(text, "[workload]\n{rate}arrival = {arrival}\npopularity = {popularity}\n{more}");
        text
    }

    /// The checked scenario.
    pub(crate) fn scenario(&self) -> anyhow::Result<Scenario> {
        let trace = |_: &str| Ok(self.trace.clone());
        Scenario::parse_among(&self.name, &self.to_toml(), &[], &trace, &policies())
            .context("a scenario of an experiment")
    }

    /// This setup with another policy.
    pub(crate) fn with_policy(&self, policy: &str) -> Self {
        Self { policy: policy.to_owned(), ..self.clone() }
    }
}
