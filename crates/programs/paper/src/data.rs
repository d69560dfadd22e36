//! The papers' values: tables as printed, and statements of the text. The files are in `data/`; the crate's README
//! names their sources.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// One row of the Symphony paper, Table 1.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Table1Row {
    pub(crate) model: String,
    pub(crate) file_mb: f64,
    pub(crate) static_mem_mb: f64,
    pub(crate) dynamic_mem_mb: f64,
}

/// The size of a model's file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct FileRow {
    pub(crate) name: String,
    pub(crate) file_mb: f64,
}

/// The result of HiGHS for one configuration of Figure 15, from a build that has it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct HighsRow {
    pub(crate) models: usize,
    pub(crate) parts: usize,
    pub(crate) seed: u64,
    pub(crate) solver: String,
    pub(crate) rate_imbalance: Option<f64>,
    pub(crate) memory_imbalance: Option<f64>,
    pub(crate) objective: Option<f64>,
    pub(crate) seconds: f64,
    pub(crate) bound: Option<f64>,
}

/// One rate of a comparison of processes with the simulator.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LiveRow {
    pub(crate) run: u32,
    pub(crate) case: String,
    pub(crate) scale: f64,
    /// Settings of the cluster, besides the defaults.
    pub(crate) settings: String,
    pub(crate) simulated_goodput_rps: f64,
    pub(crate) with_delays_goodput_rps: f64,
    pub(crate) live_goodput_rps: Option<f64>,
    pub(crate) live_over_simulated: Option<f64>,
    pub(crate) share: f64,
    pub(crate) seed: u64,
    pub(crate) offered: u64,
    pub(crate) late: u64,
    pub(crate) dropped: u64,
    pub(crate) failed: u64,
    pub(crate) in_time_simulated: f64,
    pub(crate) in_time_with_delays: f64,
    pub(crate) in_time_with_lateness: f64,
    pub(crate) in_time_with_corrections: f64,
    pub(crate) in_time_live: f64,
    pub(crate) worst_model_live: f64,
    /// Threads of the cluster that waited for a core, on average.
    pub(crate) waited_for_cores: f64,
    pub(crate) cores: u32,
    pub(crate) machine: String,
    pub(crate) commit: String,
}

/// One row of the Symphony paper, Table 2.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Table2Row {
    pub(crate) window_ms: f64,
    pub(crate) avg_request_rate_rps: f64,
    pub(crate) mean_rpw: f64,
    pub(crate) frontends: usize,
    pub(crate) std_rpw: f64,
    pub(crate) backends: usize,
}

/// One row of the Symphony paper, Table 4.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Table4Row {
    pub(crate) gpus: u32,
    pub(crate) model: String,
    pub(crate) alpha_ms: f64,
    pub(crate) beta_ms: f64,
    pub(crate) slo_ms: f64,
    pub(crate) nocoord_rps: f64,
    pub(crate) stagger_bs: u32,
    pub(crate) stagger_rps: f64,
    pub(crate) symphony_rps: f64,
    pub(crate) clockwork_rps: f64,
    pub(crate) nexus_rps: f64,
}

/// One model of the Symphony paper, Tables 5 and 6.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ZooRow {
    pub(crate) name: String,
    pub(crate) alpha_ms: f64,
    pub(crate) beta_ms: f64,
    pub(crate) beta_over_alpha: f64,
    pub(crate) slo_ms: f64,
}

/// One point of the Nexus paper, Figure 3.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Fig3Row {
    pub(crate) model: String,
    pub(crate) latency_ms: f64,
    pub(crate) throughput_rps: f64,
}

/// One value of the Nexus paper, Figure 4.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Fig4Row {
    pub(crate) budget_x_ms: f64,
    pub(crate) budget_y_ms: f64,
    pub(crate) gamma: f64,
    pub(crate) avg_throughput_rps: f64,
}

