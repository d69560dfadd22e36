//! A fleet as a scenario, so that the simulator can find what it really answers.

use std::fmt::Write as _;

use symphony_scheduler::PolicyRegistry;
use symphony_workload::{Scenario, ScenarioError};

use crate::problem::{FleetModel, FleetProblem};

/// The time before counting begins, in seconds.
const WARMUP_S: f64 = 2.0;

/// How long a fleet is simulated, and by which policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The scenario's `policy`: a name, or a TOML table.
    pub policy: String,
    /// The counted time in seconds.
    pub duration_s: f64,
    /// One run for each.
    pub seeds: Vec<u64>,
    /// The scenario's `arrival`, as TOML.
    pub arrival: String,
    /// Further keys of the scenario, as TOML; before any table.
    pub more: String,
}

impl FleetProblem {
    /// This fleet under the problem's load. The rate is a placeholder: a search for goodput finds its own.
    ///
    /// # Errors
    /// If the trial's words are not a scenario's.
    pub fn scenario(&self, counts: &[u32], trial: &Trial) -> Result<Scenario, ScenarioError> {
        self.scenario_among(counts, trial, &PolicyRegistry::new())
    }

    /// As [`scenario`](Self::scenario), where the program adds these policies.
    ///
    /// # Errors
    /// As there.
    pub fn scenario_among(
        &self,
        counts: &[u32],
        trial: &Trial,
        policies: &PolicyRegistry,
    ) -> Result<Scenario, ScenarioError> {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let Trial { policy, duration_s, seeds, arrival, more } = trial;
        let names: Vec<String> =
            self.kinds.iter().zip(counts).map(|(kind, count)| format!("{count} {}", kind.name)).collect();
        let mut text = format!("name = {}\n", quoted(&names.join(", ")));
        // Writing into a string cannot fail.
        let _ = writeln!(text, "duration_s = {duration_s:?}\nwarmup_s = {WARMUP_S:?}\nseeds = {seeds:?}\n{more}");
        for (kind, count) in self.kinds.iter().zip(counts).filter(|(_, count)| **count > 0) {
            let (name, price) = (quoted(&kind.name), kind.price_per_hour);
            let _ = writeln!(text, "[[gpu]]\nkind = {name}\ncount = {count}\nprice_per_hour = {price:?}");
        }
        for (position, FleetModel { name, slo_ms, share, .. }) in self.models.iter().enumerate() {
            let _ = writeln!(
                text,
                "[[model]]\nname = {}\nprofile_csv = \"profile {position}\"\nslo_ms = {slo_ms:?}\nweight = {share:?}\n\
                 items = {{ csv = \"items {position}\" }}",
                quoted(name)
            );
        }
        let _ = writeln!(text, "[workload]\nrate_rps = 1.0\narrival = {arrival}");
        let read_csv = |name: &str| self.table(name).ok_or_else(|| "no such table of the problem".to_owned());
        Scenario::parse_among("fleet", &text, &[format!("policy={policy}")], &read_csv, policies)
    }

    /// The table of a model by the name that the scenario gives it.
    fn table(&self, name: &str) -> Option<String> {
        let (what, position) = name.split_once(' ')?;
        let model = self.models.get(position.parse::<usize>().ok()?)?;
        Some(match what {
            "items" => model
                .sizes
                .iter()
                .fold("items,share\n".to_owned(), |text, (items, share)| text + &format!("{items},{share:?}\n")),
            _ => self.profile(model),
        })
    }

    fn profile(&self, model: &FleetModel) -> String {
        let mut text = "gpu_kind,batch,latency_ms\n".to_owned();
        for (kind, table) in self.kinds.iter().zip(&model.latencies) {
            let within = table.items_within(model.slo_ms).max(1) as usize;
            for (batch, ms) in (1..).zip(&table.all_ms()[..within]) {
                let _ = writeln!(text, "\"{}\",{batch},{ms:?}", kind.name.replace('"', "\"\""));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::LatencyTable;
    use crate::problem::Kind;

    #[test]
    fn a_fleet_becomes_a_scenario_with_its_kinds_prices_and_sizes() {
        let kind = |name: &str, price_per_hour| Kind { name: name.to_owned(), price_per_hour, count_max: 9 };
        let table = |points: &[(u32, f64)]| LatencyTable::from_points(points).unwrap();
        let model = FleetModel {
            name: "m \"1\"".to_owned(),
            slo_ms: 100.0,
            share: 1.0,
            sizes: vec![(1, 0.25), (10, 0.75)],
            latencies: vec![
                table(&[(1, 10.0), (10, 50.0), (11, 200.0)]),
                table(&[(1, 40.0), (10, 200.0)]),
                table(&[(1, 1.0)]),
            ],
        };
        let problem = FleetProblem {
            budget_per_hour: 9.0,
            kinds: vec![kind("base, large", 0.5), kind("small", 0.25), kind("unused", 1.0)],
            models: vec![model],
        };
        let trial = Trial {
            policy: "eager".to_owned(),
            duration_s: 3.0,
            seeds: vec![7],
            arrival: "\"poisson\"".to_owned(),
            more: String::new(),
        };
        let scenario = problem.scenario(&[2, 4, 0], &trial).unwrap();
        assert_eq!((scenario.policy.to_string(), scenario.gpu_count()), ("eager".to_owned(), 6));
        assert_eq!(scenario.price_per_hour(), Some(2.0));
        assert_eq!(scenario.models[0].items.mean(), 7.75);
        let batches: Vec<_> = scenario.models[0].profiles.iter().map(|profile| profile.batch_max()).collect();
        assert_eq!(batches, [10, 4]);
        let unknown = Trial { policy: "magic".to_owned(), ..trial };
        assert!(problem.scenario(&[2, 4, 0], &unknown).unwrap_err().to_string().contains("policy"));
    }
}
