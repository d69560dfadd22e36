//! What source code may not contain: clocks, threads, sockets and files in the core; unsafe code almost anywhere.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::layers::{Layer, layer};
use crate::metadata::Metadata;
use crate::rust_code::{lines_with, without_tests, without_text};

/// Crates that may have unsafe code, each block with its proof.
const UNSAFE_CRATES: [&str; 5] = ["shared-memory", "file-sync", "rdma", "executor", "executor-gpu"];

/// The parts of the standard library that the core may not use; time and seeds are arguments there.
const NOT_IN_THE_CORE: [&str; 4] = ["thread", "net", "fs", "process"];

/// All violations.
pub(crate) fn problems(metadata: &Metadata) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in metadata.members() {
        let core = layer(package).is_some_and(|layer| layer <= Layer::Core);
        let may_be_unsafe = UNSAFE_CRATES.contains(&package.short_name());
        for path in rust_files(package.dir())? {
            let source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let shown = path.strip_prefix(package.dir()).unwrap_or(&path);
            let place = format!("{}: {}", package.name, shown.display());
            if !may_be_unsafe {
                problems.extend(unsafe_code(&place, &source));
            }
            let test_file = path.file_stem().is_some_and(|stem| stem == "tests");
            if core && shown.starts_with("src") && !test_file {
                problems.extend(impure_code(&place, &source));
            }
        }
    }
    Ok(problems)
}

/// Unsafe code in one file.
fn unsafe_code(place: &str, source: &str) -> Vec<String> {
    let lines = lines_with(&without_text(source), "unsafe");
    lines.iter().map(|line| format!("{place}:{line}: unsafe code is not allowed in this crate")).collect()
}

/// Clocks, threads, sockets and files in one file of the core, its tests left out.
fn impure_code(place: &str, source: &str) -> Vec<String> {
    let all = without_text(source);
    let code = without_tests(&all);
    let mut found = Vec::new();
    for clock in ["Instant", "SystemTime"] {
        found.extend(lines_with(code, clock).into_iter().map(|line| (line, format!("the clock {clock}"))));
    }
    for module in NOT_IN_THE_CORE {
        let path = format!("std::{module}");
        found.extend(lines_with(code, &path).into_iter().map(|line| (line, path.clone())));
        found.extend(grouped(code, module).into_iter().map(|line| (line, path.clone())));
    }
    found.sort();
    found.into_iter().map(|(line, what)| format!("{place}:{line}: {what} is not allowed in a pure crate")).collect()
}

/// Lines in which `use std::{…}` names the module.
fn grouped(code: &str, module: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    for (at, opening) in code.match_indices("use std::{") {
        let inner = &code[at + opening.len()..];
        let inner = &inner[..inner.find(';').unwrap_or(inner.len())];
        let first = code[..at].matches('\n').count();
        lines.extend(lines_with(inner, module).into_iter().map(|line| first + line));
    }
    lines
}

/// All Rust files of a package, in order.
pub(crate) fn rust_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        let entries = fs::read_dir(&at).with_context(|| format!("cannot list {}", at.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("cannot list {}", at.display()))?.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
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
    fn planted_impurities_are_found_where_they_are() {
        let source = "//! No std::thread here.\nuse std::time::Instant;\nuse std::{fmt, fs::File,\n  net};\nfn a() { std::thread::yield_now(); }\nuse std::time::Duration;\n#[cfg(test)]\nmod tests {\n use std::fs; }";
        let expected = [
            "core: src/a.rs:2: the clock Instant is not allowed in a pure crate",
            "core: src/a.rs:3: std::fs is not allowed in a pure crate",
            "core: src/a.rs:4: std::net is not allowed in a pure crate",
            "core: src/a.rs:5: std::thread is not allowed in a pure crate",
        ];
        assert_eq!(impure_code("core: src/a.rs", source), expected);
    }

    #[test]
    fn planted_unsafe_code_is_found_also_in_tests() {
        let source = "#![forbid(unsafe_code)]\n// unsafe\n#[cfg(test)]\nmod tests { fn a() { unsafe { b() } } }";
        assert_eq!(unsafe_code("x: src/lib.rs", source), ["x: src/lib.rs:4: unsafe code is not allowed in this crate"]);
    }
}
