//! Colours, markers and type sizes.
//!
//! Colours are Okabe and Ito's, which people with any colour vision tell apart; each system also has a marker of its
//! own, so that a plot can be read in grey.

/// The ink of titles.
pub(crate) const INK: &str = "#1b1f24";
/// The ink of axis labels, subtitles and notes.
pub(crate) const QUIET: &str = "#5b6470";
/// Grid lines.
pub(crate) const GRID: &str = "#e6e9ed";
/// Axis lines.
pub(crate) const AXIS: &str = "#9aa3ad";
/// The background: the plots stay readable on dark pages.
pub(crate) const PAPER: &str = "#ffffff";
/// Values that the paper gives.
pub(crate) const THEIRS: &str = "#111111";

/// Type sizes in pixels.
pub(crate) const TITLE: f64 = 18.0;
/// See [`TITLE`].
pub(crate) const SUBTITLE: f64 = 13.0;
/// Titles of panels.
pub(crate) const PANEL: f64 = 13.0;
/// Legends, axis labels, values.
pub(crate) const LABEL: f64 = 11.5;

/// The shape at the points of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Up,
    Down,
    Diamond,
    Cross,
}

/// How one series looks, everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) label: String,
    pub(crate) colour: &'static str,
    pub(crate) marker: Marker,
    pub(crate) dashed: bool,
}

impl Style {
    pub(crate) fn new(label: &str, colour: &'static str, marker: Marker) -> Self {
        Self { label: label.to_owned(), colour, marker, dashed: false }
    }

    /// The colours for series that are not systems, in this order.
    pub(crate) fn plain(label: &str, index: usize) -> Self {
        const COLOURS: [&str; 6] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
        const MARKERS: [Marker; 6] =
            [Marker::Circle, Marker::Square, Marker::Up, Marker::Diamond, Marker::Down, Marker::Cross];
        Self::new(label, COLOURS[index % 6], MARKERS[index % 6])
    }

    /// Calculated values: bounds and ideals.
    pub(crate) fn ideal(label: &str) -> Self {
        Self { dashed: true, ..Self::new(label, "#6b7280", Marker::Cross) }
    }
}
