//! Options of policies that a program adds.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use toml::Value;

/// The longest name of a policy.
const NAME_BYTES_MAX: usize = 63;

/// Whether a policy may be added under this name: 1 to 63 of a–z, 0–9, `-` and `_`, a letter first.
#[must_use]
pub fn is_policy_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
}

/// A policy that the program has under a name of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct RegisteredPolicy {
    /// The name under which the program registers it.
    pub name: String,
    /// Its options, which only it understands.
    pub options: PolicyOptions,
}

/// Keys and values of a policy's table, besides its name: numbers, words, and yes or no.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyOptions(BTreeMap<String, Value>);

impl PolicyOptions {
    /// Adds an option; refuses one that is neither a finite number, nor text on one line, nor a yes or no.
    pub(crate) fn set(&mut self, key: &str, value: Value) -> Result<(), String> {
        let is_plain = match &value {
            Value::Integer(_) | Value::Boolean(_) => true,
            Value::Float(number) => number.is_finite(),
            Value::String(text) => !text.chars().any(char::is_control),
            Value::Datetime(_) | Value::Array(_) | Value::Table(_) => false,
        };
        let is_key = is_policy_name(key);
        if !is_plain || !is_key {
            return Err(format!("{key} = {value}"));
        }
        self.0.insert(key.to_owned(), value);
        Ok(())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses keys that are not among these.
    ///
    /// # Errors
    /// If there is one, in words.
    pub fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.0.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) if known.is_empty() => Err(format!("key `{key}`: expected no options")),
            Some(key) => Err(format!("key `{key}`: expected only {}", known.join(", "))),
        }
    }

    /// A number within a range, or what it is by default.
    ///
    /// # Errors
    /// If it is no number or out of range, in words.
    pub fn number(&self, key: &str, default: f64, range: RangeInclusive<f64>) -> Result<f64, String> {
        let refused = |got: &Value| {
            Err(format!("key `{key}`: expected a number from {} to {}, got {got}", range.start(), range.end()))
        };
        let number = match self.0.get(key) {
            None => return Ok(default),
            Some(Value::Integer(number)) => *number as f64,
            Some(Value::Float(number)) => *number,
            Some(other) => return refused(other),
        };
        if range.contains(&number) { Ok(number) } else { refused(&Value::Float(number)) }
    }

    /// A text, if it is given.
    ///
    /// # Errors
    /// If it is no text, in words.
    pub fn text(&self, key: &str) -> Result<Option<&str>, String> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("key `{key}`: expected a text in quotes, got {other}")),
        }
    }

    /// A yes or no; no by default.
    ///
    /// # Errors
    /// If it is neither, in words.
    pub fn flag(&self, key: &str) -> Result<bool, String> {
        match self.0.get(key) {
            None => Ok(false),
            Some(Value::Boolean(yes)) => Ok(*yes),
            Some(other) => Err(format!("key `{key}`: expected true or false, got {other}")),
        }
    }
}

/// The canonical text: the name alone without options, otherwise a table in the order of keys.
impl fmt::Display for RegisteredPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options: Vec<_> = self.options.0.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        crate::keys::write(f, &self.name, &options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(of: &[(&str, Value)]) -> PolicyOptions {
        let mut options = PolicyOptions::default();
        of.iter().for_each(|(key, value)| options.set(key, value.clone()).unwrap());
        options
    }

    #[test]
    fn options_are_taken_in_their_kind_and_range_and_refused_by_name() {
        let given = options(&[("a", Value::Integer(3)), ("b", Value::String("x".into())), ("c", Value::Boolean(true))]);
        assert_eq!(given.number("a", 0.0, 1.0..=5.0), Ok(3.0));
        assert_eq!(given.number("z", 7.0, 1.0..=5.0), Ok(7.0), "the default");
        assert_eq!((given.text("b"), given.flag("c"), given.flag("z")), (Ok(Some("x")), Ok(true), Ok(false)));
        let refused = [
            given.number("a", 0.0, 4.0..=5.0).unwrap_err(),
            given.text("a").unwrap_err(),
            given.flag("a").unwrap_err(),
            given.only(&["b", "c"]).unwrap_err(),
        ];
        assert!(refused.iter().all(|message| message.contains("key `a`: expected")), "{refused:?}");
    }

    #[test]
    fn a_value_that_no_table_shows_on_one_line_is_no_option() {
        let mut options = PolicyOptions::default();
        for value in [Value::Array(Vec::new()), Value::Float(f64::NAN), Value::String("a\nb".into())] {
            assert!(options.set("a", value).is_err());
        }
        assert!(options.set("A b", Value::Integer(1)).is_err() && options.is_empty());
    }

    #[test]
    fn names_are_what_a_shell_and_a_file_take_without_quotes() {
        assert!(["mine", "a", "edf-2_x"].into_iter().all(is_policy_name));
        assert!(!["", "2a", "-a", "Mine", "a b", "a{", &"a".repeat(64)].into_iter().any(is_policy_name));
    }
}
