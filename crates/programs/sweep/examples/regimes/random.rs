//! Regimes at random, for which none was tuned.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::regime::{Model, Regime, UNIFORM, gpu_text, model_text, workload_text, zoo};

/// A recorded trace is repeated to this many rows, so that a fast replay does not run out of it.
const TRACE_ROWS: usize = 400_000;

/// Recorded arrivals as a trace, repeated end to end.
fn trace(data: &Path, file: &str) -> Result<String, Box<dyn Error>> {
    let text = std::fs::read_to_string(data.join(file))?;
    let times: Vec<f64> = text.lines().skip(1).filter_map(|line| line.split(',').next()?.parse::<f64>().ok()).collect();
    let (first, last) = (times.first().ok_or("an empty trace")?, times.last().ok_or("an empty trace")?);
    let period = last - first + (last - first) / times.len() as f64;
    let mut csv = "time_s\n".to_owned();
    for round in 0..TRACE_ROWS.div_ceil(times.len()) {
        for time in &times {
            writeln!(csv, "{:.6}", (time - first + period * round as f64) / 1e3)?;
        }
    }
    Ok(csv)
}

/// This many regimes of all kinds.
pub(crate) fn random(data: &Path, cases: usize, draw: u64) -> Result<Vec<Regime>, Box<dyn Error>> {
    let zoos = [zoo(data, "symphony_table5_1080ti.csv")?, zoo(data, "symphony_table6_a100.csv")?];
    let traces =
        [trace(data, "azure_llm_2023_conv_arrivals.csv")?, trace(data, "azure_llm_2023_code_arrivals_part1.csv")?];
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(draw);
    let log_uniform = |random: &mut Xoshiro256PlusPlus, least: f64, most: f64| -> f64 {
        (random.random_range(least.ln()..=most.ln())).exp()
    };
    let mut regimes = Vec::new();
    for case in 0..cases {
        let own = random.random_range(0..2_usize);
        let two_kinds = random.random_bool(0.25);
        let other = &zoos[1 - own];
        let mut models: Vec<(Model, Option<Model>)> = zoos[own]
            .iter()
            .map(|m| (m.clone(), other.iter().find(|o| o.name == m.name).cloned()))
            .filter(|(_, o)| !two_kinds || o.is_some())
            .collect();
        models.shuffle(random);
        models.truncate(log_uniform(random, 1.0, models.len() as f64).round() as usize);
        let gpus = log_uniform(random, 4.0, 96.0).round() as u32;
        let kinds = ["1080ti", "a100"];
        let mut text = if two_kinds {
            let first = random.random_range(1..gpus);
            gpu_text(kinds[own], first) + &gpu_text(kinds[1 - own], gpus - first)
        } else {
            gpu_text(kinds[own], gpus)
        };
        let items = match random.random_range(0..20) {
            0..=13 => "",
            14..=16 => "items = { uniform = [1, 2] }\n",
            _ => "items = { uniform = [1, 4] }\n",
        };
        for (m, o) in &models {
            let slo_ms = ((m.slo_ms * log_uniform(random, 0.8, 4.0)) * 10.0).round() / 10.0;
            // At least the time of four items, so that there is something to serve.
            let least = |m: &Model| m.beta_ms + 4.0 * m.alpha_ms + 3.0;
            let slo_ms = slo_ms.max(least(m)).max(o.as_ref().filter(|_| two_kinds).map_or(0.0, least));
            let (alpha, beta) = match o {
                Some(o) if two_kinds => (
                    format!("{{ {} = {:?}, {} = {:?} }}", kinds[own], m.alpha_ms, kinds[1 - own], o.alpha_ms),
                    format!("{{ {} = {:?}, {} = {:?} }}", kinds[own], m.beta_ms, kinds[1 - own], o.beta_ms),
                ),
                _ => (format!("{:?}", m.alpha_ms), format!("{:?}", m.beta_ms)),
            };
            text += &model_text(&m.name, 1, &alpha, &beta, slo_ms, items);
        }
        text += [
            "",
            "",
            "[network]\nctrl_us = 20\ndata_us_per_item = 10\nreply_us = 20\n",
            "[network]\nctrl_us = 200\ndata_us_per_item = 60\nreply_us = 300\n",
        ][random.random_range(0..4_usize)];
        let sigma = [0.0, 0.0, 0.01, 0.03, 0.08][random.random_range(0..5_usize)];
        if sigma > 0.0 {
            writeln!(text, "[execution]\nnoise = {{ lognormal_sigma = {sigma:?} }}")?;
        }
        let popularity = match random.random_bool(0.5) {
            true => UNIFORM.to_owned(),
            false => format!("{{ zipf = {:.2} }}", random.random_range(0.5..1.5)),
        };
        let (arrival, recorded) = match random.random_range(0..20) {
            0..=7 => ("\"poisson\"".to_owned(), None),
            8..=16 => (format!("{{ gamma = {:.3} }}", log_uniform(random, 0.05, 1.0)), None),
            _ => ("{ trace_csv = \"trace.csv\" }".to_owned(), Some(traces[random.random_range(0..2_usize)].clone())),
        };
        text += &workload_text(&arrival, &popularity);
        let group = match sigma {
            0.0 => "noise 0",
            0.01 => "noise 1 %",
            0.03 => "noise 3 %",
            _ => "noise 8 %",
        };
        let kinds = if two_kinds { "both" } else { kinds[own] };
        let arrival = arrival.replace(['"', '{', '}', ','], "").replace(" ", "");
        let name = format!("r{draw}-{case} {} of {kinds} on {gpus} {arrival} {sigma}", models.len());
        regimes.push(Regime { name, group, text, trace: recorded });
    }
    Ok(regimes)
}
