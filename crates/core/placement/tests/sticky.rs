//! Sticky placement: as few loads as brute force, and a hit rate.

mod workload;

use symphony_packing::squishy_bin_packing;
use symphony_placement::{Demand, Incremental, Loads, Packed, Placed, PlacedGpu, Placement, Random, Sticky};
use workload::Workload;

const MODELS: usize = 25;
const EPOCHS: u64 = 30;
const GPUS: usize = 40;

/// The fewest models to load, over all ways to put nodes on GPUs.
fn fewest(nodes: &[Vec<usize>], gpus: &[PlacedGpu], used: u32) -> usize {
    let Some((node, rest)) = nodes.split_first() else { return 0 };
    let free = (0..gpus.len()).filter(|gpu| (used >> gpu) & 1 == 0);
    let on = |gpu: usize| {
        let misses = node.iter().filter(|model| !gpus[gpu].loaded.contains(model)).count();
        misses + fewest(rest, gpus, used | (1 << gpu))
    };
    free.map(on).min().unwrap_or(0)
}

#[test]
fn no_placement_of_the_same_nodes_loads_fewer_models() {
    let mut random = workload::Random::new(1);
    for _ in 0..300 {
        let workload = Workload::new(&mut random, 5);
        let sessions = workload.sessions();
        // The last two are the same model.
        let models = [0, 1, 2, 3, 3];
        let gpus = 1 + random.below(6);
        let previous: Vec<_> = (0..gpus)
            .map(|_| PlacedGpu { node: None, loaded: (0..5).filter(|_| random.below(3) == 0).collect() })
            .collect();
        let previous = Placed { gpus: previous, unplaced: vec![] };
        let demand = Demand::new(&sessions, &models, gpus, 0).unwrap();
        let placed = Sticky.place(&demand, &previous);
        let mut nodes = Vec::new();
        for node in squishy_bin_packing(&sessions).iter().take(gpus) {
            let mut of: Vec<_> = node.sessions.iter().map(|packed| models[packed.session]).collect();
            of.sort_unstable();
            of.dedup();
            nodes.push(of);
        }
        assert_eq!(placed.gpus.iter().filter(|gpu| gpu.node.is_some()).count(), nodes.len());
        assert_eq!(Loads::between(&previous, &placed).misses(), fewest(&nodes, &previous.gpus, 0));
    }
}

/// Hits over 30 epochs of 25 models whose rates drift.
fn hit_rate(placement: &dyn Placement, seed: u64) -> f64 {
    let mut random = workload::Random::new(seed);
    let mut workload = Workload::new(&mut random, MODELS);
    let models: Vec<_> = (0..MODELS).collect();
    let (mut placed, mut loads) = (Placed::default(), Loads::default());
    for epoch in 0..EPOCHS {
        workload.drift(&mut random);
        let sessions = workload.sessions();
        let next = placement.place(&Demand::new(&sessions, &models, GPUS, epoch).unwrap(), &placed);
        // At first nothing is loaded.
        if epoch > 0 {
            loads = loads.and(Loads::between(&placed, &next));
        }
        placed = next;
    }
    loads.hit_rate().unwrap()
}

#[test]
fn sticky_hits_six_times_of_ten_and_random_hardly_ever() {
    for seed in 0..5 {
        let [sticky, incremental] = [hit_rate(&Sticky, seed), hit_rate(&Incremental, seed)];
        let [random, in_order] = [hit_rate(&Random, seed), hit_rate(&Packed, seed)];
        assert!(sticky >= 0.6, "{sticky}");
        assert!(incremental > sticky, "{incremental} {sticky}");
        assert!(in_order < sticky / 1.5 && random < 0.25, "{in_order} {random}");
    }
}

#[test]
fn an_idle_gpu_keeps_its_models_for_the_next_epoch() {
    let workload = Workload::new(&mut workload::Random::new(2), 3);
    let busy = workload.sessions();
    let mut idle = busy.clone();
    idle.iter_mut().for_each(|session| session.rate_per_second = 0.0);
    let models = [0, 1, 2];
    let first = Sticky.place(&Demand::new(&busy, &models, 8, 0).unwrap(), &Placed::default());
    let pause = Sticky.place(&Demand::new(&idle, &models, 8, 1).unwrap(), &first);
    assert!(pause.gpus.iter().all(|gpu| gpu.node.is_none()));
    let again = Sticky.place(&Demand::new(&busy, &models, 8, 2).unwrap(), &pause);
    assert_eq!(Loads::between(&pause, &again).misses(), 0);
}
