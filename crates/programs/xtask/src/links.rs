//! Checks that relative links in Markdown lead to a file or folder that exists, and to a heading in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};

/// Folders with foreign files.
const FOREIGN: [&str; 3] = ["target", "node_modules", "third_party"];

/// Every Markdown file by its path in the repository, with its text.
type Pages = BTreeMap<PathBuf, String>;

/// Broken links in all Markdown files below `root`.
pub(crate) fn problems(root: &Path) -> Result<Vec<String>> {
    let mut pages = Pages::new();
    for path in markdown_files(root)? {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        pages.insert(path.strip_prefix(root).unwrap_or(&path).to_owned(), text);
    }
    Ok(dead_links(&pages, &|path| root.join(path).exists()))
}

fn dead_links(pages: &Pages, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (page, text) in pages {
        for (line, target) in links(text) {
            if let Some(problem) = problem(pages, exists, page, target) {
                problems.push(format!("{}:{line}: link to `{target}`: {problem}", page.display()));
            }
        }
    }
    problems
}

/// What is wrong with one link of `page`; none if it is right or external.
fn problem(pages: &Pages, exists: &dyn Fn(&Path) -> bool, page: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let folder = page.parent().unwrap_or(Path::new(""));
    let path = if file.is_empty() { page.to_owned() } else { plain(&folder.join(file)) };
    let (Some(text), Some(heading)) = (pages.get(&path), heading) else {
        return (!exists(&path)).then(|| "there is no such file".to_owned());
    };
    let known = code_free_lines(text).filter(|(_, line)| line.starts_with('#')).any(|(_, line)| slug(line) == heading);
    (!known).then(|| format!("there is no heading `#{heading}`"))
}

/// The path without `.` and `..`: on disk `missing/../README.md` does not exist, but a browser resolves it.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// Lines outside of code blocks, counted from 1.
pub(crate) fn code_free_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// The targets of all links `[…](target)` outside of code, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in code_free_lines(text) {
        for (at, opening) in line.match_indices("](") {
            // An odd number of backticks before it: the link is an example in code.
            let in_code = line[..at].matches('`').count() % 2 == 1;
            let rest = &line[at + opening.len()..];
            if !in_code && let Some(end) = rest.find([')', ' ']) {
                found.push((number, &rest[..end]));
            }
        }
    }
    found
}

/// The anchor of a heading: lower case, spaces as dashes, no other punctuation.
fn slug(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    title
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

/// All Markdown files below `dir`, in order; hidden folders are left out.
pub(crate) fn markdown_files(dir: &Path) -> Result<Vec<PathBuf>> {
    files_ending_in("md", dir)
}

/// All files below `dir` with that ending, in order; hidden folders are left out.
pub(crate) fn files_ending_in(ending: &str, dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).with_context(|| format!("cannot list {}", at.display()))? {
            let path = entry.with_context(|| format!("cannot list {}", at.display()))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !name.starts_with('.') && !FOREIGN.contains(&name) {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_dead_links_are_found_where_they_are_and_live_ones_are_not() {
        let text = concat!(
            "[up](../README.md) [gone](../gone.md) [folder](../docs) [web](https://example.org/gone)\n",
            "```text\n[in code](nowhere.md)\n```\n`[also code](nowhere.md)`\n",
            "# Here\n[heading](../README.md#reasons) [title](../README.md#a-title-words-and-code) [own](#here)\n",
            "[no heading](../README.md#nothing) [own gone](#there)\n",
        );
        let page = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
        let pages = Pages::from([
            page("README.md", "# A title: *Words*, and `code`!\n## Reasons\n"),
            page("docs/page.md", text),
        ]);
        let exists = |path: &Path| pages.contains_key(path) || path == Path::new("docs");
        let expected = [
            "docs/page.md:1: link to `../gone.md`: there is no such file",
            "docs/page.md:8: link to `../README.md#nothing`: there is no heading `#nothing`",
            "docs/page.md:8: link to `#there`: there is no heading `#there`",
        ];
        assert_eq!(dead_links(&pages, &exists), expected);
    }
}
