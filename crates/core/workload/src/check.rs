//! Validation of a scenario's values, with messages.

use std::fmt;

use symphony_scheduler::PolicyRegistry;

use crate::error::ScenarioError;

/// Validates one scenario; holds the file's name, the function that reads CSV files, and the policies that the program
/// adds.
pub(crate) struct Check<'a> {
    pub(crate) file: &'a str,
    pub(crate) read_csv: &'a dyn Fn(&str) -> Result<String, String>,
    pub(crate) policies: &'a PolicyRegistry,
}

impl Check<'_> {
    pub(crate) fn refuse<T>(
        &self,
        key: impl Into<String>,
        expected: &str,
        got: impl fmt::Display,
    ) -> Result<T, ScenarioError> {
        let (file, key) = (self.file.to_owned(), key.into());
        Err(ScenarioError::Value { file, key, expected: expected.to_owned(), got: got.to_string() })
    }

    /// A number in a range, both ends included.
    pub(crate) fn number(&self, key: &str, value: f64, min: f64, max: f64) -> Result<f64, ScenarioError> {
        if (min..=max).contains(&value) {
            return Ok(value);
        }
        self.refuse(key, &format!("a number from {min} to {max}"), value)
    }

    /// A positive number.
    pub(crate) fn positive(&self, key: &str, value: f64, max: f64) -> Result<f64, ScenarioError> {
        if value > 0.0 && value <= max {
            return Ok(value);
        }
        self.refuse(key, &format!("a number above 0, at most {max}"), value)
    }

    pub(crate) fn csv(&self, key: &str, csv: &str) -> Result<String, ScenarioError> {
        (self.read_csv)(csv).map_err(|message| self.csv_refused(key, csv, message))
    }

    pub(crate) fn csv_refused(&self, key: &str, csv: &str, message: String) -> ScenarioError {
        ScenarioError::Csv { file: self.file.to_owned(), key: key.to_owned(), csv: csv.to_owned(), message }
    }
}
