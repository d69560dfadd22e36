//! The regimes by name, and those of the grid of the paper's Table 3.

use std::error::Error;
use std::path::Path;

use crate::grid_cases::{Case, line_of};
use crate::regime::{Model, Regime, UNIFORM, gpu_text, model_text, workload_text, zoo};

/// The regimes of docs/adr/0008 and the zoos of the paper.
pub(crate) fn named(data: &Path) -> Result<Vec<Regime>, Box<dyn Error>> {
    let mut regimes = Vec::new();
    let mut alike =
        |name: &str, (count, alpha, beta): (u32, f64, f64), slo_ms: f64, gpus: u32, arrival: &str, popularity: &str| {
            let text = gpu_text("x", gpus)
                + &model_text("m", count, &format!("{alpha:?}"), &format!("{beta:?}"), slo_ms, "")
                + &workload_text(arrival, popularity);
            regimes.push(Regime { name: name.to_owned(), group: "named", text, trace: None });
        };
    let poisson = "\"poisson\"";
    let (resnet, inception, densenet, bert) = ((1.053, 5.072), (5.090, 18.368), (1.061, 10.312), (7.008, 0.159));
    alike("table4 resnet50", (1, resnet.0, resnet.1), 25.0, 8, poisson, UNIFORM);
    alike("table4 inceptionresnetv2", (1, inception.0, inception.1), 70.0, 8, poisson, UNIFORM);
    for slo_ms in [15.0, 25.0, 50.0, 100.0] {
        alike(&format!("20 resnet50 32 gpus {slo_ms} ms"), (20, resnet.0, resnet.1), slo_ms, 32, poisson, UNIFORM);
        let gamma = "{ gamma = 0.05 }";
        alike(&format!("20 resnet50 32 gpus {slo_ms} ms gamma"), (20, resnet.0, resnet.1), slo_ms, 32, gamma, UNIFORM);
        let zipf = "{ zipf = 0.9 }";
        alike(&format!("20 resnet50 32 gpus {slo_ms} ms zipf"), (20, resnet.0, resnet.1), slo_ms, 32, poisson, zipf);
    }
    alike("16 densenet121 32 gpus 30 ms", (16, densenet.0, densenet.1), 30.0, 32, poisson, UNIFORM);
    alike("16 densenet121 32 gpus 50 ms", (16, densenet.0, densenet.1), 50.0, 32, poisson, UNIFORM);
    alike("16 bert 32 gpus 56 ms", (16, bert.0, bert.1), 56.0, 32, poisson, UNIFORM);
    // SLOs that leave little time besides a batch.
    let inceptionv3 = (1.964, 8.771);
    let (zipf, gamma) = ("{ zipf = 0.9 }", |shape: f64| format!("{{ gamma = {shape} }}"));
    alike("tight: 20 inceptionv3 32 gpus 20 ms zipf", (20, inceptionv3.0, inceptionv3.1), 20.0, 32, poisson, zipf);
    alike("tight: 8 densenet121 14 gpus 20 ms zipf", (8, densenet.0, densenet.1), 20.0, 14, poisson, zipf);
    alike("tight: 16 densenet121 24 gpus 20 ms", (16, densenet.0, densenet.1), 20.0, 24, poisson, UNIFORM);
    alike("tight: 16 densenet121 24 gpus 20 ms gamma", (16, densenet.0, densenet.1), 20.0, 24, &gamma(0.5), UNIFORM);
    alike("tight: 8 densenet121 12 gpus 20 ms gamma", (8, densenet.0, densenet.1), 20.0, 12, &gamma(0.5), UNIFORM);
    alike("tight: 8 densenet121 8 gpus 20 ms gamma", (8, densenet.0, densenet.1), 20.0, 8, &gamma(0.7), UNIFORM);
    alike("tight: 8 inceptionv3 8 gpus 20 ms gamma", (8, inceptionv3.0, inceptionv3.1), 20.0, 8, &gamma(0.2), UNIFORM);
    alike("tight: 8 bert 12 gpus 25 ms", (8, bert.0, bert.1), 25.0, 12, poisson, UNIFORM);
    alike("20 resnet50 8 gpus 50 ms", (20, resnet.0, resnet.1), 50.0, 8, poisson, UNIFORM);
    for (kind, file) in [("1080ti", "symphony_table5_1080ti.csv"), ("a100", "symphony_table6_a100.csv")] {
        let models = zoo(data, file)?;
        type Keeps = fn(&Model) -> bool;
        let parts: [(&str, Keeps); 3] =
            [("all", |_| true), ("gt2", |m| m.beta_ms > 2.0 * m.alpha_ms), ("lt2", |m| m.beta_ms <= 2.0 * m.alpha_ms)];
        for (part, keeps) in parts {
            let mut text = gpu_text(kind, 64);
            for m in models.iter().filter(|m| keeps(m)) {
                let (alpha, beta) = (format!("{:?}", m.alpha_ms), format!("{:?}", m.beta_ms));
                text += &model_text(&m.name, 1, &alpha, &beta, m.slo_ms, "");
            }
            text += &workload_text(poisson, UNIFORM);
            regimes.push(Regime { name: format!("zoo {kind} {part}"), group: "zoo", text, trace: None });
        }
    }
    Ok(regimes)
}

/// This many cases of the grid, as the example `grid` draws them.
pub(crate) fn grid(data: &Path, cases: usize, draw: u64) -> Result<Vec<Regime>, Box<dyn Error>> {
    let profiles = std::fs::read_to_string(data.join("symphony_table5_1080ti.csv"))?;
    let regime = |case: Case| -> Result<Regime, Box<dyn Error>> {
        let Case { model, count, gpus, slo_ms, shape, .. } = &case;
        let name = format!("grid {count} {model} on {gpus}, {slo_ms} ms, gamma {shape}");
        let text = case.text(line_of(&profiles, model)?, (1, 1));
        Ok(Regime { name, group: "grid", text, trace: None })
    };
    Case::draw(cases, draw).into_iter().map(regime).collect()
}
