//! `Assigner`: queries to instances (Kairos), packed nodes to GPUs (sticky placement). Aims: 20 × 20 within 20 µs,
//! 200 × 200 within 2 ms, cold.

mod measured;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion};
use symphony_assignment::{Assigner, Costs};

const SIDES: [usize; 3] = [20, 100, 200];
/// Different matrices, so that branches are not learnt.
const MATRICES: u64 = 32;

fn main() {
    measured::run(&[cold, one_row_changed]);
}

/// Costs from 0 to 1, by xorshift.
fn matrix(side: usize, seed: u64) -> Vec<f64> {
    let mut random = 0x9e37_79b9_7f4a_7c15 ^ (seed + 1);
    let mut draw = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..side * side).map(|_| draw()).collect()
}

fn cold(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("assignment/cold");
    for side in SIDES {
        let matrices: Vec<_> = (0..MATRICES).map(|seed| matrix(side, seed)).collect();
        let mut next = matrices.iter().cycle();
        let mut assigner = Assigner::new();
        group.bench_function(BenchmarkId::from_parameter(side), |bencher| {
            bencher.iter(|| {
                let values = next.next().expect("they go round");
                black_box(assigner.solve(Costs::new(side, side, values).expect("numbers")).cost)
            });
        });
    }
    group.finish();
}

/// A query goes and another one comes.
fn one_row_changed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("assignment/one_row_changed");
    for side in SIDES {
        let (mut values, mut others) = (matrix(side, 0), matrix(side, 1));
        let mut rows = (0..side).cycle();
        let mut assigner = Assigner::new();
        group.bench_function(BenchmarkId::from_parameter(side), |bencher| {
            bencher.iter(|| {
                let row = rows.next().expect("they go round");
                let (from, to) = (row * side, (row + 1) * side);
                values[from..to].swap_with_slice(&mut others[from..to]);
                black_box(assigner.solve_warm(Costs::new(side, side, &values).expect("numbers")).cost)
            });
        });
    }
    group.finish();
}
