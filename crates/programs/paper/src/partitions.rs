//! Partitioning problems, drawn as in section A.2 of the Symphony paper.

use rand::{Rng as _, SeedableRng as _};
use rand_distr::Exp1;
use rand_xoshiro::Xoshiro256PlusPlus;
use symphony_partitioner::{GpuKind, KindNeed, Model, Part, PartKind, Problem, Steadiness};
use symphony_types::{LatencyProfile, Nanos};

use crate::data::{self, Table1Row};

const MB: f64 = 1_048_576.0;
/// Mean rate of a model in requests per second; only shares matter.
const RATE_RPS: f64 = 100.0;
/// Variants differ from their model by this share at most, up or down.
const VARIANT: f64 = 0.1;
/// R_max and S_max over the average of a part.
const ROOM: f64 = 1.3;

/// Models of Table 5 with variants, rates exponential, in parts that are alike, one GPU kind, no GPUs. S_max leaves
/// room for the largest dynamic memory.
pub(crate) fn drawn(models: usize, parts: usize, seed: u64) -> Problem {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let zoo = zoo();
    let drawn: Vec<Model> = (0..models)
        .map(|at| {
            let (name, held, dynamic, profile, slo) = &zoo[rng.random_range(0..zoo.len())];
            let mut varied = |megabytes: f64| (megabytes * MB * rng.random_range(1.0 - VARIANT..1.0 + VARIANT)) as u64;
            let need = KindNeed {
                static_memory_bytes: varied(*held),
                dynamic_memory_bytes: varied(*dynamic),
                profile: profile.clone(),
            };
            Model {
                name: format!("{name}-{at}"),
                rate_rps: RATE_RPS * rng.sample::<f64, _>(Exp1),
                slo: *slo,
                needs: vec![Some(need)],
                move_cost: 1.0,
                pin: None,
            }
        })
        .collect();
    let needs = || drawn.iter().flat_map(|model| model.needs.iter().flatten());
    let memory: u64 = needs().map(|need| need.static_memory_bytes).sum();
    let largest = needs().map(|need| need.dynamic_memory_bytes).max().unwrap_or(0);
    let memory_max_bytes = (memory as f64 / parts as f64 * ROOM) as u64 + largest;
    let rate: f64 = drawn.iter().map(|model| model.rate_rps).sum();
    // A few models need more: one of them may have most of the rate.
    let most = drawn.iter().map(|model| model.rate_rps).fold(0.0, f64::max);
    let rate_max_rps = (rate / parts as f64 * ROOM).max(rate / parts as f64 + most);
    let part = |at: usize| Part {
        name: format!("s-{at}"),
        rate_max_rps,
        share: 1.0,
        kinds: vec![PartKind { kind: 0, memory_max_bytes }],
    };
    Problem {
        // Sub-clusters of hundreds of models need more memory than a 1080 Ti has; what is divided stays the same.
        kinds: vec![GpuKind { name: "1080ti".to_owned(), memory_bytes: memory_max_bytes }],
        parts: (0..parts).map(part).collect(),
        models: drawn,
        gpus: Vec::new(),
        memory_weight: 1.0,
        disruption_max: None,
        steadiness: Steadiness::default(),
    }
}

/// The same problem after an epoch in which each rate has changed by up to this share.
pub(crate) fn drifted(problem: &Problem, share: f64, seed: u64) -> Problem {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut problem = problem.clone();
    problem.models.iter_mut().for_each(|model| model.rate_rps *= rng.random_range(1.0 - share..1.0 + share));
    problem
}

/// Name, static and dynamic memory in MB, profile and SLO of each model of Table 5.
fn zoo() -> Vec<(String, f64, f64, LatencyProfile, Nanos)> {
    let table1 = data::table1();
    let files = data::zoo_files();
    let fit = |what: &dyn Fn(&Table1Row) -> f64| line(&table1, what);
    let (held, dynamic) = (fit(&|row| row.static_mem_mb), fit(&|row| row.dynamic_mem_mb));
    let model = |row: data::ZooRow| {
        let file = files.iter().find(|file| file.name == row.name).map_or(0.0, |file| file.file_mb);
        let slo = Nanos::from_millis_f64(row.slo_ms);
        let profile = LatencyProfile::from_line(row.alpha_ms, row.beta_ms, 16);
        let profile = profile.expect("Table 5 has lines; a test reads it");
        let printed = table1.iter().find(|printed| printed.model == row.name);
        let (held, dynamic) = printed.map_or((held.0 + held.1 * file, dynamic.0 + dynamic.1 * file), |printed| {
            (printed.static_mem_mb, printed.dynamic_mem_mb)
        });
        (row.name, held, dynamic, profile, slo)
    };
    data::zoo_1080ti().into_iter().map(model).collect()
}

/// Least squares over the size of the file: intercept and slope.
fn line(rows: &[Table1Row], what: &dyn Fn(&Table1Row) -> f64) -> (f64, f64) {
    let count = rows.len() as f64;
    let mean_x = rows.iter().map(|row| row.file_mb).sum::<f64>() / count;
    let mean_y = rows.iter().map(what).sum::<f64>() / count;
    let up: f64 = rows.iter().map(|row| (row.file_mb - mean_x) * (what(row) - mean_y)).sum();
    let across: f64 = rows.iter().map(|row| (row.file_mb - mean_x).powi(2)).sum();
    (mean_y - up / across * mean_x, up / across)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_of_table_5_has_memory_and_those_of_table_1_the_printed_one() {
        let zoo = zoo();
        assert_eq!(zoo.len(), 35);
        assert!(
            zoo.iter()
                .all(|(_, held, dynamic, ..)| (60.0..1000.0).contains(held) && (1500.0..7000.0).contains(dynamic))
        );
        let vgg = zoo.iter().find(|(name, ..)| name == "VGG16").unwrap();
        assert_eq!((vgg.1, vgg.2), (822.0, 6200.0));
        let (base, slope) = line(&data::table1(), &|row| row.static_mem_mb);
        assert!((50.0..60.0).contains(&base) && (1.3..1.6).contains(&slope), "{base} + {slope}·file");
    }

    #[test]
    fn equal_seeds_draw_equal_problems() {
        assert_eq!(drawn(30, 3, 7), drawn(30, 3, 7));
        assert_ne!(drawn(30, 3, 7), drawn(30, 3, 8));
        drawn(30, 3, 7).check().unwrap();
    }
}
