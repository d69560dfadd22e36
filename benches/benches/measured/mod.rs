//! How the benchmarks of single structures are measured.

use std::time::Duration;

use criterion::Criterion;

/// Runs benchmarks with short measurements, enough for structures of nanoseconds, and what the command line says.
pub(crate) fn run(benchmarks: &[fn(&mut Criterion)]) {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    benchmarks.iter().for_each(|benchmark| benchmark(&mut criterion));
    criterion.final_summary();
}
