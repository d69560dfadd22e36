//! `MinTree`: the structure under every decision; nanoseconds per changed key.

mod measured;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use symphony_scheduler::MinTree;

const SLOTS: [usize; 3] = [8, 512, 4096];

fn main() {
    measured::run(&[advance]);
}

/// The slot with the smallest key gets the largest, as a GPU does that is used again: every level changes.
fn advance(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("min_tree/advance");
    group.throughput(Throughput::Elements(1));
    for slots in SLOTS {
        let (mut tree, mut next) = (MinTree::new(slots), slots as u64);
        (0..slots).for_each(|slot| tree.set(slot, slot as u64));
        group.bench_function(BenchmarkId::from_parameter(slots), |bencher| {
            bencher.iter(|| {
                let (slot, _) = tree.min().expect("no slot is empty");
                tree.set(slot, next);
                next += 1;
                black_box(slot)
            });
        });
    }
    group.finish();
}
