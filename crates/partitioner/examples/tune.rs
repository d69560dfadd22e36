//! Tuning.
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use symphony_partitioner::*;
use symphony_types::*;
fn u(g: &mut Xoshiro256PlusPlus) -> f64 {
    (g.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
const ZOO: [f64; 35] = [
    21., 10., 57., 32., 80., 28., 21., 95., 32., 102., 242., 178., 223., 21., 14., 178., 32., 102., 40., 574., 242.,
    17., 553., 36., 57., 355., 86., 49., 476., 217., 122., 91., 27., 77., 440.,
];
fn make(m: usize, l: usize, seed: u64) -> Problem {
    let mut g = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mb = (1 << 20) as f64;
    let mut models = vec![];
    for i in 0..m {
        let b = ZOO[(u(&mut g) * 35.) as usize];
        let r = -100.0 * (1.0 - u(&mut g)).ln();
        let s = b * (0.9 + 0.2 * u(&mut g)) * mb;
        let d = b * (0.5 + 1.5 * u(&mut g)) * mb;
        models.push(Model {
            name: format!("m{i}"),
            rate_rps: r,
            slo: Nanos::from_millis(50),
            needs: vec![Some(KindNeed {
                profile: LatencyProfile::from_line(1.0, 5.0, 32).unwrap(),
                static_memory_bytes: s as u64,
                dynamic_memory_bytes: d as u64,
            })],
            move_cost: 1.0,
            pin: None,
        });
    }
    let tr: f64 = models.iter().map(|m| m.rate_rps).sum();
    let ts: f64 = models.iter().map(|m| m.static_memory_bytes() as f64).sum();
    let dm = models.iter().map(|m| m.needs[0].as_ref().unwrap().dynamic_memory_bytes).max().unwrap();
    let smax = (ts / l as f64 * 1.3) as u64 + dm;
    Problem {
        kinds: vec![GpuKind { name: "k".into(), memory_bytes: smax }],
        models,
        parts: (0..l)
            .map(|j| Part {
                name: format!("s{j}"),
                rate_max_rps: tr / l as f64 * 1.3,
                share: 1.0,
                kinds: vec![PartKind { kind: 0, memory_max_bytes: smax }],
            })
            .collect(),
        gpus: vec![],
        memory_weight: 1.0,
        disruption_max: None,
        steadiness: Steadiness::default(),
    }
}
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let (m, l, n, mv) = (a[0] as usize, a[1] as usize, a[2], a[3]);
    let mut rs = vec![];
    let mut ms = vec![];
    for seed in 0..n {
        let p = make(m, l, seed);
        let t = std::time::Instant::now();
        let plan = solve(&p, None, &Budget { moves: mv, seed: 1, should_stop: None }).unwrap();
        let e = t.elapsed().as_secs_f64();
        println!(
            "seed {seed} rate {:.6} mem {:.6} obj {:.6} {:.3}s",
            plan.balance.rate_imbalance, plan.balance.memory_imbalance, plan.balance.objective, e
        );
        rs.push(plan.balance.rate_imbalance);
        ms.push(plan.balance.memory_imbalance);
        if a.len() > 4 {
            // disruption
            let mut p2 = p.clone();
            let mut g = Xoshiro256PlusPlus::seed_from_u64(seed + 99);
            for x in &mut p2.models {
                x.rate_rps *= 0.8 + 0.4 * u(&mut g);
            }
            let free = solve(&p2, None, &Budget { moves: mv, seed: 1, should_stop: None }).unwrap();
            p2.disruption_max = Some(a[4] as f64);
            let t = std::time::Instant::now();
            let b = solve(&p2, Some(&plan), &Budget { moves: mv, seed: 1, should_stop: None }).unwrap();
            let c = Change::between(&p2, &plan, &b);
            println!(
                "   before {:.4} bounded rate {:.6} mem {:.6} obj {:.6} moved {} free obj {:.6} {:.2}s",
                c.before.unwrap().objective,
                b.balance.rate_imbalance,
                b.balance.memory_imbalance,
                b.balance.objective,
                c.moved_models.len(),
                free.balance.objective,
                t.elapsed().as_secs_f64()
            );
            let again = solve(&p2, Some(&b), &Budget { moves: mv, seed: 1, should_stop: None }).unwrap();
            println!("   again none {}", Change::between(&p2, &b, &again).is_none());
        }
    }
    rs.sort_by(f64::total_cmp);
    ms.sort_by(f64::total_cmp);
    println!("median {:.6} {:.6}", rs[rs.len() / 2], ms[ms.len() / 2]);
}
