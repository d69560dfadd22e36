//! Pages that are read as a whole stay short: README.md two to three minutes, a decision record two screens. Prose is
//! wrapped, so that a page's lines measure it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::links::{code_free_lines, markdown_files};

/// At 250 words a minute, less than three minutes.
const README_WORDS_MAX: usize = 700;
/// What is beyond it is evidence, and belongs to the lab.
const ADR_LINES_MAX: usize = 100;
const ADRS: &str = "docs/adr";
/// Wider lines would hide text from the limit on lines.
const COLUMNS_MAX: usize = 160;
/// Where prose may be wider: each change has a line, and `symphony paper` writes a line for each reason.
const WIDE: [&str; 2] = ["CHANGELOG.md", "docs/papers"];

/// Pages that are too long, and lines of prose that are too wide.
pub(crate) fn problems(root: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    problems.extend(too_many_words("README.md", &read(&root.join("README.md"))?));
    let folder = root.join(ADRS);
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            problems.extend(too_many_lines(&format!("{ADRS}/{name}"), &read(&path)?));
        }
    }
    for path in markdown_files(root)? {
        let page = path.strip_prefix(root).unwrap_or(&path);
        if !WIDE.iter().any(|wide| page.starts_with(wide)) {
            problems.extend(too_wide(&page.to_string_lossy(), &read(&path)?));
        }
    }
    problems.sort();
    Ok(problems)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn too_many_words(name: &str, text: &str) -> Option<String> {
    let words = text.split_whitespace().count();
    let message =
        || format!("{name} has {words} words; expected at most {README_WORDS_MAX}: what is more belongs to docs/");
    (words > README_WORDS_MAX).then(message)
}

fn too_many_lines(name: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    let message = || {
        format!("{name} has {lines} lines; expected at most {ADR_LINES_MAX}: evidence belongs to docs/internals/lab")
    };
    (lines > ADR_LINES_MAX).then(message)
}

fn too_wide(name: &str, text: &str) -> Vec<String> {
    // A row of a table cannot be broken.
    let prose = code_free_lines(text).filter(|(_, line)| !line.trim_start().starts_with('|'));
    let wide = prose.filter(|(_, line)| line.chars().count() > COLUMNS_MAX);
    wide.map(|(number, _)| format!("{name}:{number}: a line of more than {COLUMNS_MAX} columns")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_refused_from_its_limit_on() {
        assert_eq!(too_many_words("README.md", &"word ".repeat(README_WORDS_MAX)), None);
        let found = too_many_words("README.md", &"word ".repeat(README_WORDS_MAX + 1)).unwrap();
        assert_eq!(found, "README.md has 701 words; expected at most 700: what is more belongs to docs/");
        assert_eq!(too_many_lines("docs/adr/1.md", &"line\n".repeat(ADR_LINES_MAX)), None);
        assert!(too_many_lines("docs/adr/1.md", &"line\n".repeat(ADR_LINES_MAX + 1)).unwrap().contains("101 lines"));
    }

    #[test]
    fn a_wide_line_of_prose_is_found_and_tables_and_code_may_be_wide() {
        let (fits, wide) = ("é".repeat(COLUMNS_MAX), "é".repeat(COLUMNS_MAX + 1));
        let text = format!("{fits}\n{wide}\n| {wide} |\n```text\n{wide}\n```\n- {fits}\n");
        let expected = ["a.md:2: a line of more than 160 columns", "a.md:7: a line of more than 160 columns"];
        assert_eq!(too_wide("a.md", &text), expected);
    }
}
