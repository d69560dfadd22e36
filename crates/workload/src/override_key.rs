//! `--set key=value`: one key of a parsed scenario is replaced before the scenario is checked.

use toml::{Table, Value};

/// The one key that may be a plain name or a table: `policy.drop=prune` makes a table of the name.
const POLICY: &str = "policy";

/// Puts `value` at the dotted `key` of `assignment` = `key=value`; numbers in the path index lists.
///
/// A value that reads as TOML (number, boolean, list, inline table, quoted string) is that; anything else is a string.
/// The last part of the key may be new, for optional keys; whether the scenario knows it is decided when it is checked.
pub(crate) fn apply(root: &mut Table, assignment: &str) -> Result<(), String> {
    let (key, value) = assignment.split_once('=').ok_or("expected key=value")?;
    let (key, value) = (key.trim(), parse_value(value.trim()));
    if key.is_empty() {
        return Err("expected key=value with a key like workload.rate_rps".to_owned());
    }
    let (parents, last) = match key.rsplit_once('.') {
        Some((parents, last)) => (Some(parents), last),
        None => (None, key),
    };
    let Some(parents) = parents else {
        root.insert(last.to_owned(), value);
        return Ok(());
    };
    let (first, rest) = match parents.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (parents, None),
    };
    if let (POLICY, Some(Value::String(name))) = (parents, root.get(POLICY)) {
        let named = Table::from_iter([("name".to_owned(), Value::String(name.clone()))]);
        root.insert(POLICY.to_owned(), Value::Table(named));
    }
    let mut at = match (root.contains_key(first), rest) {
        // An optional table that the file left out, such as [network].
        (false, None) => root.entry(first).or_insert_with(|| Value::Table(Table::new())),
        _ => root.get_mut(first).ok_or_else(|| format!("the scenario has no `{first}`"))?,
    };
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

fn step_into<'a>(at: &'a mut Value, part: &str) -> Result<&'a mut Value, String> {
    match at {
        Value::Table(table) => table.get_mut(part).ok_or_else(|| format!("there is no key `{part}`")),
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
    }

    #[test]
    fn paths_that_lead_nowhere_are_refused_with_the_reason() {
        assert_eq!(after("a"), Err("expected key=value".to_owned()));
        assert!(after("=3").unwrap_err().contains("with a key"));
        assert!(after("list.2.d=1").unwrap_err().contains("the list has 2 entries"));
        assert!(after("list.d=1").unwrap_err().contains("a position in the list, 0 to 1"));
        assert!(after("a.b=1").unwrap_err().contains("plain value"));
        assert!(after("x.y.z=1").unwrap_err().contains("no `x`"));
    }
}
