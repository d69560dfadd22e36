//! SVG elements as text. Coordinates are rounded to a tenth of a pixel, so equal plots are equal bytes.

use std::fmt::Write as _;

use super::style::{Marker, PAPER};

/// Inter where it is installed, otherwise the machine's substitute.
const FONTS: &str = "Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif";

/// Which end of a text its position names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A document under construction.
#[derive(Debug)]
pub(crate) struct Svg {
    body: String,
}

/// A number without a trailing `.0`.
fn px(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    // No minus sign before a zero.
    format!("{}", if rounded == 0.0 { 0.0 } else { rounded })
}

/// A text for documents of markup.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The approximate width of a text, good enough to place legends: widths of a common sans serif, as parts of its size.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let em: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.3,
            'f' | 't' | 'r' | ' ' | '(' | ')' | '-' | '/' => 0.38,
            'm' | 'w' | 'M' | 'W' | '%' | '–' | '—' => 0.88,
            'A'..='Z' => 0.68,
            _ => 0.58,
        })
        .sum();
    em * size
}

impl Svg {
    pub(crate) fn new() -> Self {
        Self { body: String::new() }
    }

    /// Lines of elements; writing into a string cannot fail.
    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    pub(crate) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str, opacity: f64) {
        let (x, y, width, height) = (px(x), px(y), px(width.max(0.0)), px(height.max(0.0)));
        let opacity = if opacity < 1.0 { format!(r#" fill-opacity="{opacity}""#) } else { String::new() };
        self.push(format_args!(
            r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="1.5" fill="{fill}"{opacity}/>"#
        ));
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64, dashed: bool) {
        let dash = if dashed { r#" stroke-dasharray="5 4""# } else { "" };
        self.push(format_args!(
            r#"<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="{colour}" stroke-width="{width}"{dash}/>"#,
            px(from.0),
            px(from.1),
            px(to.0),
            px(to.1)
        ));
    }

    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], colour: &str, width: f64, dashed: bool) {
        let points: Vec<_> = points.iter().map(|&(x, y)| format!("{},{}", px(x), px(y))).collect();
        let dash = if dashed { r#" stroke-dasharray="5 4""# } else { "" };
        self.push(format_args!(
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round" stroke-linecap="round"{dash}/>"#,
            points.join(" ")
        ));
    }

    /// A filled area without a rim.
    pub(crate) fn area(&mut self, corners: &[(f64, f64)], fill: &str) {
        let corners: Vec<_> = corners.iter().map(|&(x, y)| format!("{},{}", px(x), px(y))).collect();
        self.push(format_args!(r#"<polygon points="{}" fill="{fill}"/>"#, corners.join(" ")));
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), text: &str, size: f64, colour: &str, anchor: Anchor, bold: bool) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let bold = if bold { r#" font-weight="600""# } else { "" };
        let (x, y, text) = (px(x), px(y), escaped(text));
        self.push(format_args!(
            r#"<text x="{x}" y="{y}" font-size="{size}" fill="{colour}"{anchor}{bold}>{text}</text>"#
        ));
    }

    /// A text that stays readable on top of lines: with a rim in the colour of the paper.
    pub(crate) fn text_on_lines(&mut self, (x, y): (f64, f64), text: &str, size: f64, colour: &str, anchor: Anchor) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        if text.is_empty() {
            return;
        }
        let (x, y, text) = (px(x), px(y), escaped(text));
        self.push(format_args!(
            r#"<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" stroke="{PAPER}" stroke-width="3.5" stroke-linejoin="round" paint-order="stroke">{text}</text>"#
        ));
    }

    pub(crate) fn marker(&mut self, marker: Marker, (x, y): (f64, f64), r: f64, colour: &str) {
        let polygon = |svg: &mut Self, points: &[(f64, f64)]| {
            let points: Vec<_> = points.iter().map(|&(dx, dy)| format!("{},{}", px(x + dx), px(y + dy))).collect();
            svg.push(format_args!(
                r#"<polygon points="{}" fill="{colour}" stroke="{PAPER}" stroke-width="0.8"/>"#,
                points.join(" ")
            ));
        };
        match marker {
            Marker::Circle => self.push(format_args!(
                r#"<circle cx="{}" cy="{}" r="{}" fill="{colour}" stroke="{PAPER}" stroke-width="0.8"/>"#,
                px(x),
                px(y),
                px(r)
            )),
            Marker::Square => {
                let s = 0.9 * r;
                polygon(self, &[(-s, -s), (s, -s), (s, s), (-s, s)]);
            }
            Marker::Up => polygon(self, &[(0.0, -1.2 * r), (1.1 * r, 0.8 * r), (-1.1 * r, 0.8 * r)]),
            Marker::Down => polygon(self, &[(0.0, 1.2 * r), (1.1 * r, -0.8 * r), (-1.1 * r, -0.8 * r)]),
            Marker::Diamond => polygon(self, &[(0.0, -1.3 * r), (1.3 * r, 0.0), (0.0, 1.3 * r), (-1.3 * r, 0.0)]),
            Marker::Cross => {
                let s = 0.8 * r;
                self.line((x - s, y - s), (x + s, y + s), colour, 1.8, false);
                self.line((x - s, y + s), (x + s, y - s), colour, 1.8, false);
            }
        }
    }

    /// The paper's own value: a hollow diamond, a marker that no series of ours has.
    pub(crate) fn theirs(&mut self, (x, y): (f64, f64), colour: &str) {
        let r = 5.2;
        let points = [(x, y - r), (x + r, y), (x, y + r), (x - r, y)];
        let points: Vec<_> = points.iter().map(|&(x, y)| format!("{},{}", px(x), px(y))).collect();
        self.push(format_args!(
            r#"<polygon points="{}" fill="{PAPER}" fill-opacity="0.85" stroke="{colour}" stroke-width="1.6"/>"#,
            points.join(" ")
        ));
    }

    /// The document, with its size and a description for screen readers.
    pub(crate) fn finish(self, width: f64, height: f64, description: &str) -> String {
        let (width, height, description) = (px(width), px(height), escaped(description));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"{FONTS}\" role=\"img\">\n<title>{description}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"{PAPER}\"/>\n{}</svg>\n",
            self.body
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_numbers_are_short() {
        let mut svg = Svg::new();
        svg.text((1.04, -0.01), "β/α < 2 & more", 10.0, "#000", Anchor::Start, false);
        let document = svg.finish(10.0, 20.0, "a \"b\"");
        assert!(document.contains(r#"x="1" y="0""#), "{document}");
        assert!(document.contains("β/α &lt; 2 &amp; more") && document.contains("a &quot;b&quot;"));
    }
}
