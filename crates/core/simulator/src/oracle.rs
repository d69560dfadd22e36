//! The oracle of the Kairos paper: how many requests a second GPUs of several kinds could serve, had they all come
//! before.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use symphony_types::{GpuClass, LatencyProfile, Nanos};
use symphony_workload::{ModelSpec, Scenario, item_shares};

/// How many requests it serves: while the last of them run, some GPUs are idle, which is a thousandth of the time on
/// 20 GPUs.
const REQUESTS: u32 = 20_000;

/// The rate at which GPUs serve requests that never wait, in requests per second; `None` of a scenario with several
/// models, for which the paper says nothing.
///
/// Section 7: 20 000 requests of the model's law of items lie in order of their size. A GPU of the base class, the one
/// that serves the largest fastest, takes the next largest as soon as it is free, any other the next smallest; none
/// takes one that would be late even without waiting. The base takes what is left; what is late on every class is not
/// served. This knows all requests and ignores when they come, so no policy can be asked to do it: it is computed
/// beside a run, and no value of `policy`. Policies that do not merge requests hardly come near it; it is no bound in
/// the strict sense, since its order is not the best there is (`symphony_fleet::FluidBound` is one).
#[must_use]
pub fn oracle_rps(scenario: &Scenario) -> Option<f64> {
    let [model] = &scenario.models[..] else { return None };
    let network = scenario.network;
    let time = model.slo - network.control - network.reply;
    let sizes = sizes(model);
    let largest = *sizes.last()?;
    let present = |class: &GpuClass| scenario.gpus.iter().any(|gpu| gpu.class == *class && gpu.count > 0);
    let profile = |class: GpuClass| model.profiles.get(class.index());
    let speed = |class: &GpuClass| profile(*class).map_or(Nanos::MAX, |profile| profile.latency(largest));
    let base = GpuClass::all().filter(present).min_by_key(speed)?;
    let in_time = |profile: &LatencyProfile, items: u32| {
        profile.latency(items) + network.data_per_item.saturating_mul(u64::from(items)) <= time
    };
    // From the largest on, those that even the base serves late.
    let base_serves = |&items: &u32| profile(base).is_some_and(|profile| in_time(profile, items));
    let (mut low, mut high) = (0, sizes.partition_point(base_serves));
    // When each GPU is free, and its number.
    let classes: Vec<GpuClass> = scenario.gpu_classes().collect();
    let mut free: BinaryHeap<Reverse<(Nanos, usize)>> =
        (0..classes.len()).map(|gpu| Reverse((Nanos::ZERO, gpu))).collect();
    let (mut served, mut end) = (0_u32, Nanos::ZERO);
    while low < high {
        let Some(Reverse((at, gpu))) = free.pop() else { break };
        let Some(profile) = profile(classes[gpu]) else { continue };
        let items = if classes[gpu] == base {
            high -= 1;
            sizes[high]
        } else if in_time(profile, sizes[low]) {
            low += 1;
            sizes[low - 1]
        } else {
            // All others are larger still.
            continue;
        };
        let ends = at + profile.latency(items);
        (served, end) = (served + 1, end.max(ends));
        free.push(Reverse((ends, gpu)));
    }
    Some(if end > Nanos::ZERO { f64::from(served) / end.as_secs_f64() } else { 0.0 })
}

/// Sizes of requests by the model's law, rising: as many of each as its share says.
fn sizes(model: &ModelSpec) -> Vec<u32> {
    let mut upto = 0.0;
    let mut sizes = Vec::with_capacity(REQUESTS as usize);
    for (items, share) in item_shares(&model.items) {
        upto += share;
        sizes.resize(((upto * f64::from(REQUESTS)).round() as usize).max(sizes.len()), items);
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(gpus: &str, items: &str) -> Scenario {
        let text = format!(
            "name = 'oracle'\npolicy = 'kairos'\nduration_s = 10\nseeds = [1]\ngpu = [{gpus}]\n[[model]]\nname = 'm'\n\
             alpha_ms = {{ fast = 1.0, slow = 5.0 }}\nbeta_ms = 0.0\nslo_ms = 100.0\nbatch_max = 100\nitems = {items}\n\
             [workload]\nrate_rps = 10\narrival = 'poisson'\n"
        );
        Scenario::parse("oracle.toml", &text, &[], &|_| Err("no files".to_owned())).unwrap()
    }

    const FAST: &str = "{ kind = 'fast', count = 1 }";
    const BOTH: &str = "{ kind = 'fast', count = 1 }, { kind = 'slow', count = 2 }";

    #[track_caller]
    fn is(gpus: &str, items: &str, expected: f64) {
        let rate_rps = oracle_rps(&scenario(gpus, items)).unwrap();
        assert!((rate_rps / expected - 1.0).abs() < 0.002, "{rate_rps}, expected {expected}");
    }

    #[test]
    fn equal_requests_are_served_as_fast_as_their_gpus_are() {
        // 10 items take 10 ms on the fast GPU, 50 ms on each slow one; 50 items are late there.
        is(FAST, "10", 100.0);
        is(BOTH, "10", 140.0);
        is(BOTH, "50", 20.0);
    }

    #[test]
    fn large_requests_go_to_the_base_and_small_ones_to_the_others_until_one_side_has_none() {
        // A second of the fast GPU serves 11.1 large ones; the slow ones serve 40 small ones, more than the 33.3 that
        // come with those.
        is(BOTH, "[{ share = 1, items = 90 }, { share = 3, items = 10 }]", 400.0 / 9.0);
        // And many more than 11.1.
        is(BOTH, "[{ share = 1, items = 90 }, { share = 1, items = 10 }]", 200.0 / 9.0);
        // Nine in ten are small: the fast GPU serves those as well. 0.9·λ = 40 + (1000 − 90·λ / 10) / 10.
        is(BOTH, "[{ share = 1, items = 90 }, { share = 9, items = 10 }]", 140.0 / 1.8);
    }

    #[test]
    fn several_models_have_no_oracle() {
        let mut scenario = scenario(FAST, "10");
        scenario.models.push(scenario.models[0].clone());
        assert_eq!(oracle_rps(&scenario), None);
    }
}
