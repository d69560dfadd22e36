//! A timeline as a picture: a row per GPU, with the queue length below.

use std::fmt::Write as _;

use symphony_types::Time;

use crate::timeline::{Batch, Timeline};

const WIDTH: f64 = 1400.0;
const LEFT: f64 = 120.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 86.0;
const QUEUE_HEIGHT: f64 = 110.0;
const QUEUE_GAP: f64 = 44.0;
const BOTTOM: f64 = 48.0;
/// Up to this many rows have the full height; more rows share the space, down to the least height.
const FULL_ROWS: u32 = 24;
const ROW_MAX: f64 = 30.0;
const ROW_MIN: f64 = 7.0;
/// The most GPUs in a picture; a note counts those left out.
const GPUS_SHOWN_MAX: u32 = 256;
/// Space in the legend for a note about further models.
const LEGEND_REST: f64 = 110.0;
/// Colours that most people can distinguish, also side by side; they repeat for further models.
const COLOURS: [&str; 12] = [
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7", "#bab0ac", "#d37295",
    "#a0cbe8", "#8cd17d",
];
const INK: &str = "#222";
const MUTED: &str = "#767676";
const FAULT: &str = "#c62828";

struct Picture<'a> {
    timeline: &'a Timeline,
    gpus: u32,
    row: f64,
    out: String,
}

impl Timeline {
    /// The timeline as an SVG picture.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let gpus = self.gpus.min(GPUS_SHOWN_MAX);
        let row = (ROW_MAX * f64::from(FULL_ROWS) / f64::from(gpus.max(1))).clamp(ROW_MIN, ROW_MAX);
        let mut picture = Picture { timeline: self, gpus, row, out: String::new() };
        picture.draw();
        picture.out
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn ms(at: Time) -> f64 {
    at.as_nanos() as f64 / 1e6
}

fn colour(model: u32) -> &'static str {
    COLOURS[model as usize % COLOURS.len()]
}

/// The smallest of 1, 2, 5, 10, 20, … that is at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|factor| factor * power).find(|&step| step >= least * 0.999).unwrap_or(power)
}

/// `writeln!` into a string cannot fail.
macro_rules! put {
    ($picture:expr, $($format:tt)*) => {
        let _ = writeln!($picture.out, $($format)*);
    };
}

