//! `QuotaBook`: what one report of a frontend costs the leader of the control group, which has one a second from each.

mod measured;

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use symphony_quotas::{Demand, QuotaBook, TenantDemand};
use symphony_types::FrontendId;

const TENANTS: [u32; 2] = [10, 1000];
const FRONTENDS: [u32; 2] = [10, 100];

fn main() {
    measured::run(&[report]);
}

/// Both quotas of every tenant, each asked for another amount than a second before.
fn demands(tenants: u32, round: u32) -> BTreeMap<String, TenantDemand> {
    let demand = |tenant: u32| {
        let offered = f64::from((tenant * 31 + round * 17) % 100);
        let demand = Some(Demand { quota: 1000.0, offered, held: 10.0 });
        (format!("tenant-{tenant}"), TenantDemand { items: demand, gpu_seconds: demand })
    };
    (0..tenants).map(demand).collect()
}

fn report(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("quotas/report");
    for (tenants, frontends) in TENANTS.into_iter().flat_map(|tenants| FRONTENDS.map(|count| (tenants, count))) {
        group.throughput(Throughput::Elements(tenants.into()));
        let all: BTreeSet<_> = (1..=frontends).map(FrontendId::new).collect();
        let rounds: Vec<_> = (0..7).map(|round| demands(tenants, round)).collect();
        let mut book = QuotaBook::default();
        for &frontend in &all {
            book.report(frontend, &all, &rounds[frontend.get() as usize % rounds.len()]);
        }
        let mut reports = all.iter().copied().cycle().zip(rounds.iter().cycle());
        let name = BenchmarkId::from_parameter(format!("{tenants}x{frontends}"));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let (frontend, demands) = reports.next().expect("they go round");
                black_box(book.report(frontend, &all, demands))
            });
        });
    }
    group.finish();
}
