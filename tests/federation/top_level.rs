//! The top-level group dies.

use symphony_tests::{TestFederation, phase};

#[test]
fn serving_goes_on_without_the_top_level_and_the_plan_survives_it() {
    let mut federation = TestFederation::start("federation-top-level").unwrap();
    federation.load_model("east-model", "east", &[]);
    federation.load_model("west-model", "west", &[]);
    let home = federation.model("west-model").unwrap()["home"].clone();
    for model in ["east-model", "west-model"] {
        federation.wait_until_it_serves(model);
    }
    let load = federation.spawn_load("load", "east", &["east-model=50"]).unwrap();
    federation.wait_for_more(50);

    phase("all replicas of the federation are killed");
    assert_eq!(federation.kill_all("federation-").unwrap(), 3);
    federation.wait_for_more(200);
    for model in ["east-model", "west-model"] {
        federation.one_good_request(model).unwrap();
    }
    let plan = federation.console().unwrap()["federation"]["plan"].as_u64().unwrap();

    phase("they come back, and know what they knew");
    federation.restart_all("federation-").unwrap();
    federation.wait_for_model("its home", "west-model", |model| model["home"] == home);
    let again = federation.view().unwrap()["plan"].as_u64().unwrap();
    assert!(again >= plan, "F2: plan {again} after plan {plan}");
    let report = federation.end_load(load).unwrap();
    report.check_safety().unwrap();
    report.check_nothing_failed().unwrap();
    federation.check_the_ledger();
}
