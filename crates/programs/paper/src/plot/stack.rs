//! A panel of stacked areas: the parts of a whole over time.

use super::axis::{Axis, tick_text};
use super::style::{AXIS, GRID, INK, LABEL, PANEL, QUIET};
use super::svg::{Anchor, Svg};

/// One part: its value at each of the panel's places.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) colour: String,
    pub(crate) values: Vec<f64>,
}

impl Layer {
    /// The colour of the part at `index` of this many: all hues once, neighbours light and dark in turn.
    pub(crate) fn colour(index: usize, of: usize) -> String {
        let hue = 360.0 * index as f64 / of.max(1) as f64;
        let light = if index.is_multiple_of(2) { 46 } else { 66 };
        format!("hsl({hue:.0},58%,{light}%)")
    }
}

/// The panel.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Where the layers have values.
    pub(crate) at: Vec<f64>,
    /// From the lowest up.
    pub(crate) layers: Vec<Layer>,
}

impl Stack {
    pub(crate) fn draw(&self, svg: &mut Svg, (left, top): (f64, f64), (width, height): (f64, f64)) {
        let mut sums = vec![vec![0.0; self.at.len()]];
        for layer in &self.layers {
            let below = &sums[sums.len() - 1];
            sums.push(below.iter().zip(&layer.values).map(|(below, value)| below + value).collect());
        }
        let x = self.x.fit(self.at.iter().copied());
        let y = self.y.fit(sums[sums.len() - 1].iter().copied());
        let (x0, y0) = (left + 46.0, top + 44.0);
        let (x1, y1) = (left + width - 14.0, top + height - 40.0);
        let at_x = |value: f64| x0 + x.place(value) * (x1 - x0);
        let at_y = |value: f64| y1 - y.place(value) * (y1 - y0);

        svg.text((left + 8.0, top + 14.0), &self.title, PANEL, INK, Anchor::Start, true);
        svg.text((left + 8.0, top + 31.0), &self.y.label, LABEL, QUIET, Anchor::Start, false);
        for &tick in &y.ticks {
            svg.line((x0, at_y(tick)), (x1, at_y(tick)), GRID, 1.0, false);
            svg.text((x0 - 6.0, at_y(tick) + 4.0), &tick_text(tick), LABEL, QUIET, Anchor::End, false);
        }
        // Each area goes down to the axis, and those below are painted over it: half of the corners.
        for (layer, tops) in self.layers.iter().zip(&sums[1..]).rev() {
            let mut corners: Vec<_> = self.at.iter().zip(tops).map(|(&at, &top)| (at_x(at), at_y(top))).collect();
            if let (Some(first), Some(last)) = (corners.first().copied(), corners.last().copied()) {
                corners.extend([(last.0, y1), (first.0, y1)]);
                svg.area(&corners, &layer.colour);
            }
        }
        for &tick in &x.ticks {
            svg.line((at_x(tick), y1), (at_x(tick), y1 + 4.0), AXIS, 1.0, false);
            svg.text((at_x(tick), y1 + 17.0), &tick_text(tick), LABEL, QUIET, Anchor::Middle, false);
        }
        svg.line((x0, y1), (x1, y1), AXIS, 1.0, false);
        svg.text((f64::midpoint(x0, x1), y1 + 33.0), &self.x.label, LABEL, QUIET, Anchor::Middle, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_lie_on_top_of_each_other_and_each_has_a_colour() {
        let layer = |index, values: [f64; 2]| Layer { colour: Layer::colour(index, 2), values: values.to_vec() };
        let stack = Stack {
            title: "parts".to_owned(),
            x: Axis::between("time, s", 0.0, 1.0),
            y: Axis::between("r/s", 0.0, 10.0),
            at: vec![0.0, 1.0],
            layers: vec![layer(0, [2.0, 3.0]), layer(1, [8.0, 2.0])],
        };
        let mut svg = Svg::new();
        stack.draw(&mut svg, (0.0, 0.0), (160.0, 184.0));
        let document = svg.finish(160.0, 184.0, "parts");
        // The axis is from y = 144 up to 44: the upper layer reaches 10 and 5, the lower one 2 and 3.
        let [upper, lower] = ["46,44 146,94 146,144 46,144", "46,124 146,114 146,144 46,144"]
            .map(|corners| document.find(corners).unwrap_or_else(|| panic!("{corners} in {document}")));
        assert!(upper < lower && document.contains("hsl(0,58%,46%)") && document.contains("hsl(180,58%,66%)"));
    }
}
