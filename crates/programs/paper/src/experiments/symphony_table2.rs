//! The Symphony paper, Table 2 (section 3.3): independent round robin by several frontends makes the number of requests
//! that reach a backend in a window fluctuate.

use anyhow::Result;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::cell;
use crate::data::{self, Table2Row};
use crate::lab::Lab;
use crate::page::number;
use crate::plot::{Axis, Draw, Figure, Lines, Panel, Series, Style};
use crate::report::{Comparison, Plot, Report, Table};

pub(crate) fn run(lab: &Lab<'_>) -> Result<Report> {
    let rows = data::table2();
    let windows = lab.pick(20_000, 1_000);
    let counted = lab.map(&rows, |row| Counts::simulate(row, windows));

    let mut table = Table::new(&["window_ms", "rate_rps", "frontends", "mean", "paper_mean", "std", "paper_std"]);
    let mut shares = Table { suffix: "-distribution", ..Table::new(&["window_ms", "frontends", "requests", "share"]) };
    let mut comparisons = Vec::new();
    for (row, counts) in rows.iter().zip(&counted) {
        let Table2Row { window_ms, avg_request_rate_rps, frontends, mean_rpw, std_rpw, .. } = row;
        let (mean, std) = counts.mean_and_std();
        table.rows.push(vec![
            number(*window_ms),
            number(*avg_request_rate_rps),
            frontends.to_string(),
            cell(mean, 3),
            number(*mean_rpw),
            cell(std, 3),
            cell(*std_rpw, 3),
        ]);
        for (requests, share) in counts.shares() {
            shares.rows.push(vec![number(*window_ms), frontends.to_string(), requests.to_string(), cell(share, 6)]);
        }
        let s = if *frontends == 1 { "" } else { "s" };
        comparisons.push(Comparison::printed(
            format!("std_{window_ms}ms_{frontends}fe"),
            format!("standard deviation of requests in {window_ms} ms, {frontends} frontend{s}"),
            *std_rpw,
            Some(std),
            "",
            "Table 2",
        ));
    }
    let panels = [400.0, 200.0].map(|window_ms| panel(window_ms, &rows, &counted));
    let figure = Figure {
        title: "Each frontend deals evenly; together they do not".to_owned(),
        subtitle:
            "How many requests one of 100 backends receives in a window: exponential gaps, round robin at each frontend"
                .to_owned(),
        columns: 2,
        panels: panels.to_vec(),
        theirs: String::new(),
        note: "The Symphony paper, Table 2.".to_owned(),
    };
    Ok(Report {
        plots: vec![Plot { suffix: "", figure }],
        tables: vec![table, shares],
        comparisons,
        setup: format!(
            "Requests with exponential gaps reach the frontends in equal parts. Each frontend deals its requests to 100 backends in \
             turn, beginning anywhere. Requests are counted per backend over {windows} windows."
        ),
        differences: vec![
            "None that matters. With several frontends the spread depends a little on where each begins its round, since a backend gets a \
             whole number of rounds and a fraction from each; ours begin at independent random places, and the paper does not say where \
             its do."
                .to_owned(),
        ],
        missing: Vec::new(),
    })
}

fn panel(window_ms: f64, rows: &[Table2Row], counted: &[Counts]) -> Panel {
    let of_window: Vec<_> = rows.iter().zip(counted).filter(|(row, _)| row.window_ms == window_ms).collect();
    let stds: Vec<_> = of_window.iter().map(|(_, counts)| cell(counts.mean_and_std().1, 2)).collect();
    let title = format!("{window_ms:.0} ms windows: standard deviation {}", stds.join(" and "));
    let mut lines = Lines::new(&title, Axis::from_zero("requests in a window"), Axis::from_zero("share of windows, %"));
    for (index, (row, counts)) in of_window.iter().enumerate() {
        let s = if row.frontends == 1 { "" } else { "s" };
        let points = counts.shares().map(|(requests, share)| (requests as f64 - 0.5, 100.0 * share));
        // Beginning on the ground.
        let first = counts.shares().next().map_or(0.0, |(requests, _)| requests as f64 - 0.5);
        let points = std::iter::once((first, 0.0)).chain(points);
        lines.series.push(Series {
            style: Style::plain(&format!("{} frontend{s}", row.frontends), index),
            draw: Draw::Steps,
            points: points.collect(),
        });
    }
    lines.x.range = (None, None);
    Panel::Lines(lines)
}

/// How often a window had each number of requests.
struct Counts(Vec<u64>);

impl Counts {
    fn simulate(row: &Table2Row, windows: usize) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(row.frontends as u64);
        let window_s = row.window_ms / 1e3;
        let rate = row.avg_request_rate_rps / row.frontends as f64;
        // Requests by window and backend.
        let mut received = vec![0_u16; windows * row.backends];
        for _ in 0..row.frontends {
            let mut backend = random.random_range(0..row.backends);
            let mut at_s = 0.0;
            loop {
                let gap: f64 = Exp1.sample(&mut random);
                at_s += gap / rate;
                let window = (at_s / window_s) as usize;
                if window >= windows {
                    break;
                }
                received[window * row.backends + backend] += 1;
                backend = (backend + 1) % row.backends;
            }
        }
        let most = received.iter().max().map_or(0, |&most| usize::from(most));
        let mut counts = vec![0; most + 2];
        received.iter().for_each(|&requests| counts[usize::from(requests)] += 1);
        Self(counts)
    }

    fn shares(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let all: u64 = self.0.iter().sum();
        let first = self.0.iter().position(|&count| count > 0).unwrap_or(0).saturating_sub(1);
        self.0.iter().enumerate().skip(first).map(move |(requests, &count)| (requests, count as f64 / all as f64))
    }

    fn mean_and_std(&self) -> (f64, f64) {
        let mean: f64 = self.shares().map(|(requests, share)| requests as f64 * share).sum();
        let variance: f64 = self.shares().map(|(requests, share)| (requests as f64 - mean).powi(2) * share).sum();
        (mean, variance.sqrt())
    }
}
