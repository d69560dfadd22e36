//! The Nexus paper's applications, as pipelines.

use crate::{carried_out, check_files, ours};

#[test]
fn nexus_fig10_each_technique_is_worth_something_in_game_analysis() {
    let outcome = carried_out("nexus-fig10");
    check_files(&outcome);
    let report = &outcome.report;
    assert!(ours(report, "others_off") < 1.0, "{}", ours(report, "others_off"));
    // Where hardly anything is left without overlap, there is no ratio.
    let overlap = report.comparison("ol").unwrap().ours;
    assert!(overlap.is_none_or(|over| over > 1.2), "{overlap:?}");
    let baseline = report.comparison("tf_serving").unwrap().ours;
    assert!(baseline.is_none_or(|over| over > 1.2), "{baseline:?}");
    assert!(ours(report, "symphony_over_nexus") > 0.9, "{}", ours(report, "symphony_over_nexus"));
}

#[test]
fn nexus_fig11_and_fig12_query_analysis_pays_and_deferral_pays_more() {
    let outcome = carried_out("nexus-fig11");
    check_files(&outcome);
    let report = &outcome.report;
    assert!(ours(report, "qa") > 0.05, "{}", ours(report, "qa"));
    assert!(ours(report, "others_off") < 1.0 - ours(report, "qa") + 0.05);
    assert!(ours(report, "ol") < 1.0, "{}", ours(report, "ol"));
    assert!(ours(report, "deferred_over_nexus") > 1.0, "{}", ours(report, "deferred_over_nexus"));
    let outcome = carried_out("nexus-fig12");
    check_files(&outcome);
    assert!((0.2..0.9).contains(&ours(&outcome.report, "rush")), "{}", ours(&outcome.report, "rush"));
    assert!(ours(&outcome.report, "benefit_rush") > 1.1, "{}", ours(&outcome.report, "benefit_rush"));
}

#[test]
fn nexus_fig14_models_in_turn_beat_models_beside_each_other() {
    let outcome = carried_out("nexus-fig14");
    check_files(&outcome);
    assert!(ours(&outcome.report, "tf_serving") > 1.1, "{}", ours(&outcome.report, "tf_serving"));
    assert!(ours(&outcome.report, "clipper") > 1.3, "{}", ours(&outcome.report, "clipper"));
}
