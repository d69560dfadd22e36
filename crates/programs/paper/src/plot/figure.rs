//! A whole figure: title, legend, panels in columns, and a note.

use super::bars::Bars;
use super::lines::{Draw, Lines};
use super::stack::Stack;
use super::style::{INK, LABEL, QUIET, SUBTITLE, Style, THEIRS, TITLE};
use super::svg::{Anchor, Svg, text_width};

/// The width of every figure in pixels: what a page of prose shows without scrolling.
const WIDTH: f64 = 920.0;
const MARGIN: f64 = 20.0;
const GAP: f64 = 18.0;
/// The height of a panel with two axes.
const PANEL_HEIGHT: f64 = 270.0;

/// A panel of any kind.
#[derive(Clone, Debug)]
pub(crate) enum Panel {
    Lines(Lines),
    Bars(Bars),
    Stack(Stack),
}

impl Panel {
    fn height(&self) -> f64 {
        match self {
            Self::Lines(_) | Self::Stack(_) => PANEL_HEIGHT,
            Self::Bars(bars) => bars.height(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) columns: usize,
    pub(crate) panels: Vec<Panel>,
    /// What the paper's marks stand for, in the legend; empty if there are none.
    pub(crate) theirs: String,
    pub(crate) note: String,
}

/// An entry of the legend.
enum Key {
    Ours(Style, Draw),
    Theirs(String),
}

impl Key {
    fn label(&self) -> &str {
        match self {
            Self::Ours(style, _) => &style.label,
            Self::Theirs(label) => label,
        }
    }
}

impl Figure {
    /// The document.
    pub(crate) fn render(&self) -> String {
        let mut svg = Svg::new();
        svg.text((MARGIN + 8.0, 36.0), &self.title, TITLE, INK, Anchor::Start, true);
        let mut y = 40.0;
        for line in wrapped(&self.subtitle, WIDTH - 2.0 * MARGIN - 16.0, SUBTITLE) {
            y += 18.0;
            svg.text((MARGIN + 8.0, y), &line, SUBTITLE, QUIET, Anchor::Start, false);
        }
        y = self.draw_legend(&mut svg, y + 12.0);

        let columns = self.columns.max(1);
        let width = (WIDTH - 2.0 * MARGIN - GAP * (columns as f64 - 1.0)) / columns as f64;
        for row in self.panels.chunks(columns) {
            y += 12.0;
            for (column, panel) in row.iter().enumerate() {
                let corner = (MARGIN + column as f64 * (width + GAP), y);
                match panel {
                    Panel::Lines(lines) => lines.draw(&mut svg, corner, (width, panel.height())),
                    Panel::Bars(bars) => bars.draw(&mut svg, corner, (width, panel.height())),
                    Panel::Stack(stack) => stack.draw(&mut svg, corner, (width, panel.height())),
                }
            }
            y += row.iter().map(Panel::height).fold(0.0, f64::max);
        }
        for line in wrapped(&self.note, WIDTH - 2.0 * MARGIN - 16.0, LABEL) {
            y += 16.0;
            svg.text((MARGIN + 8.0, y), &line, LABEL, QUIET, Anchor::Start, false);
        }
        svg.finish(WIDTH, y + 18.0, &format!("{}. {}", self.title, self.subtitle))
    }

    fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = Vec::new();
        for panel in &self.panels {
            let Panel::Lines(lines) = panel else { continue };
            for series in lines.series.iter().filter(|series| !series.style.label.is_empty()) {
                if !keys.iter().any(|key| key.label() == series.style.label) {
                    keys.push(Key::Ours(series.style.clone(), series.draw));
                }
            }
        }
        if !self.theirs.is_empty() {
            keys.push(Key::Theirs(self.theirs.clone()));
        }
        keys
    }

    /// Returns where the legend ends.
    fn draw_legend(&self, svg: &mut Svg, top: f64) -> f64 {
        let keys = self.keys();
        if keys.is_empty() {
            return top - 8.0;
        }
        let (mut x, mut y) = (MARGIN + 8.0, top + 10.0);
        for key in &keys {
            let swatch = if matches!(key, Key::Theirs(_)) { 18.0 } else { 32.0 };
            let width = swatch + text_width(key.label(), LABEL) + 20.0;
            if x + width > WIDTH - MARGIN && x > MARGIN + 8.0 {
                (x, y) = (MARGIN + 8.0, y + 19.0);
            }
            match key {
                Key::Ours(style, draw) => {
                    if *draw != Draw::Marks {
                        svg.line((x, y - 4.0), (x + 24.0, y - 4.0), style.colour, 2.2, style.dashed);
                    }
                    if matches!(draw, Draw::Points | Draw::Marks) {
                        svg.marker(style.marker, (x + 12.0, y - 4.0), 3.6, style.colour);
                    }
                }
                Key::Theirs(_) => svg.theirs((x + 6.0, y - 4.0), THEIRS),
            }
            svg.text((x + swatch, y), key.label(), LABEL, INK, Anchor::Start, false);
            x += width;
        }
        y + 4.0
    }
}

/// Lines of words, none wider than `width`.
fn wrapped(text: &str, width: f64, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line, size) + text_width(word, size) + 0.3 * size <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Series};

    #[test]
    fn equal_figures_are_equal_bytes_and_every_series_is_in_the_legend_once() {
        let series = |label: &str, index| Series {
            style: Style::plain(label, index),
            draw: Draw::Points,
            points: vec![(1.0, 2.0), (2.0, f64::NAN), (3.0, 4.0)],
        };
        let mut panel = Lines::new("a panel", Axis::from_zero("x, s"), Axis::from_zero("y, r/s"));
        panel.series = vec![series("one", 0), series("two", 1)];
        let figure = Figure {
            title: "A figure".to_owned(),
            subtitle: "about nothing ".repeat(30),
            columns: 2,
            panels: vec![Panel::Lines(panel.clone()), Panel::Lines(panel)],
            theirs: "the paper".to_owned(),
            note: "seeds 1 to 3".to_owned(),
        };
        let document = figure.render();
        assert_eq!(document, figure.render());
        assert_eq!(document.matches(">one</text>").count(), 1);
        assert!(document.contains(">the paper</text>") && !document.contains("NaN"));
        assert_eq!(wrapped("a bb ccc", 1.0, 10.0), ["a", "bb", "ccc"]);
    }
}
