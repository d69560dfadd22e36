//! A list of policies: names and tables, separated by commas.

use crate::exit::bad_input;

/// Each policy once. Commas within the braces of a table, or within quotes, separate nothing.
pub(super) fn split(lists: &[String]) -> anyhow::Result<Vec<String>> {
    let mut policies: Vec<String> = Vec::new();
    for list in lists {
        for policy in split_one(list) {
            if policy.is_empty() {
                return Err(bad_input(format!("--policy {list}: expected policies, separated by commas")));
            }
            if policies.iter().any(|known| known == policy) {
                return Err(bad_input(format!("--policy {list}: expected each policy once, got {policy} again")));
            }
            policies.push(policy.to_owned());
        }
    }
    Ok(policies)
}

fn split_one(list: &str) -> Vec<&str> {
    let (mut depth, mut quote, mut from, mut parts) = (0_usize, None, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '{') => depth += 1,
            (None, '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(list[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list[from..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_one_policy_each() {
        let lists = ["auto, symphony".to_owned(), "{ name = \"nexus\", frontends = 8 },clockwork".to_owned()];
        let expected = ["auto", "symphony", "{ name = \"nexus\", frontends = 8 }", "clockwork"];
        assert_eq!(split(&lists).unwrap(), expected);
        assert!(split(&["auto,,eager".to_owned()]).unwrap_err().to_string().contains("separated by commas"));
        assert!(split(&["auto,auto".to_owned()]).unwrap_err().to_string().contains("got auto again"));
    }
}
