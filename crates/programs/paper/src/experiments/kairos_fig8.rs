//! The Kairos paper, Figure 8 (section 8.1): Kairos over the best homogeneous configuration.

use anyhow::Result;

use super::kairos::{MIX, Variant, improvement_report};
use crate::lab::Lab;
use crate::report::Report;

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let variant =
        Variant { title: "2.5 $ an hour", claim: "least", sizes: MIX, budget_factor: 1.0, slo_factor: 1.0, more: "" };
    let note = "The Kairos paper, Figure 8.";
    improvement_report(lab, "kairos-fig8", "An unequal fleet answers more for the same money", note, &[variant])
}
