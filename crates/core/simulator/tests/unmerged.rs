//! Requests that are never merged, on instances of unequal speed: in the order in which the Kairos paper found them
//! (section 8.2), and never beyond its oracle.

use symphony_simulator::{find_goodput, oracle_rps, simulate};
use symphony_workload::Scenario;

const SAMPLE: &str = include_str!("../../../../deploy/scenarios/unmerged-requests.toml");

fn scenario(policy: &str) -> Scenario {
    let overrides = [format!("policy={policy}"), "seeds=[1]".to_owned()];
    Scenario::parse("unmerged.toml", SAMPLE, &overrides, &|_| Err("no files".to_owned())).unwrap()
}

#[test]
fn kairos_serves_more_than_its_rivals_and_less_than_the_oracle() {
    let goodput = |policy: &str| find_goodput(&scenario(policy)).unwrap();
    let kairos = goodput("kairos");
    for rival in ["ribbon", "drs", "clkwrk"] {
        let rival_rps = goodput(rival);
        assert!(kairos > rival_rps, "kairos: {kairos:.1}, {rival}: {rival_rps:.1} requests/s");
    }
    let oracle = oracle_rps(&scenario("kairos")).unwrap();
    assert!((0.6..1.0).contains(&(kairos / oracle)), "kairos: {kairos:.1}, the oracle: {oracle:.1} requests/s");
}

#[test]
fn kairos_that_learns_latencies_is_soon_as_good_as_with_profiles() {
    let bad = |policy: &str| simulate(&scenario(policy), 1, 80.0).unwrap().bad_rate;
    let (knows, learns) = (bad("kairos"), bad("{ name = 'kairos', learn = true }"));
    assert!(learns <= knows + 0.002, "{learns} bad, with profiles {knows}");
}
