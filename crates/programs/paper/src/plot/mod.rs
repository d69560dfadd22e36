//! Every plot of the reports: one width, one typography, one palette.

mod axis;
mod bars;
mod figure;
mod lines;
mod stack;
mod style;
mod svg;

pub(crate) use axis::{Axis, Scale};
pub(crate) use bars::{Bar, Bars};
pub(crate) use figure::{Figure, Panel};
pub(crate) use lines::{Draw, Lines, Rule, Series};
pub(crate) use stack::{Layer, Stack};
pub(crate) use style::{Marker, Style};
pub(crate) use svg::escaped;
