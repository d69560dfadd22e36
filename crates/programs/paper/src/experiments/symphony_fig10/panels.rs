//! The panels of Figure 10, and the ideals and bands in them.

use symphony_simulator::RunResult;

use super::{BAD_OFF_MAX, Course, IDLE_OFF_MAX, bad_beyond, idle_beyond, undemanded_beyond};
use crate::plot::{Axis, Draw, Figure, Lines, Marker, Panel, Rule, Series, Style};

/// The colour of the demand that a system reports, beside its measured values.
const DEMAND: &str = "#8c3800";

/// The figure: a series for each system, and the ideal at `peak`.
pub(super) fn figure(courses: &[Course], peak: f64) -> Figure {
    let mut goodput =
        Lines::new("Stability", Axis::from_zero("offered, r/s"), Axis::from_zero("answered in time, r/s"));
    let mut busy = Lines::new(
        "GPU use",
        Axis::from_zero("offered, r/s"),
        Axis::between("GPU time spent executing, or by demand, %", 0.0, 105.0),
    );
    let mut bad_off =
        differences("Bad rate less (offered − peak) ÷ offered", "points more than the overload, %", BAD_OFF_MAX);
    let mut idle_off =
        differences("Idle share less (peak − offered) ÷ peak", "points more than the spare load, %", IDLE_OFF_MAX);
    for course in courses {
        let percent = |run: &RunResult| 100.0 * run.offered_rps / course.peak;
        let style = course.system.style();
        goodput.series.push(points(&style, course, |run| Some((run.offered_rps, run.good_rps))));
        busy.series.push(points(&style, course, |run| Some((run.offered_rps, 100.0 * run.gpu_utilization))));
        bad_off.series.push(points(&style, course, |run| Some((percent(run), 100.0 * bad_beyond(run, course.peak)))));
        idle_off.series.push(points(&style, course, |run| Some((percent(run), 100.0 * idle_beyond(run, course.peak)))));
        let label = format!("{}, by demand", course.system.label);
        let style = Style { dashed: true, ..Style::new(&label, DEMAND, Marker::Diamond) };
        // What is beyond all of the GPU time cannot be spent.
        let demanded = |run: &RunResult| Some((run.offered_rps, 100.0 * run.demand_fraction?.min(1.0)));
        let by_demand = points(&style, course, demanded);
        // Only of systems that measure it.
        if !by_demand.points.is_empty() {
            busy.series.push(by_demand);
            let beyond = |run: &RunResult| Some((percent(run), 100.0 * undemanded_beyond(run, course.peak)?));
            idle_off.series.push(points(&style, course, beyond));
        }
    }
    let ideal = |of: fn(f64, f64) -> f64| Series {
        style: Style::ideal("ideal, at symphony's peak"),
        draw: Draw::Line,
        points: [0.0, peak, 2.0 * peak].map(|offered| (offered, of(offered, peak))).to_vec(),
    };
    goodput.series.push(ideal(f64::min));
    busy.series.push(ideal(|offered, peak| 100.0 * (offered / peak).min(1.0)));
    Figure {
        title: "Overload does not hurt, and idle GPUs or the demand tell the spare load".to_owned(),
        subtitle: "10 models like ResNet50, SLO 100 ms, equal popularity, Poisson, 24 GPUs".to_owned(),
        columns: 2,
        panels: [goodput, busy, bad_off, idle_off].map(Panel::Lines).into(),
        theirs: String::new(),
        note: "The Symphony paper, Figure 10.".to_owned(),
    }
}

/// A panel of differences from the ideal, with the band in which they should lie.
fn differences(title: &str, y: &str, most: f64) -> Lines {
    let axis = Axis { range: (None, None), ..Axis::from_zero(y) };
    let mut panel = Lines::new(title, Axis::from_zero("offered, % of the system's own peak"), axis);
    panel.rules.push(Rule::Band(-100.0 * most, 100.0 * most, format!("within {:.0} points", 100.0 * most)));
    panel
}

fn points(style: &Style, course: &Course, point: impl Fn(&RunResult) -> Option<(f64, f64)>) -> Series {
    let points = course.runs.iter().filter_map(point).collect();
    Series { style: style.clone(), draw: Draw::Points, points }
}
