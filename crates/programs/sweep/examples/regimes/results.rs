//! Results of searches, one line of JSON each, in a file that a later run goes on with.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// All that the result of a search depends on, for one build of this program.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Question {
    pub(crate) regime: String,
    /// The spread of execution times that is set; none where the regime has its own.
    pub(crate) noise: Option<f64>,
    pub(crate) policy: String,
    /// The rule of `auto` that is left out.
    pub(crate) without: Option<String>,
    pub(crate) duration_s: f64,
    pub(crate) seeds: u64,
}

#[derive(Deserialize, Serialize)]
struct Line {
    #[serde(flatten)]
    question: Question,
    goodput_rps: f64,
}

/// Goodputs by question.
pub(crate) struct Results {
    found: BTreeMap<String, f64>,
    file: Option<File>,
}

impl Results {
    /// With what the file has, if one is named; it is made if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read or has a line that is no result. A last line without an end, as of a run that was killed,
    /// is cut off.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Box<dyn Error>> {
        let Some(path) = path else { return Ok(Self { found: BTreeMap::new(), file: None }) };
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(path).map_err(|error| named(&error))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|error| named(&error))?;
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64).map_err(|error| named(&error))?;
        let mut found = BTreeMap::new();
        for (number, line) in (1..).zip(text[..whole].lines()) {
            let line: Line =
                serde_json::from_str(line).map_err(|error| named(&format!("line {number} is no result: {error}")))?;
            found.insert(key(&line.question)?, line.goodput_rps);
        }
        Ok(Self { found, file: Some(file) })
    }

    /// The goodput, if it is known.
    pub(crate) fn of(&self, question: &Question) -> Result<Option<f64>, serde_json::Error> {
        Ok(self.found.get(&key(question)?).copied())
    }

    /// Keeps a goodput, in the file as well, and returns its line.
    pub(crate) fn record(&mut self, question: &Question, goodput_rps: f64) -> Result<String, Box<dyn Error>> {
        self.found.insert(key(question)?, goodput_rps);
        let line = serde_json::to_string(&Line { question: question.clone(), goodput_rps })?;
        if let Some(file) = &mut self.file {
            // In one piece, so that a kill cuts off one line at most.
            file.write_all(format!("{line}\n").as_bytes())?;
        }
        Ok(line)
    }
}

fn key(question: &Question) -> Result<String, serde_json::Error> {
    serde_json::to_string(question)
}
