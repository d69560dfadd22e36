//! Checks the length of commit titles.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

/// Characters of a title.
const TITLE_MAX: usize = 72;

/// The last commit before titles were checked.
const CHECKED_AFTER: &str = "0423306";

/// Commits of this checkout with titles that are too long; none where there is no history.
pub(crate) fn problems(root: &Path) -> Result<Vec<String>> {
    let range = format!("{CHECKED_AFTER}..HEAD");
    let output = Command::new("git").args(["log", "--format=%h %s", &range]).current_dir(root).output();
    let output = output.context("cannot start git")?;
    // A shallow clone, or an archive without history, has nothing to check.
    Ok(if output.status.success() { too_long(&String::from_utf8_lossy(&output.stdout)) } else { Vec::new() })
}

fn too_long(log: &str) -> Vec<String> {
    let lines = log.lines().filter_map(|line| line.split_once(' '));
    let long = lines.filter(|(_, title)| title.chars().count() > TITLE_MAX);
    long.map(|(commit, title)| {
        format!("{commit}: a title of {} characters; at most {TITLE_MAX}", title.chars().count())
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_title_is_found() {
        let log = format!("aaaaaaa short\nbbbbbbb {}\nccccccc {}\n", "x".repeat(72), "x".repeat(73));
        assert_eq!(too_long(&log), ["ccccccc: a title of 73 characters; at most 72"]);
    }
}
