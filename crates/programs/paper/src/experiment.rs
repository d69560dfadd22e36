//! The list of reproduced tables and figures.

use anyhow::Result;

use crate::experiments as e;
use crate::lab::Lab;
use crate::report::Report;

/// Whose tables and figures are reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// The Symphony paper.
    Symphony,
    /// The Nexus paper.
    Nexus,
    /// The Kairos paper.
    Kairos,
    /// The report on Nexus in Blox.
    Blox,
}

impl Paper {
    /// Title and authors.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Symphony => "Symphony: Optimized Model Serving using Centralized Orchestration (Chen et al.)",
            Self::Nexus => {
                "Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis (Shen et al., SOSP 2019)"
            }
            Self::Kairos => {
                "Kairos: Building Cost-Efficient Machine Learning Inference Systems with Heterogeneous Cloud Resources (Li et al., HPDC 2023)"
            }
            Self::Blox => "Implementing Inference scheduler in Blox (Jonnavithula, Rallabandi, Reddy)",
        }
    }
}

/// A table or figure of a paper.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// The paper that has it.
    pub paper: Paper,
    /// Its name in the paper.
    pub figure: &'static str,
    /// What it shows, in one line.
    pub what: &'static str,
    /// Simulates or computes it, and reports.
    pub run: fn(&Lab<'_>) -> Result<Report>,
}

macro_rules! experiment {
    ($name:literal, $paper:ident, $figure:literal, $what:literal, $module:ident) => {
        Experiment { name: $name, paper: Paper::$paper, figure: $figure, what: $what, run: e::$module::run }
    };
}

/// Everything, in the order of the papers.
pub const EXPERIMENTS: &[Experiment] = &[
    experiment!(
        "symphony-table2",
        Symphony,
        "Table 2",
        "several frontends make request counts fluctuate",
        symphony_table2
    ),
    experiment!(
        "symphony-fig1",
        Symphony,
        "Figure 1",
        "several frontends cost a distributed scheduler goodput",
        symphony_fig1
    ),
    experiment!(
        "symphony-fig4",
        Symphony,
        "Figure 4",
        "goodput of deferral over eager, over many workloads",
        symphony_fig4
    ),
    experiment!("symphony-fig6", Symphony, "Figure 6", "goodput on the model zoo with 64 GPUs", symphony_fig6),
    experiment!("symphony-fig7", Symphony, "Figure 7", "goodput by SLO, popularity and burstiness", symphony_fig7),
    experiment!(
        "symphony-table4",
        Symphony,
        "Table 4",
        "goodput of two models on 8 GPUs against the analytic bound",
        symphony_table4
    ),
    experiment!("symphony-fig8", Symphony, "Figure 8", "in what batch sizes requests run", symphony_fig8),
    experiment!("symphony-fig9", Symphony, "Figure 9", "how long requests wait", symphony_fig9),
    experiment!(
        "symphony-fig10",
        Symphony,
        "Figure 10",
        "goodput under overload, GPU use under partial load",
        symphony_fig10
    ),
    experiment!(
        "symphony-fig11",
        Symphony,
        "Figure 11",
        "the scheduler's speed by threads, goodput by GPUs",
        symphony_fig11
    ),
    experiment!("symphony-fig13", Symphony, "Figure 13", "what network latency costs", symphony_fig13),
    experiment!(
        "symphony-fig14",
        Symphony,
        "Figure 14",
        "a changing workload on 512 GPUs, whose number follows it",
        symphony_fig14
    ),
    experiment!(
        "symphony-fig15",
        Symphony,
        "Figure 15",
        "how evenly models are divided among sub-clusters",
        symphony_fig15
    ),
    experiment!("nexus-fig2", Nexus, "Figure 2", "which models share a GPU", nexus_fig2),
    experiment!("nexus-fig4", Nexus, "Figure 4", "throughput of a query by the division of its budget", nexus_fig4),
    experiment!("nexus-fig5", Nexus, "Figure 5", "bad rate of lazy dropping by α", nexus_fig5),
    experiment!("nexus-fig9", Nexus, "Figure 9", "throughput of lazy and early drop by α", nexus_fig9),
    experiment!("nexus-fig10", Nexus, "Figure 10", "game analysis, one technique less at a time", nexus_fig10),
    experiment!("nexus-fig11", Nexus, "Figure 11", "traffic monitoring, one technique less at a time", nexus_fig11),
    experiment!("nexus-fig12", Nexus, "Figure 12", "traffic monitoring in rush hour", nexus_fig12),
    experiment!("nexus-fig13", Nexus, "Figure 13", "epochs follow a workload over 1000 s", nexus_fig13),
    experiment!("nexus-fig14", Nexus, "Figure 14", "several models on one GPU", nexus_fig14),
    experiment!("nexus-fig15", Nexus, "Figure 15", "prefix batching of models that share a trunk", nexus_fig15),
    experiment!("nexus-fig16", Nexus, "Figure 16", "squishy packing over allocation without batches", nexus_fig16),
    experiment!("nexus-fig17", Nexus, "Figure 17", "what the split of a budget gains over equal shares", nexus_fig17),
    experiment!("kairos-fig1", Kairos, "Figure 1", "unequal fleets against the best of equal ones", kairos_fig1),
    experiment!(
        "kairos-fig2",
        Kairos,
        "Figure 2",
        "most fleets on the way of a search are worse than equal ones",
        kairos_fig2
    ),
    experiment!(
        "kairos-fig3",
        Kairos,
        "Figure 3",
        "what a fleet answers depends on who gets which request",
        kairos_fig3
    ),
    experiment!(
        "kairos-fig8",
        Kairos,
        "Figure 8",
        "the fleet chosen in one shot over the best of equal GPUs",
        kairos_fig8
    ),
    experiment!(
        "kairos-fig9",
        Kairos,
        "Figure 9",
        "the fleet chosen in one shot against rivals on their best fleets",
        kairos_fig9
    ),
    experiment!(
        "kairos-fig10",
        Kairos,
        "Figure 10",
        "how many fleets each policy must try to find its best one",
        kairos_fig10
    ),
    experiment!("kairos-fig11", Kairos, "Figure 11", "how many fleets other searches try", kairos_fig11),
    experiment!(
        "kairos-fig12",
        Kairos,
        "Figure 12",
        "a new fleet after the sizes of requests have changed",
        kairos_fig12
    ),
    experiment!("kairos-fig13", Kairos, "Figure 13", "what the fleets with the highest bounds answer", kairos_fig13),
    experiment!("kairos-fig14", Kairos, "Figure 14", "bounds and policies on the same fleets", kairos_fig14),
    experiment!("kairos-fig15", Kairos, "Figure 15", "a larger budget, a longer SLO", kairos_fig15),
    experiment!("kairos-fig16", Kairos, "Figure 16", "Gaussian sizes, noisy latencies", kairos_fig16),
    experiment!("blox-fig4", Blox, "Figure 4", "GPUs by the number of jobs", blox_fig4),
    experiment!("blox-fig5", Blox, "Figure 5", "bad rate by the number of GPUs", blox_fig5),
    experiment!("blox-fig6", Blox, "Figure 6", "how often a model is loaded where it is placed", blox_fig6),
];

/// The experiment of this name. The paper may be left out where only one has such a figure: `fig15`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    let figure = |experiment: &&Experiment| experiment.name.split_once('-').is_some_and(|(_, figure)| figure == name);
    let mut figures = EXPERIMENTS.iter().filter(figure);
    let only = figures.next().filter(|_| figures.next().is_none());
    EXPERIMENTS.iter().find(|experiment| experiment.name == name).or(only)
}
