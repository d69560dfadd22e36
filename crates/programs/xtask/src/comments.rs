//! Finds comments wider than the code may be: rustfmt wraps code and leaves comments. Comments of TOML and protobuf
//! files are held to the same.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::links::files_ending_in;
use crate::metadata::Metadata;
use crate::sources::rust_files;

/// As in rustfmt.toml.
const COLUMNS_MAX: usize = 120;

/// Comment lines that are too wide.
pub(crate) fn problems(metadata: &Metadata) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in metadata.members() {
        for path in rust_files(package.dir())? {
            problems.extend(too_wide_in(&path, "//")?);
        }
    }
    for (ending, mark) in [("proto", "//"), ("toml", "#")] {
        for path in files_ending_in(ending, crate::root())? {
            problems.extend(too_wide_in(&path, mark)?);
        }
    }
    // Packages may be nested.
    problems.sort();
    problems.dedup();
    Ok(problems)
}

fn too_wide_in(path: &Path, mark: &str) -> Result<Vec<String>> {
    let source = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(too_wide(path.strip_prefix(crate::root()).unwrap_or(path), &source, mark))
}

/// Wide lines that begin with the mark of a comment.
fn too_wide(path: &Path, source: &str, mark: &str) -> Vec<String> {
    let mut in_block = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(source.lines()) {
        let text = line.trim_start();
        in_block ^= text.starts_with(mark) && text.contains("```");
        // A drawing, a link or a row of a table cannot be broken.
        let cannot_be_broken = in_block || text.contains("://") || text.contains(" | ");
        if text.starts_with(mark) && line.chars().count() > COLUMNS_MAX && !cannot_be_broken {
            found.push(format!("{}:{number}: a comment of more than {COLUMNS_MAX} columns", path.display()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_comment_is_found_and_code_links_and_tables_are_not() {
        let words = "word ".repeat(30);
        let source = format!(
            "// {words}\nlet a = \"{words}\";\n/// short\n    /// {words}\n/// https://example.org/{words}\n/// | {words} | b |\n/// ```text\n/// {words}\n/// ```\n"
        );
        let expected = ["a.rs:1: a comment of more than 120 columns", "a.rs:4: a comment of more than 120 columns"];
        assert_eq!(too_wide(Path::new("a.rs"), &source, "//"), expected);
        let source = format!("# {words}\nkey = \"{words}\"\n[a]\n# short\n");
        let expected = ["a.toml:1: a comment of more than 120 columns"];
        assert_eq!(too_wide(Path::new("a.toml"), &source, "#"), expected);
    }
}
