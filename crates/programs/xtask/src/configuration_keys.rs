//! The tables of keys in configuration.md, which follow from the defaults and the comments beside them.
//! `cargo xtask fix` writes them; a check compares.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::marked::between;

/// The page, from the root of the repository.
const PAGE: &str = "docs/reference/configuration.md";

/// From the page to the root.
const TO_ROOT: &str = "../..";

/// All keys with their defaults, from the root of the repository.
const DEFAULTS: &str = "crates/edges/config/src/defaults.toml";

/// How the comment of a key begins whose default is refused.
const MUST_BE_GIVEN: &str = "Must be given: ";

/// A section of the defaults.
#[derive(Debug, PartialEq, Eq)]
struct Section {
    name: String,
    rows: Vec<Row>,
}

/// Keys that share a comment.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// Names and defaults.
    keys: Vec<(String, String)>,
    comment: String,
}

/// The differences between the page and the defaults.
pub(crate) fn problems(root: &Path) -> Result<Vec<String>> {
    let (page, expected) = page(root)?;
    let stale = (page != expected).then(|| format!("{PAGE}: its tables of keys are stale; run `cargo xtask fix`"));
    Ok(stale.into_iter().collect())
}

/// Rewrites the page.
pub(crate) fn write(root: &Path) -> Result<()> {
    let (page, expected) = page(root)?;
    if page != expected {
        fs::write(root.join(PAGE), expected).with_context(|| format!("cannot write {PAGE}"))?;
    }
    Ok(())
}

/// The page as it is, and as it should be.
fn page(root: &Path) -> Result<(String, String)> {
    let read = |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
    let page = read(PAGE)?;
    let mut expected = page.clone();
    for section in sections(&read(DEFAULTS)?).with_context(|| format!("cannot read {DEFAULTS}"))? {
        expected = between(&expected, &section.name, &table(&section))
            .with_context(|| format!("{PAGE} has no place for the keys of [{}]", section.name))?;
    }
    Ok((page, expected))
}

/// The sections, with the comment above each key; a key without one shares the row of the key before it.
fn sections(defaults: &str) -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in defaults.lines() {
        if let Some(words) = line.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        // What stands above a section or an empty line belongs to no key.
        let comment = std::mem::take(&mut comment).join(" ");
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            sections.push(Section { name: name.to_owned(), rows: Vec::new() });
        } else if let Some((key, default)) = line.split_once(" = ") {
            let key = (key.to_owned(), default.to_owned());
            let Some(section) = sections.last_mut() else { bail!("`{line}` is in no section") };
            match section.rows.last_mut() {
                Some(row) if comment.is_empty() => row.keys.push(key),
                None if comment.is_empty() => bail!("`{line}` has no comment above it that says what it means"),
                _ => section.rows.push(Row { keys: vec![key], comment }),
            }
        } else if !line.is_empty() {
            bail!("`{line}` is no comment, section or key with its default on the same line");
        }
    }
    Ok(sections)
}

fn table(section: &Section) -> String {
    let mut table = String::from("| key | default | meaning |\n| --- | --- | --- |\n");
    for Row { keys, comment } in &section.rows {
        let names: Vec<_> = keys.iter().map(|(name, _)| format!("`{name}`")).collect();
        let (default, meaning) = match comment.strip_prefix(MUST_BE_GIVEN) {
            Some(meaning) => ("must be given".to_owned(), meaning),
            None => (defaults(keys), &comment[..]),
        };
        let _ = writeln!(table, "| {} | {default} | {} |", names.join(", "), with_links(meaning));
    }
    table
}

/// The defaults of a row's keys, once if they are equal.
fn defaults(keys: &[(String, String)]) -> String {
    let mut shown: Vec<_> = keys
        .iter()
        .map(|(_, default)| match default.trim_matches('"') {
            "" | "[]" => "empty".to_owned(),
            default => format!("`{default}`"),
        })
        .collect();
    shown.dedup();
    shown.join(", ")
}

/// The words with links in place of paths of pages.
fn with_links(words: &str) -> String {
    let words = words.split(' ').map(|word| {
        let path = word.trim_start_matches('(').trim_end_matches([')', '.', ',', ';', ':']);
        let (file, anchor) = path.split_once('#').unwrap_or((path, ""));
        let Some(stem) = file.strip_suffix(".md") else { return word.to_owned() };
        let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
        let text = match (folder, name) {
            _ if file == PAGE => anchor.to_owned(),
            ("docs/adr", name) => format!("ADR {}", name.split('-').next().unwrap_or(name).trim_start_matches('0')),
            (folder, "README") => folder.to_owned(),
            (_, name) => name.replace('-', " "),
        };
        let hash = if anchor.is_empty() { "" } else { "#" };
        let target = match file.strip_prefix("docs/reference/") {
            _ if file == PAGE => String::new(),
            Some(beside) => beside.to_owned(),
            None => match file.strip_prefix("docs/") {
                Some(page) => format!("../{page}"),
                None => format!("{TO_ROOT}/{file}"),
            },
        };
        word.replace(path, &format!("[{text}]({target}{hash}{anchor})"))
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &str = "# Of the file.\n\n# Of the section.\n[a.b]\n# Must be given: which,\n# of `c`.\nid = 0\n\
        # How many (docs/adr/0003-x.md).\nleast = 1\nmost = 4\n# Where; see\n# docs/operating/some-page.md#there.\ndir = \"\"\nkind = \"k\"\n";

    #[test]
    fn each_key_has_a_row_or_shares_the_one_before_it() {
        let sections = sections(SOME).unwrap();
        assert_eq!(sections.len(), 1);
        let expected = "| key | default | meaning |\n| --- | --- | --- |\n\
            | `id` | must be given | which, of `c`. |\n\
            | `least`, `most` | `1`, `4` | How many ([ADR 3](../adr/0003-x.md)). |\n\
            | `dir`, `kind` | empty, `k` | Where; see [some page](../operating/some-page.md#there). |\n";
        assert_eq!((&sections[0].name[..], &table(&sections[0])[..]), ("a.b", expected));
    }

    #[test]
    fn a_key_without_a_comment_and_a_value_of_several_lines_are_refused() {
        for (wrong, says) in [
            ("[a]\n\nkey = 1\n", "no comment"),
            ("# Of the section.\n[a]\nkey = 1\n", "no comment"),
            ("key = 1\n", "no section"),
            ("[a]\n# Some.\nlist = [\n]\n", "`]` is no comment"),
        ] {
            let message = sections(wrong).unwrap_err().to_string();
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn paths_become_links_as_seen_from_the_page() {
        for (words, linked) in [
            ("see docs/reference/configuration.md#rdma.", "see [rdma](#rdma)."),
            ("in docs/reference/metrics.md", "in [metrics](metrics.md)"),
            ("such as chaos/README.md; empty", "such as [chaos](../../chaos/README.md); empty"),
            ("no path: `a.b`, c/d.", "no path: `a.b`, c/d."),
        ] {
            assert_eq!(with_links(words), linked);
        }
    }
}
