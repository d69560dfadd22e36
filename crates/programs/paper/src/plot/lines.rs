//! A panel with two axes: lines, steps, reference lines, and the paper's values.

use super::axis::{Axis, tick_text};
use super::style::{AXIS, GRID, INK, LABEL, PANEL, QUIET, Style, THEIRS};
use super::svg::{Anchor, Svg};

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draw {
    /// A line with markers at the points.
    Points,
    /// A line alone: for many points.
    Line,
    /// A staircase: each value holds until the next point.
    Steps,
    /// Markers without a line.
    Marks,
}

#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) style: Style,
    pub(crate) draw: Draw,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A reference line with its label.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// At a y value.
    Level(f64, String),
    /// Between two y values: a statement of the paper's text.
    Band(f64, f64, String),
    /// At an x value.
    Upright(f64, String),
}

/// The panel.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    pub(crate) rules: Vec<Rule>,
    /// The paper's values at (x, y), each in the colour of its system.
    pub(crate) theirs: Vec<(f64, f64, &'static str)>,
}

impl Lines {
    pub(crate) fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self { title: title.to_owned(), x, y, series: Vec::new(), rules: Vec::new(), theirs: Vec::new() }
    }

    pub(crate) fn draw(&self, svg: &mut Svg, (left, top): (f64, f64), (width, height): (f64, f64)) {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let x = self.x.fit(points().map(|point| point.0).chain(self.theirs.iter().map(|mark| mark.0)));
        let heights = self.rules.iter().flat_map(|rule| match *rule {
            Rule::Level(y, _) => vec![y],
            Rule::Band(low, high, _) => vec![low, high],
            Rule::Upright(..) => vec![],
        });
        let marks = self.theirs.iter().map(|mark| mark.1);
        let y = self.y.fit(points().map(|point| point.1).chain(marks).chain(heights));

        // The axis label is horizontal, above the axis.
        let (x0, y0) = (left + 46.0, top + 44.0);
        let (x1, y1) = (left + width - 14.0, top + height - 40.0);
        let at_x = |value: f64| x0 + x.place(value) * (x1 - x0);
        let at_y = |value: f64| y1 - y.place(value) * (y1 - y0);

        svg.text((left + 8.0, top + 14.0), &self.title, PANEL, INK, Anchor::Start, true);
        svg.text((left + 8.0, top + 31.0), &self.y.label, LABEL, QUIET, Anchor::Start, false);
        for rule in &self.rules {
            if let Rule::Band(low, high, _) = rule {
                svg.rect((x0, at_y(*high)), (x1 - x0, at_y(*low) - at_y(*high)), "#111111", 0.06);
            }
        }
        for &tick in &y.ticks {
            svg.line((x0, at_y(tick)), (x1, at_y(tick)), GRID, 1.0, false);
            svg.text((x0 - 6.0, at_y(tick) + 4.0), &tick_text(tick), LABEL, QUIET, Anchor::End, false);
        }
        for &tick in &x.ticks {
            svg.line((at_x(tick), y1), (at_x(tick), y1 + 4.0), AXIS, 1.0, false);
            svg.text((at_x(tick), y1 + 17.0), &tick_text(tick), LABEL, QUIET, Anchor::Middle, false);
        }
        svg.line((x0, y1), (x1, y1), AXIS, 1.0, false);
        svg.text((f64::midpoint(x0, x1), y1 + 33.0), &self.x.label, LABEL, QUIET, Anchor::Middle, false);

        for series in &self.series {
            let inside = series.points.iter().filter(|point| x.holds(point.0) && point.1.is_finite());
            let places: Vec<_> = inside.map(|&(px, py)| (at_x(px), at_y(py))).collect();
            let style = &series.style;
            match series.draw {
                Draw::Steps => svg.polyline(&staircase(&places), style.colour, 1.8, style.dashed),
                Draw::Marks => {}
                _ => svg.polyline(&places, style.colour, 2.0, style.dashed),
            }
            if matches!(series.draw, Draw::Points | Draw::Marks) {
                places.iter().for_each(|&place| svg.marker(style.marker, place, 3.4, style.colour));
            }
        }
        for rule in &self.rules {
            match rule {
                Rule::Level(level, words) => {
                    svg.line((x0, at_y(*level)), (x1, at_y(*level)), "#6b7280", 1.2, true);
                    svg.text_on_lines((x1 - 4.0, at_y(*level) - 5.0), words, LABEL, QUIET, Anchor::End);
                }
                Rule::Band(low, high, words) => {
                    // Inside of the band if it is high enough for words, else above.
                    let inside = at_y(*low) - at_y(*high) > 20.0;
                    let y = if inside { at_y(*low) } else { at_y(*high) } - 5.0;
                    svg.text_on_lines((x0 + 6.0, y), words, LABEL, QUIET, Anchor::Start);
                }
                Rule::Upright(place, words) => {
                    svg.line((at_x(*place), y0), (at_x(*place), y1), "#6b7280", 1.2, true);
                    let (dx, anchor) = if x.place(*place) > 0.6 { (-5.0, Anchor::End) } else { (5.0, Anchor::Start) };
                    svg.text_on_lines((at_x(*place) + dx, y0 + 8.0), words, LABEL, QUIET, anchor);
                }
            }
        }
        for &(mark_x, mark_y, colour) in &self.theirs {
            svg.theirs((at_x(mark_x), at_y(mark_y)), if colour.is_empty() { THEIRS } else { colour });
        }
    }
}

/// The corners of a staircase through the points.
fn staircase(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::with_capacity(2 * points.len());
    for &(x, y) in points {
        if let Some(&(_, before)) = corners.last() {
            corners.push((x, before));
        }
        corners.push((x, y));
    }
    corners
}
