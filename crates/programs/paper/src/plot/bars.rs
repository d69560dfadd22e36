//! A panel of horizontal bars, each with its name before it and its value behind it.

use super::axis::{Axis, tick_text};
use super::style::{AXIS, GRID, INK, LABEL, PANEL, QUIET, Style, THEIRS};
use super::svg::{Anchor, Svg, text_width};

#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) style: Style,
    /// `None` where this build has no such system; the paper's value is still drawn.
    pub(crate) value: Option<f64>,
    /// The text behind it.
    pub(crate) text: String,
    /// The paper's value, or both ends of its range.
    pub(crate) theirs: Option<(f64, f64)>,
}

/// The panel.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    pub(crate) title: String,
    /// The axis along the bars.
    pub(crate) axis: Axis,
    pub(crate) bars: Vec<Bar>,
    /// Vertical reference lines, with labels.
    pub(crate) rules: Vec<(f64, String)>,
}

/// Distance between two bars.
pub(crate) const PITCH: f64 = 25.0;
const THICK: f64 = 15.0;

impl Bars {
    /// The height of the panel.
    pub(crate) fn height(&self) -> f64 {
        34.0 + PITCH * self.bars.len() as f64 + if self.rules.is_empty() { 0.0 } else { 14.0 } + 44.0
    }

    pub(crate) fn draw(&self, svg: &mut Svg, (left, top): (f64, f64), (width, _): (f64, f64)) {
        let theirs = self.bars.iter().filter_map(|bar| bar.theirs).flat_map(|(low, high)| [low, high]);
        let values = self.bars.iter().filter_map(|bar| bar.value);
        let axis = self.axis.fit(values.chain(theirs).chain(self.rules.iter().map(|rule| rule.0)));
        let names = self.bars.iter().map(|bar| text_width(&bar.style.label, LABEL)).fold(0.0, f64::max);
        let present = self.bars.iter().filter(|bar| bar.value.is_some());
        let words = present.map(|bar| text_width(&bar.text, LABEL)).fold(0.0, f64::max);
        let rules_height = if self.rules.is_empty() { 0.0 } else { 14.0 };
        let (x0, y0) = (left + 8.0 + names + 10.0, top + 26.0 + rules_height);
        let (x1, y1) = (left + width - 14.0 - words, y0 + 4.0 + PITCH * self.bars.len() as f64);
        let at = |value: f64| x0 + axis.place(value) * (x1 - x0);

        svg.text((left + 8.0, top + 14.0), &self.title, PANEL, INK, Anchor::Start, true);
        for &tick in &axis.ticks {
            svg.line((at(tick), y0), (at(tick), y1), GRID, 1.0, false);
            svg.text((at(tick), y1 + 15.0), &tick_text(tick), LABEL, QUIET, Anchor::Middle, false);
        }
        svg.line((x0, y0), (x0, y1), AXIS, 1.0, false);
        svg.text((f64::midpoint(x0, x1), y1 + 31.0), &self.axis.label, LABEL, QUIET, Anchor::Middle, false);
        let leftmost = self.rules.iter().map(|rule| rule.0).fold(f64::INFINITY, f64::min);
        for (place, words) in &self.rules {
            svg.line((at(*place), y0 - 3.0), (at(*place), y1), "#6b7280", 1.2, true);
            // Of two labels, the left one ends at its line and the right one begins there.
            let anchor = match self.rules.len() {
                1 => Anchor::Middle,
                _ if *place == leftmost => Anchor::End,
                _ => Anchor::Start,
            };
            svg.text((at(*place), y0 - 7.0), words, LABEL, QUIET, anchor, false);
        }
        for (index, bar) in self.bars.iter().enumerate() {
            let middle = y0 + 4.0 + PITCH * (index as f64 + 0.5);
            let quiet = bar.value.is_none();
            let ink = if quiet { QUIET } else { INK };
            svg.text((x0 - 8.0, middle + 4.0), &bar.style.label, LABEL, ink, Anchor::End, false);
            let mut end = x0;
            if let Some(value) = bar.value {
                end = at(value);
                svg.rect((x0, middle - THICK / 2.0), (end - x0, THICK), bar.style.colour, 1.0);
            }
            if let Some((low, high)) = bar.theirs {
                if high > low {
                    svg.line((at(low), middle), (at(high), middle), THEIRS, 1.6, false);
                    svg.theirs((at(low), middle), THEIRS);
                }
                svg.theirs((at(high), middle), THEIRS);
                end = end.max(at(high) + 4.0);
            }
            svg.text_on_lines((end + 6.0, middle + 4.0), &bar.text, LABEL, ink, Anchor::Start);
        }
    }
}
