//! The Kairos paper, Figure 16 (section 8.6): Gaussian sizes, and noisy latencies.

use anyhow::Result;

use super::kairos::{GAUSSIAN, MIX, Variant, improvement_report};
use crate::lab::Lab;
use crate::report::Report;

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let gaussian = Variant {
        title: "Gaussian sizes",
        claim: "gaussian",
        sizes: GAUSSIAN,
        budget_factor: 1.0,
        slo_factor: 1.0,
        more: "",
    };
    let noise = Variant {
        title: "noise of 5 %",
        claim: "noise",
        sizes: MIX,
        budget_factor: 1.0,
        slo_factor: 1.0,
        more: "execution = { noise = { lognormal_sigma = 0.05 } }",
    };
    let note = "The Kairos paper, Figure 16. Gaussian: mean 240 items, deviation 100, cut to 1 to 1000; the paper gives no numbers. Noise: \
                log-normal, of executions; the paper's is Gaussian, of predictions.";
    improvement_report(lab, "kairos-fig16", "Other sizes, and latencies that vary", note, &[gaussian, noise])
}
