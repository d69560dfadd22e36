//! The zoo, and Table 4's ResNet50, as processes beside the simulator. Measured by `benches/live_over_simulated.py`,
//! shown again here.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::data::{self, LiveRow};
use crate::page::number;
use crate::report::Table;

/// The scenario of the figure.
const ZOO: &str = "zoo";
/// What each case is, in words.
const CASES: [(&str, &str); 2] = [("table4", "ResNet50 of Table 4, 8 GPUs"), (ZOO, "35 models, 64 GPUs")];

/// The median goodput of the zoo as processes; none if no run met the SLOs at any rate.
pub(super) fn goodput() -> Option<f64> {
    let rows = data::fig6_live();
    let of_zoo = series(&rows).into_iter().filter(|series| series[0].case == ZOO && series[0].settings.is_empty());
    let mut found: Vec<f64> = of_zoo.flat_map(|series| runs(&series)).filter_map(|run| run.live_goodput_rps).collect();
    found.sort_by(f64::total_cmp);
    found.get(found.len() / 2).copied()
}

/// The measured file as it is.
pub(super) fn table() -> Table {
    let header = data::FIG6_LIVE.lines().next().unwrap_or_default().split(',').collect();
    let records = csv::Reader::from_reader(data::FIG6_LIVE.as_bytes()).into_records();
    let rows = records.filter_map(Result::ok).map(|record| record.iter().map(str::to_owned).collect());
    Table { suffix: "-live", header, rows: rows.collect(), measured: true }
}

/// The rows of each case and of the same settings and scale, in the order of the file.
fn series(rows: &[LiveRow]) -> Vec<Vec<&LiveRow>> {
    let mut all: Vec<Vec<&LiveRow>> = Vec::new();
    for row in rows {
        let same = |series: &&mut Vec<&LiveRow>| {
            let first = series[0];
            (&first.case, &first.settings, first.scale) == (&row.case, &row.settings, row.scale)
        };
        match all.iter_mut().find(same) {
            Some(series) => series.push(row),
            None => all.push(vec![row]),
        }
    }
    all
}

/// A row of each run: what holds for the whole run is in all of them.
fn runs<'a>(series: &[&'a LiveRow]) -> Vec<&'a LiveRow> {
    series.iter().map(|row| (row.run, *row)).collect::<BTreeMap<_, _>>().into_values().collect()
}

/// The case, how far its time is stretched, and its settings.
fn name(row: &LiveRow) -> String {
    let words = CASES.iter().find(|(case, _)| *case == row.case).map_or(&*row.case, |(_, words)| words);
    let settings = if row.settings.is_empty() { String::new() } else { format!(", `{}`", row.settings) };
    format!("{words}, k = {}{settings}", number(row.scale))
}

/// The section of the page.
pub(super) fn section() -> String {
    let mut rows = data::fig6_live();
    // In the file they are as they were measured.
    rows.sort_by(|a, b| (a.run, a.share, a.seed).partial_cmp(&(b.run, b.share, b.seed)).unwrap_or(Ordering::Equal));
    let Some(any) = rows.first() else { return String::new() };
    let mut text = format!(
        "### End to end\n\nThe same, and Table 4's ResNet50, as processes: a scheduler, a frontend, a backend with as many emulated GPUs and a client over \
         gRPC, on loopback, all on one machine of {} cores ({}) that others used as well; commit {}; policy `auto`. To fit the machine, time is \
         stretched: latencies and SLOs times k, rates divided by k. The schedule stays as it is, and what network and threads add is k times smaller \
         beside the SLO. Rates are told in the scenario's own time. The goodput is the highest share of the simulated one, in steps of 0.05, at which \
         no model has more than 1 % of requests that are not answered in time, at the client.\n\n\
         ```sh\nbenches/live_over_simulated.py target/release/symphony --runs 2 --seconds 20 --csv crates/programs/paper/data/symphony_fig6_live.csv\n\
         benches/live_over_simulated.py target/release/symphony --case zoo --seed 3 --seconds 20 --csv crates/programs/paper/data/symphony_fig6_live.csv\n\
         ```\n\n",
        any.cores, any.machine, any.commit,
    );
    text +=
        "| goodput, r/s | simulated | with the delays that are planned for | end to end, each run | over simulated |\n";
    text += "| --- | ---: | ---: | ---: | ---: |\n";
    let series = series(&rows);
    for series in &series {
        let (first, runs) = (series[0], runs(series));
        let each = |of: fn(&LiveRow) -> Option<f64>| {
            let cells = runs.iter().map(|run| of(run).map_or_else(|| "–".to_owned(), number));
            cells.collect::<Vec<_>>().join(", ")
        };
        text += &format!(
            "| {} | {} | {} | {} | {} |\n",
            name(first),
            number(first.simulated_goodput_rps),
            number(first.with_delays_goodput_rps),
            each(|run| run.live_goodput_rps),
            each(|run| run.live_over_simulated),
        );
    }
    text += "\nRequests in time, in %, at shares of the simulated goodput; the simulator has the load that was really offered. Where the difference comes \
             from is told by simulating it again, each time with more of what the cluster met: the delays that it plans for; batches that end as late \
             as they did, and what comes off deadlines for that; profiles as the cluster corrects them (it plans with the 90 % quantile of what \
             batches take), which simulated batches then take as well, so that corrections cost at most so much. What is left are pauses of the \
             machine and the client's way. The last column tells how many threads of the cluster waited for a core, in the mean.\n";
    let percent = |share: f64| format!("{:.2}", 100.0 * share);
    for series in &series {
        text += &format!("\n{}:\n\n", name(series[0]));
        text += "| run | share | simulated | with delays | with lateness | with corrections | end to end | the worst model | \
                 late, dropped, failed of offered | waited for a core |\n";
        text += "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
        for row in series {
            let shares = [
                row.in_time_simulated,
                row.in_time_with_delays,
                row.in_time_with_lateness,
                row.in_time_with_corrections,
                row.in_time_live,
                row.worst_model_live,
            ];
            let LiveRow { run, share, late, dropped, failed, offered, waited_for_cores, .. } = row;
            text += &format!(
                "| {run} | {share} | {} | {late}, {dropped}, {failed} of {offered} | {waited_for_cores:.1} |\n",
                shares.map(percent).join(" | ")
            );
        }
    }
    text
}
