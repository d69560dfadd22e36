//! The Kairos paper, Figure 15 (section 8.6): a larger budget, and longer QoS targets.

use anyhow::Result;

use super::kairos::{MIX, Variant, improvement_report};
use crate::lab::Lab;
use crate::report::Report;

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let budget =
        Variant { title: "10 $ an hour", claim: "budget", sizes: MIX, budget_factor: 4.0, slo_factor: 1.0, more: "" };
    let slo = Variant {
        title: "QoS targets longer by a fifth",
        claim: "slo",
        budget_factor: 1.0,
        slo_factor: 1.2,
        sizes: MIX,
        more: "",
    };
    let note = "The Kairos paper, Figure 15.";
    improvement_report(lab, "kairos-fig15", "More money, or more time, changes little", note, &[budget, slo])
}
