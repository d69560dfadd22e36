//! Reads a configuration: its layers, the types of its keys, and whether it can work.

use std::io::Read as _;
use std::path::Path;

use toml::{Table, Value};

use crate::defaults::defaults;
use crate::{CONFIG_BYTES_MAX, Error, NodeConfig, Origin, Problem, Role, layers};

impl NodeConfig {
    /// Reads `file` if there is one, lays `env` and then `overrides` (`section.key=value`) over it, and validates.
    ///
    /// `env` is usually `std::env::vars()`; other variables than `SYMPHONY__…` are passed over.
    ///
    /// # Errors
    /// If the file cannot be read, a layer has an unknown key or a wrong type, or the whole cannot work for `role`.
    pub fn load(
        role: Role,
        file: Option<&Path>,
        env: impl IntoIterator<Item = (String, String)>,
        overrides: &[String],
    ) -> Result<Self, Error> {
        let text = file.map(read).transpose()?;
        Self::from_layers(role, file.zip(text.as_deref()), env, overrides)
    }

    /// Like [`NodeConfig::load`], with the file's text given; its path is only used in messages.
    ///
    /// # Errors
    /// If a layer has an unknown key or a wrong type, or the whole cannot work for `role`.
    pub fn from_layers(
        role: Role,
        file: Option<(&Path, &str)>,
        env: impl IntoIterator<Item = (String, String)>,
        overrides: &[String],
    ) -> Result<Self, Error> {
        let origin = file.map_or(Origin::Defaults, |(path, _)| Origin::File(path.to_owned()));
        let mut given = match file {
            Some((_, text)) => layers::from_text(&origin, text)?,
            None => Table::new(),
        };
        layers::lay_over(&mut given, layers::from_env(env)?);
        layers::lay_over(&mut given, layers::from_overrides(overrides)?);

        // A role's own section exists only if it is given or the role needs it; the others always do.
        let optional = ["scheduler", "frontend", "backend", "federation"];
        let mut whole = defaults();
        whole.retain(|section, _| {
            !optional.contains(&section) || given.contains_key(section) || role.sections().contains(&section)
        });
        layers::lay_over(&mut whole, given);

        // What the layers could not see: members of lists, words out of a closed set, ranges of numbers.
        let config: Self = Value::Table(whole).try_into().map_err(|e: toml::de::Error| {
            let text = e.to_string();
            let (message, key) = text.trim_end().split_once("\nin `").unwrap_or((text.trim_end(), "configuration`"));
            let problem = Problem::new(key.trim_end_matches('`'), message.replace('\n', "; "));
            Error::Key { origin: origin.clone(), problem }
        })?;
        let problems = config.validate(role);
        if problems.is_empty() { Ok(config) } else { Err(Error::Invalid { origin, role, problems }) }
    }
}

fn read(path: &Path) -> Result<String, Error> {
    let fail = |source| Error::Read { path: path.to_owned(), source };
    let mut text = String::new();
    // One byte more than allowed tells a file that is too long from one that just fits, and bounds what is read.
    let file = std::fs::File::open(path).map_err(fail)?;
    file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text).map_err(fail)?;
    Ok(text)
}
