//! Layers: file over defaults, environment over file, flags over environment; each layer is checked against the same
//! table.

use toml::{Table, Value};

use crate::defaults::defaults;
use crate::{CONFIG_BYTES_MAX, Error, Origin, Problem, REMOVED_KEYS};

/// Environment variables of this prefix set keys: `SYMPHONY__FRONTEND__GRPC` is `frontend.grpc`.
pub const ENV_PREFIX: &str = "SYMPHONY__";

/// One layer over the others: keys of the same path replace, lists are replaced whole.
pub(crate) fn lay_over(base: &mut Table, layer: Table) {
    for (key, value) in layer {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => lay_over(below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// A file's text as a layer.
pub(crate) fn from_text(origin: &Origin, text: &str) -> Result<Table, Error> {
    let bytes = text.len() as u64;
    if bytes > CONFIG_BYTES_MAX {
        return Err(Error::TooLong { origin: origin.clone(), bytes });
    }
    let layer: Table =
        text.parse().map_err(|e: toml::de::Error| Error::Syntax { origin: origin.clone(), message: e.to_string() })?;
    check_keys(&layer, &defaults(), "").map_err(|problem| Error::Key { origin: origin.clone(), problem })?;
    Ok(layer)
}

/// The environment as layers; other variables than those of [`ENV_PREFIX`] are passed over.
pub(crate) fn from_env(variables: impl IntoIterator<Item = (String, String)>) -> Result<Table, Error> {
    let mut all = Table::new();
    for (variable, text) in variables {
        let Some(rest) = variable.strip_prefix(ENV_PREFIX) else { continue };
        let path: Vec<_> = rest.split("__").map(str::to_ascii_lowercase).collect();
        let layer = one_key(&path, &text).map_err(|problem| Error::Key { origin: Origin::Env(variable), problem })?;
        lay_over(&mut all, layer);
    }
    Ok(all)
}

/// Overrides of the form `section.key=value` as layers, later ones over earlier ones.
pub(crate) fn from_overrides(overrides: &[String]) -> Result<Table, Error> {
    let mut all = Table::new();
    for text in overrides {
        let refuse = |problem| Error::Key { origin: Origin::Flag(text.clone()), problem };
        let Some((key, value)) = text.split_once('=') else {
            return Err(refuse(Problem::new(text.clone(), "there is no `=`; expected section.key=value")));
        };
        let path: Vec<_> = key.trim().split('.').map(str::to_owned).collect();
        lay_over(&mut all, one_key(&path, value.trim()).map_err(refuse)?);
    }
    Ok(all)
}

/// A table that holds nothing but one key, its text read as the type that the key has.
fn one_key(path: &[String], text: &str) -> Result<Table, Problem> {
    let key = path.join(".");
    let defaults = Value::Table(defaults());
    let mut default = &defaults;
    for (depth, part) in path.iter().enumerate() {
        let Value::Table(known) = default else { return Err(unknown(&key, &Table::new())) };
        default = known.get(part).ok_or_else(|| unknown(&path[..=depth].join("."), known))?;
    }
    let wrong = |expected: &str| Problem::new(key.clone(), format!("`{text}` is not {expected}"));
    let value = match default {
        Value::String(_) => Value::String(text.to_owned()),
        Value::Boolean(_) => Value::Boolean(text.parse().map_err(|_| wrong("true or false"))?),
        Value::Table(_) => return Err(Problem::new(key, "this is a section; set one of its keys")),
        // Numbers and lists are written as in a file.
        other => {
            let parsed = format!("value = {text}").parse::<Table>().ok().filter(|t| t.len() == 1);
            let value = parsed.and_then(|mut t| t.remove("value"));
            value.filter(|v| is_taken_for(v, other)).ok_or_else(|| wrong(type_name(other)))?
        }
    };
    let mut value = value;
    for part in path.iter().rev() {
        value = Value::Table(Table::from_iter([(part.clone(), value)]));
    }
    match value {
        Value::Table(table) => Ok(table),
        _ => Err(Problem::new(key, "the key is empty; expected section.key=value")),
    }
}

/// Refuses keys that the defaults do not have, and values of another type.
fn check_keys(layer: &Table, defaults: &Table, section: &str) -> Result<(), Problem> {
    for (name, value) in layer {
        let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
        match (defaults.get(name), value) {
            (None, _) => return Err(unknown(&key, defaults)),
            (Some(Value::Table(known)), Value::Table(given)) => check_keys(given, known, &key)?,
            (Some(default), given) if !is_taken_for(given, default) => {
                let (expected, given) = (type_name(default), type_name(given));
                return Err(Problem::new(key, format!("the value is {given}; expected {expected}")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a value is of the default's type; whole numbers are numbers.
fn is_taken_for(value: &Value, default: &Value) -> bool {
    value.same_type(default) || (value.is_integer() && default.is_float())
}

fn unknown(key: &str, known: &Table) -> Problem {
    if let Some(removed) = REMOVED_KEYS.iter().find(|removed| removed.key == key) {
        return Problem::new(key, format!("this is a constant now ({}); leave it out", removed.now));
    }
    let keys = known.keys().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ");
    let expected = if keys.is_empty() { "nothing below it".to_owned() } else { format!("one of {keys}") };
    Problem::new(key, format!("unknown key; expected {expected}"))
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a section",
    }
}
