//! `--set key=value`: one key of a parsed scenario is replaced before the scenario is checked.

use toml::{Table, Value};

/// The one key that may be a plain name or a table: `policy.drop=prune` makes a table of the name.
const POLICY: &str = "policy";

/// Puts `value` at the dotted `key` of `assignment` = `key=value`; numbers in the path index lists.
///
/// A value that reads as TOML (number, boolean, list, inline table, quoted string) is that; anything else is a string.
/// Tables on the way that the file left out, such as `[network]`, are made; whether the scenario knows them, and the
/// last part of the key, is decided when it is checked.
pub(crate) fn apply(root: &mut Table, assignment: &str) -> Result<(), String> {
    let (key, value) = assignment.split_once('=').ok_or("expected key=value")?;
    let (key, value) = (key.trim(), parse_value(value.trim()));
    if key.is_empty() {
        return Err("expected key=value with a key like workload.rate_rps".to_owned());
    }
    let Some((parents, last)) = key.rsplit_once('.') else {
        root.insert(key.to_owned(), value);
        return Ok(());
    };
    let (first, rest) = match parents.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (parents, None),
    };
    if let (POLICY, Some(Value::String(name))) = (first, root.get(POLICY)) {
        let named = Table::from_iter([("name".to_owned(), Value::String(name.clone()))]);
        root.insert(POLICY.to_owned(), Value::Table(named));
    }
    let mut at = root.entry(first).or_insert_with(no_keys);
    for part in rest.into_iter().flat_map(|rest| rest.split('.')) {
        at = step_into(at, part)?;
    }
    match at {
        Value::Table(table) => {
            table.insert(last.to_owned(), value);
        }
        Value::Array(list) => *index(list, last)? = value,
        _ => return Err(format!("`{parents}` is a plain value and has no key `{last}`")),
    }
    Ok(())
}

fn no_keys() -> Value {
    Value::Table(Table::new())
}

/// The override that brings a refusal about: the first one up to which overrides are refused in the same way. None if
/// the file alone is. `is_refused` says whether the file with these overrides is refused like that; with all of them it
/// is.
#[must_use]
pub fn override_at_fault<'a>(overrides: &'a [String], is_refused: &dyn Fn(&[String]) -> bool) -> Option<&'a String> {
    let count = (0..overrides.len()).find(|&count| is_refused(&overrides[..count])).unwrap_or(overrides.len());
    count.checked_sub(1).and_then(|last| overrides.get(last))
}

/// The dotted key of an override `key=value`; all of it if there is no `=`.
#[must_use]
pub fn override_key(assignment: &str) -> &str {
    assignment.split_once('=').map_or(assignment, |(key, _)| key).trim()
}

fn step_into<'a>(at: &'a mut Value, part: &str) -> Result<&'a mut Value, String> {
    match at {
        Value::Table(table) => Ok(table.entry(part).or_insert_with(no_keys)),
        Value::Array(list) => index(list, part),
        _ => Err(format!("there is no key `{part}` inside a plain value")),
    }
}

fn index<'a>(list: &'a mut [Value], part: &str) -> Result<&'a mut Value, String> {
    let len = list.len();
    let position: usize = part
        .parse()
        .map_err(|_| format!("expected a position in the list, 0 to {}, got `{part}`", len.saturating_sub(1)))?;
    list.get_mut(position).ok_or_else(|| format!("the list has {len} entries, counted from 0; there is no {position}"))
}

fn parse_value(text: &str) -> Value {
    // One line only: a line break could smuggle in further keys.
    let parsed = if text.contains('\n') { None } else { format!("value = {text}").parse::<Table>().ok() };
    parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(assignment: &str) -> Result<Table, String> {
        let mut root: Table = "a = 1\n[b]\nc = 2.0\n[[list]]\nd = 'x'\n[[list]]\nd = 'y'".parse().unwrap();
        apply(&mut root, assignment).map(|()| root)
    }

    #[test]
    fn numbers_booleans_strings_and_lists_are_recognised() {
        assert_eq!(after("a=5").unwrap()["a"], Value::Integer(5));
        assert_eq!(after("b.c = 2.5").unwrap()["b"]["c"], Value::Float(2.5));
        assert_eq!(after("b.c=true").unwrap()["b"]["c"], Value::Boolean(true));
        assert_eq!(after("b.c=eager").unwrap()["b"]["c"], Value::String("eager".into()));
        assert_eq!(after("b.c=\"5\"").unwrap()["b"]["c"], Value::String("5".into()));
        assert_eq!(after("a=[1, 2]").unwrap()["a"].as_array().unwrap().len(), 2);
        assert_eq!(after("list.1.d=z").unwrap()["list"][1]["d"], Value::String("z".into()));
        assert_eq!(after("network.ctrl_us=3").unwrap()["network"]["ctrl_us"], Value::Integer(3));
        assert_eq!(after("x.y.z=1").unwrap()["x"]["y"]["z"], Value::Integer(1));
    }

    #[test]
    fn the_first_override_that_is_refused_like_all_of_them_is_at_fault() {
        let overrides = ["a", "b", "c"].map(str::to_owned);
        let refused_with = |word: &'static str| move |set: &[String]| set.iter().any(|other| other == word);
        assert_eq!(override_at_fault(&overrides, &refused_with("a")).unwrap(), "a");
        assert_eq!(override_at_fault(&overrides, &refused_with("c")).unwrap(), "c");
        assert_eq!(override_at_fault(&overrides, &|_| true), None, "the file is refused without any");
        assert_eq!(override_at_fault(&[], &|_| true), None);
        assert_eq!([" a.b = 1", "a"].map(override_key), ["a.b", "a"]);
    }

    #[test]
    fn paths_that_lead_nowhere_are_refused_with_the_reason() {
        assert_eq!(after("a"), Err("expected key=value".to_owned()));
        assert!(after("=3").unwrap_err().contains("with a key"));
        assert!(after("list.2.d=1").unwrap_err().contains("the list has 2 entries"));
        assert!(after("list.d=1").unwrap_err().contains("a position in the list, 0 to 1"));
        assert!(after("a.b=1").unwrap_err().contains("plain value"));
        assert!(after("a.b.c=1").unwrap_err().contains("no key `b` inside a plain value"));
    }
}
