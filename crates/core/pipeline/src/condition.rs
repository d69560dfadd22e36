//! `where`: which rows of a stage's result lead to a request of the next stage.

use std::fmt;
use std::str::FromStr;

/// The longest name of an output in a condition, in bytes: as long as names of models.
const OUTPUT_BYTES_MAX: usize = 63;

/// How a value is compared with the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `==`
    Equal,
    /// `!=`
    Unequal,
}

impl Comparison {
    /// Two characters before one, so that `>=` is not read as `>`.
    const ALL: [Self; 6] = [Self::AtLeast, Self::AtMost, Self::Equal, Self::Unequal, Self::Above, Self::Below];

    /// As it is written.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Above => ">",
            Self::AtLeast => ">=",
            Self::Below => "<",
            Self::AtMost => "<=",
            Self::Equal => "==",
            Self::Unequal => "!=",
        }
    }

    /// The comparison that is written so.
    #[must_use]
    pub fn of_sign(sign: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|comparison| comparison.sign() == sign)
    }
}

/// `scores > 0.5`: an output of the stage, a comparison, a number. The host evaluates it for each row.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The output whose rows are compared.
    pub output: String,
    /// The relation to the threshold.
    pub comparison: Comparison,
    /// With what; finite.
    pub threshold: f64,
}

impl Condition {
    /// Whether a row with this value passes. NaN passes only `!=`.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::Above => value > self.threshold,
            Comparison::AtLeast => value >= self.threshold,
            Comparison::Below => value < self.threshold,
            Comparison::AtMost => value <= self.threshold,
            Comparison::Equal => value == self.threshold,
            Comparison::Unequal => value != self.threshold,
        }
    }
}

impl FromStr for Condition {
    /// What was expected.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "an output, one of > >= < <= == !=, and a number, such as \"scores > 0.5\"";
        let found =
            Comparison::ALL.into_iter().filter_map(|comparison| Some((text.find(comparison.sign())?, comparison)));
        // The first sign of the text; at one place, the longer one, which comes first.
        let (at, comparison) = found.min_by_key(|&(at, _)| at).ok_or(EXPECTED)?;
        let output = text[..at].trim();
        let threshold: f64 = text[at + comparison.sign().len()..].trim().parse().map_err(|_| EXPECTED)?;
        // `scores=>0.5` has a known sign, but not the one that was meant.
        let is_foreign = |letter: char| letter.is_whitespace() || "=!".contains(letter);
        let is_name = !output.is_empty() && output.len() <= OUTPUT_BYTES_MAX && !output.contains(is_foreign);
        if !is_name || !threshold.is_finite() {
            return Err(EXPECTED);
        }
        Ok(Self { output: output.to_owned(), comparison, threshold })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.output, self.comparison.sign(), self.threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_read_as_it_is_printed_and_decides() {
        for (text, passes, fails) in [
            ("scores > 0.5", 0.6, 0.5),
            ("scores >= 0.5", 0.5, 0.4),
            ("label == 3", 3.0, 2.0),
            ("label != -1", 0.0, -1.0),
            ("distance < 10", 9.0, 10.0),
            ("distance <= 10", 10.0, 11.0),
        ] {
            let condition: Condition = text.parse().unwrap();
            assert_eq!(condition.to_string(), text);
            assert!(condition.holds(passes) && !condition.holds(fails), "{text}");
        }
        let tight: Condition = "scores>=0.5".parse().unwrap();
        assert_eq!((tight.comparison, tight.threshold), (Comparison::AtLeast, 0.5));
        assert!(!tight.holds(f64::NAN));
    }

    #[test]
    fn other_words_are_refused_with_what_was_expected() {
        let others = ["", "scores", "> 0.5", "scores > ", "scores > high", "my scores > 1", "scores > inf", "a = 1"];
        for text in others.into_iter().chain(["scores=>0.5", "scores=<0.5", "scores!>0.5"]) {
            let refused = text.parse::<Condition>().unwrap_err();
            assert!(refused.contains("such as \"scores > 0.5\""), "{text}");
        }
    }
}