/// A statement of a paper's text about a figure.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Claim {
    figure: String,
    key: String,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) section: String,
    pub(crate) words: String,
}

fn rows<T: DeserializeOwned>(text: &str) -> Vec<T> {
    let rows = csv::Reader::from_reader(text.as_bytes()).into_deserialize().collect::<Result<_, _>>();
    rows.expect("the crate's data files are read by its tests")
}

pub(crate) fn table1() -> Vec<Table1Row> {
    rows(include_str!("../data/symphony_table1.csv"))
}

pub(crate) fn zoo_files() -> Vec<FileRow> {
    rows(include_str!("../data/zoo_file_mb.csv"))
}

pub(crate) fn fig15_highs() -> Vec<HighsRow> {
    rows(include_str!("../data/symphony_fig15_highs.csv"))
}

/// The output of `benches/live_over_simulated.py`.
pub(crate) const FIG6_LIVE: &str = include_str!("../data/symphony_fig6_live.csv");

pub(crate) fn fig6_live() -> Vec<LiveRow> {
    rows(FIG6_LIVE)
}

pub(crate) fn table2() -> Vec<Table2Row> {
    rows(include_str!("../data/symphony_table2_frontends.csv"))
}

pub(crate) fn table4() -> Vec<Table4Row> {
    rows(include_str!("../data/symphony_table4.csv"))
}

/// The Nexus paper, Figure 3: two models by latency.
pub(crate) fn nexus_fig3() -> Vec<Fig3Row> {
    rows(include_str!("../data/nexus_fig3.csv"))
}

/// The Nexus paper, Figure 4: throughput by budgets and fan-out.
pub(crate) fn nexus_fig4() -> Vec<Fig4Row> {
    rows(include_str!("../data/nexus_fig4.csv"))
}

/// Table 5: profiles on a 1080Ti.
pub(crate) fn zoo_1080ti() -> Vec<ZooRow> {
    rows(include_str!("../data/symphony_table5_1080ti.csv"))
}

/// Table 6: profiles on an A100.
pub(crate) fn zoo_a100() -> Vec<ZooRow> {
    rows(include_str!("../data/symphony_table6_a100.csv"))
}

/// The model of Table 5 with this name.
pub(crate) fn model_1080ti(name: &str) -> ZooRow {
    let found = zoo_1080ti().into_iter().find(|row| row.name == name);
    found.unwrap_or_else(|| panic!("Table 5 has no {name}"))
}

/// The statements of the text about a figure.
pub(crate) fn claim(figure: &str, key: &str) -> Claim {
    let claims: Vec<Claim> = rows(include_str!("../data/claims.csv"));
    let found = claims.into_iter().find(|claim| claim.figure == figure && claim.key == key);
    found.unwrap_or_else(|| panic!("data/claims.csv says nothing about {key} of {figure}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_reads_and_the_zoo_is_as_large_as_the_tables() {
        assert_eq!((table1().len(), table2().len(), table4().len()), (6, 4, 2));
        assert!(fig15_highs().iter().all(|row| row.objective.is_none() || row.bound.is_some()));
        assert!(fig6_live().iter().all(|row| row.late + row.dropped + row.failed <= row.offered && row.offered > 0));
        let files = zoo_files();
        assert!(zoo_1080ti().iter().all(|row| files.iter().any(|file| file.name == row.name && file.file_mb > 0.0)));
        assert_eq!((zoo_1080ti().len(), zoo_a100().len()), (35, 37));
        assert_eq!((nexus_fig3().len(), nexus_fig4().len()), (6, 9));
        assert_eq!(model_1080ti("BERT").slo_ms, 56.0);
        assert_eq!(claim("symphony-fig6", "a100_gt2").low, 5.7);
        for row in zoo_1080ti().iter().chain(&zoo_a100()) {
            let ratio = row.beta_ms / row.alpha_ms;
            assert!((ratio / row.beta_over_alpha - 1.0).abs() < 0.02, "{row:?}");
        }
    }
}
