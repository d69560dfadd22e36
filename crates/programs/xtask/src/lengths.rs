//! Pages that are read as a whole stay short: README.md two to three minutes, a decision record two screens.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// At 250 words a minute, less than three minutes.
const README_WORDS_MAX: usize = 700;
/// What is beyond it is evidence, and belongs to the lab.
const ADR_LINES_MAX: usize = 100;
const ADRS: &str = "docs/adr";

/// Pages that are too long.
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
    problems.sort();
    Ok(problems)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn too_many_words(name: &str, text: &str) -> Option<String> {
    let words = text.split_whitespace().count();
    let told =
        || format!("{name} has {words} words; expected at most {README_WORDS_MAX}: what is more belongs to docs/");
    (words > README_WORDS_MAX).then(told)
}

fn too_many_lines(name: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    let told = || {
        format!("{name} has {lines} lines; expected at most {ADR_LINES_MAX}: evidence belongs to docs/internals/lab")
    };
    (lines > ADR_LINES_MAX).then(told)
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
}