impl Picture<'_> {
    fn x(&self, at: Time) -> f64 {
        let (from, until) = (ms(self.timeline.range.from), ms(self.timeline.range.until));
        let share = ((ms(at) - from) / (until - from).max(1e-6)).clamp(0.0, 1.0);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, gpu: u32) -> f64 {
        TOP + f64::from(gpu) * self.row
    }

    fn rows_end(&self) -> f64 {
        self.y(self.gpus)
    }

    fn draw(&mut self) {
        let height = self.rows_end() + QUEUE_GAP + QUEUE_HEIGHT + BOTTOM;
        put!(
            self,
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0}" viewBox="0 0 {WIDTH} {height:.0}" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="{INK}">
<defs><pattern id="away" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="#e9e9e9"/><line x1="0" y1="0" x2="0" y2="6" stroke="#b5b5b5" stroke-width="2"/></pattern></defs>
<rect width="{WIDTH}" height="{height:.0}" fill="white"/>"##
        );
        self.heading();
        self.time_axis();
        self.gpu_rows();
        for batch in &self.timeline.batches {
            self.batch(batch);
        }
        self.outages();
        self.queue();
        self.out.push_str("</svg>\n");
    }

    fn heading(&mut self) {
        let timeline = self.timeline;
        let (from, until) = (timeline.range.from.as_secs_f64(), timeline.range.until.as_secs_f64());
        put!(self, r#"<text x="24" y="30" font-size="17" font-weight="bold">{}</text>"#, escaped(&timeline.title));
        let left_out = match (timeline.is_cut, timeline.gpus > self.gpus) {
            (true, _) => ", cut: too many events",
            (_, true) => ", first GPUs only",
            _ => "",
        };
        put!(
            self,
            r#"<text x="{:.1}" y="30" text-anchor="end" fill="{MUTED}">{from:.3} s to {until:.3} s{left_out}</text>"#,
            WIDTH - RIGHT
        );
        let (mut x, mut shown) = (24.0, 0);
        for (model, name) in (0_u32..).zip(&timeline.model_names) {
            // A long name is cut.
            let name: String = name.chars().take(22).collect();
            let width = 34.0 + 6.6 * name.chars().count() as f64;
            if x + width > WIDTH - RIGHT - LEGEND_REST {
                break;
            }
            let (fill, name) = (colour(model), escaped(&name));
            put!(
                self,
                r#"<g transform="translate({x:.1} 46)"><rect width="12" height="12" rx="2" fill="{fill}"/><text x="18" y="10">{name}</text></g>"#
            );
            (x, shown) = (x + width, shown + 1);
        }
        if timeline.model_names.len() > shown {
            let more = timeline.model_names.len() - shown;
            put!(self, r#"<text x="{x:.1}" y="56" fill="{MUTED}">and {more} more</text>"#);
        }
        let y = 46.0 + 18.0;
        let mut x = 24.0;
        for (swatch, words) in [
            (
                format!(r#"<rect width="12" height="12" rx="2" fill="white" stroke="{FAULT}" stroke-width="2"/>"#),
                "answered late",
            ),
            (
                r##"<line x1="0" y1="6" x2="12" y2="6" stroke="#000" stroke-width="3"/>"##.to_owned(),
                "start window: frontrun to latest",
            ),
            (r#"<rect width="12" height="12" fill="url(#away)"/>"#.to_owned(), "failed"),
            (format!(r#"<line x1="6" y1="0" x2="6" y2="12" stroke="{FAULT}" stroke-width="1.5"/>"#), "request dropped"),
        ] {
            put!(
                self,
                r#"<g transform="translate({x:.1} {y:.1})" fill="{MUTED}">{swatch}<text x="18" y="10">{words}</text></g>"#
            );
            x += 40.0 + 6.2 * words.chars().count() as f64;
        }
    }

    fn time_axis(&mut self) {
        let (from, until) = (ms(self.timeline.range.from), ms(self.timeline.range.until));
        let step = round_step((until - from).max(1e-3) / 14.0);
        let bottom = self.rows_end() + QUEUE_GAP + QUEUE_HEIGHT;
        let mut tick = (from / step).ceil() * step;
        // At most fourteen steps plus rounding; the limit guards against numbers too large to add to.
        for _ in 0..64 {
            if tick > until + step * 1e-6 {
                break;
            }
            let x = LEFT + (tick - from) / (until - from).max(1e-6) * (WIDTH - LEFT - RIGHT);
            put!(self, r##"<line x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom:.1}" stroke="#e6e6e6"/>"##);
            let label = if step < 1.0 { format!("{tick:.2}") } else { format!("{tick:.0}") };
            put!(
                self,
                r#"<text x="{x:.1}" y="{:.1}" text-anchor="middle" fill="{MUTED}">{label}</text>"#,
                bottom + 18.0
            );
            tick += step;
        }
        put!(self, r#"<text x="{LEFT}" y="{:.1}" fill="{MUTED}">time in ms</text>"#, bottom + 36.0);
    }

    fn gpu_rows(&mut self) {
        // Labels of narrow rows would overlap, so only every n-th row has one.
        let every = (12.0 / self.row).ceil().max(1.0) as u32;
        for gpu in 0..self.gpus {
            let (y, height) = (self.y(gpu) + self.row * 0.1, self.row * 0.8);
            let width = WIDTH - LEFT - RIGHT;
            put!(
                self,
                r##"<rect x="{LEFT}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="#000" fill-opacity="0.035"/>"##
            );
            if gpu % every == 0 {
                let (x, middle) = (LEFT - 10.0, y + height / 2.0 + 4.0);
                let kind = escaped(self.timeline.kind_of(gpu));
                put!(
                    self,
                    r#"<text x="{x:.1}" y="{middle:.1}" text-anchor="end"><tspan fill="{MUTED}">{kind}</tspan><tspan dx="6">{gpu}</tspan></text>"#
                );
            }
        }
    }

    fn batch(&mut self, batch: &Batch) {
        let (run, plan) = (&batch.run, &batch.run.plan);
        if plan.gpu.get() >= self.gpus {
            return;
        }
        let (left, right) = (self.x(run.start), self.x(run.end));
        let (top, height) = (self.y(plan.gpu.get()) + self.row * 0.1, self.row * 0.8);
        let width = (right - left - 0.6).max(0.4);
        let stroke = if batch.late > 0 { format!(r#" stroke="{FAULT}" stroke-width="2""#) } else { String::new() };
        let opacity = if batch.cut { 0.35 } else { 1.0 };
        let name = escaped(&self.timeline.model_names[run.model as usize]);
        let fill = colour(run.model);
        put!(
            self,
            r#"<g><title>{name} ×{}: ran {:.3} to {:.3} ms, planned {:.3} to {:.3}, window {:.3} to {:.3}, due {:.3}, {} late{}</title><rect x="{left:.2}" y="{top:.1}" width="{width:.2}" height="{height:.1}" rx="1.5" fill="{fill}" fill-opacity="{opacity}"{stroke}/>"#,
            plan.batch,
            ms(run.start),
            ms(run.end),
            ms(plan.start),
            ms(plan.end),
            ms(batch.frontrun),
            ms(batch.latest),
            ms(plan.must_end_by),
            batch.late,
            if batch.cut { ", stopped" } else { "" },
        );
        if batch.frontrun < self.timeline.range.until && batch.latest > self.timeline.range.from {
            let (opens, closes, y) = (self.x(batch.frontrun), self.x(batch.latest), top + height - 1.5);
            put!(
                self,
                r##"<line x1="{opens:.2}" y1="{y:.1}" x2="{:.2}" y2="{y:.1}" stroke="#000" stroke-opacity="0.75" stroke-width="2"/>"##,
                closes.max(opens + 1.0)
            );
        }
        let label = plan.batch.to_string();
        if self.row >= 14.0 && width > 8.0 * label.len() as f64 + 4.0 {
            let (x, y) = (left + width / 2.0, top + height / 2.0 + 3.5);
            put!(
                self,
                r#"<text x="{x:.1}" y="{y:.1}" text-anchor="middle" fill="white" font-size="11">{label}</text>"#
            );
        }
        self.out.push_str("</g>\n");
    }

    fn outages(&mut self) {
        for &(gpu, from, until) in &self.timeline.outages {
            if gpu.get() >= self.gpus || until < self.timeline.range.from || from > self.timeline.range.until {
                continue;
            }
            let (left, right) = (self.x(from), self.x(until));
            let (top, height) = (self.y(gpu.get()) + self.row * 0.1, self.row * 0.8);
            let width = (right - left).max(1.0);
            put!(
                self,
                r#"<rect x="{left:.2}" y="{top:.1}" width="{width:.2}" height="{height:.1}" fill="url(#away)"><title>failed</title></rect>"#
            );
        }
    }

    /// All waiting requests as a stepped area, with drops marked above it.
    fn queue(&mut self) {
        let timeline = self.timeline;
        let (top, bottom) = (self.rows_end() + QUEUE_GAP, self.rows_end() + QUEUE_GAP + QUEUE_HEIGHT);
        let mut by_model: Vec<u64> = timeline.waiting_at_first.iter().copied().map(u64::from).collect();
        let mut total: u64 = by_model.iter().sum();
        let mut most = total.max(1);
        let mut steps: Vec<(f64, u64)> = vec![(LEFT, total)];
        for length in &timeline.queues {
            let model = &mut by_model[length.model as usize];
            total = total - *model + u64::from(length.waiting);
            *model = u64::from(length.waiting);
            most = most.max(total);
            let x = self.x(length.at);
            // Changes within a third of a pixel are invisible: the highest value represents them.
            match steps.last_mut().filter(|(at, _)| x - *at < 0.33) {
                Some((_, highest)) => *highest = (*highest).max(total),
                None => steps.push((x, total)),
            }
        }
        let scale = round_step(most as f64);
        let y = |waiting: u64| bottom - waiting as f64 / scale * QUEUE_HEIGHT;
        let mut path = format!("M{LEFT:.1} {bottom:.1}");
        let mut level = bottom;
        for (x, waiting) in steps {
            let _ = write!(path, "L{x:.1} {level:.1}L{x:.1} {:.1}", y(waiting));
            level = y(waiting);
        }
        let right = WIDTH - RIGHT;
        put!(
            self,
            r##"<path d="{path}L{right:.1} {level:.1}L{right:.1} {bottom:.1}Z" fill="#4e79a7" fill-opacity="0.25" stroke="#4e79a7" stroke-width="1"/>"##
        );
        put!(self, r##"<line x1="{LEFT}" y1="{bottom:.1}" x2="{right:.1}" y2="{bottom:.1}" stroke="#999"/>"##);
        put!(self, r#"<text x="{LEFT}" y="{:.1}" font-weight="bold">requests waiting, all models</text>"#, top - 12.0);
        for share in [0.0, 0.5, 1.0] {
            let (label, y) = (scale * share, bottom - share * QUEUE_HEIGHT);
            put!(
                self,
                r#"<text x="{:.1}" y="{:.1}" text-anchor="end" fill="{MUTED}">{label}</text>"#,
                LEFT - 10.0,
                y + 4.0
            );
            put!(self, r##"<line x1="{LEFT}" y1="{y:.1}" x2="{right:.1}" y2="{y:.1}" stroke="#e6e6e6"/>"##);
        }
        let mut last_x = f64::NEG_INFINITY;
        for &(at, _) in &timeline.drops {
            let x = self.x(at);
            if x - last_x >= 0.5 {
                put!(self, r#"<line x1="{x:.1}" y1="{:.1}" x2="{x:.1}" y2="{top:.1}" stroke="{FAULT}"/>"#, top - 8.0);
                last_x = x;
            }
        }
    }
}
