//! No heap once buffers have grown, whatever the smaller problems look like.
//!
//! One test function, because the counting allocator counts the whole process: two at once would count each other.

use std::alloc::System;
use std::hint::black_box;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};
use symphony_assignment::{Assigner, Costs, FORBIDDEN};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const SIDE: usize = 40;
const PROBLEMS: usize = 200;

/// An xorshift generator: costs below a thousand, one in eight forbidden.
fn refill(values: &mut [f64], random: &mut u64) {
    for value in values {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *value = if random.is_multiple_of(8) { FORBIDDEN } else { (*random >> 32) as f64 % 1000.0 };
    }
}

#[test]
fn a_solver_that_has_seen_its_largest_problem_does_not_allocate() {
    let (mut values, mut random) = (vec![0.0; SIDE * SIDE], 7);
    let mut assigner = Assigner::new();
    black_box(assigner.solve(Costs::new(SIDE, SIDE, &values).unwrap()).cost);
    // The thread that started this test writes down that it did.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let counted = Region::new(GLOBAL);
    for problem in 0..PROBLEMS {
        let (rows, columns) = (1 + problem % SIDE, SIDE - problem % 7);
        let values = &mut values[..rows * columns];
        refill(values, &mut random);
        let costs = Costs::new(rows, columns, values).unwrap();
        black_box(assigner.solve(costs).cost);
        black_box(assigner.solve_warm(costs).cost);
    }
    let Stats { allocations, reallocations, .. } = counted.change();
    assert_eq!((allocations, reallocations), (0, 0));
}
