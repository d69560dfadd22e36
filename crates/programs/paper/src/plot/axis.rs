//! Axes: from values to positions, and the ticks.

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    /// Logarithmic, to base two.
    Log2,
}

/// One axis of a panel.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// The quantity and its unit.
    pub(crate) label: String,
    pub(crate) scale: Scale,
    /// Both ends; taken from the data where `None`.
    pub(crate) range: (Option<f64>, Option<f64>),
    /// Ticks instead of round numbers.
    pub(crate) ticks: Option<Vec<f64>>,
}

impl Axis {
    /// From zero, linear.
    pub(crate) fn from_zero(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear, range: (Some(0.0), None), ticks: None }
    }

    /// With ticks at these values only; the ends are the first and the last.
    pub(crate) fn at(label: &str, scale: Scale, ticks: &[f64]) -> Self {
        let range = (ticks.first().copied(), ticks.last().copied());
        Self { label: label.to_owned(), scale, range, ticks: Some(ticks.to_vec()) }
    }

    pub(crate) fn between(label: &str, low: f64, high: f64) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear, range: (Some(low), Some(high)), ticks: None }
    }

    /// Fixed for the data of one panel.
    pub(crate) fn fit(&self, values: impl Iterator<Item = f64>) -> Fitted {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let low = self.range.0.unwrap_or(low);
        // Some space above the highest value.
        let high = self.range.1.unwrap_or(low + (high - low).max(1e-9) * 1.06);
        let ticks = self.ticks.clone().unwrap_or_else(|| match self.scale {
            Scale::Linear => round_ticks(low, high),
            Scale::Log2 => doublings(low, high),
        });
        Fitted { scale: self.scale, low, high, ticks }
    }
}

/// An axis whose ends are known.
#[derive(Clone, Debug)]
pub(crate) struct Fitted {
    scale: Scale,
    low: f64,
    high: f64,
    pub(crate) ticks: Vec<f64>,
}

impl Fitted {
    /// Where a value lies, from 0 at the low end to 1 at the high end; values beyond the ends lie at them.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let on = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log2 => value.max(f64::MIN_POSITIVE).log2(),
        };
        ((on(value) - on(self.low)) / (on(self.high) - on(self.low))).clamp(0.0, 1.0)
    }

    /// Whether a value lies between the ends.
    pub(crate) fn holds(&self, value: f64) -> bool {
        let slack = 1e-9 * (self.high - self.low).abs();
        value >= self.low - slack && value <= self.high + slack
    }
}

/// Four to seven round numbers between two values.
fn round_ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 4.5;
    let magnitude = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|s| s * magnitude).find(|step| *step >= rough).unwrap_or(rough);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|n| n as f64 * step).collect()
}

fn doublings(low: f64, high: f64) -> Vec<f64> {
    let first = low.log2().ceil() as i32;
    (first..=high.log2().floor() as i32).map(|power| 2_f64.powi(power)).collect()
}

/// A tick's number: thousands as `k`, no superfluous digits.
pub(crate) fn tick_text(value: f64) -> String {
    let short = |value: f64| {
        let rounded = (value * 1000.0).round() / 1000.0;
        format!("{rounded}")
    };
    match value.abs() {
        v if v >= 999_999.5 => format!("{}M", short(value / 1e6)),
        v if v >= 1000.0 => format!("{}k", short(value / 1e3)),
        _ => short(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(round_ticks(0.0, 5839.0), [0.0, 2000.0, 4000.0]);
        assert_eq!(round_ticks(0.0, 1.0), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(doublings(3.0, 64.0), [4.0, 8.0, 16.0, 32.0, 64.0]);
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.25, 999.0, 1500.0, 20_000.0, 2.5e6].map(tick_text);
        assert_eq!(texts, ["0", "0.25", "999", "1.5k", "20k", "2.5M"]);
    }

    #[test]
    fn places_follow_the_scale() {
        let axis = Axis { scale: Scale::Log2, range: (Some(1.0), Some(16.0)), ..Axis::from_zero("") };
        let fitted = axis.fit([].into_iter());
        assert_eq!(fitted.place(4.0), 0.5);
        assert!(fitted.holds(16.0) && !fitted.holds(17.0));
        assert_eq!(Axis::from_zero("").fit([5.0, f64::NAN].into_iter()).place(6.0), 1.0);
    }
}
