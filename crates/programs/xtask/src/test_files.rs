//! Tests that cargo is configured not to look for: where the tests of a package are one program, it has all of them,
//! and a library of which no examples are run has none.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::metadata::Metadata;
use crate::sources::rust_files;

/// The program, beside the files that are its modules.
const PROGRAM: &str = "integration";

/// The words after the fence of an example that `cargo test --doc` runs or compiles.
const RUN: [&str; 6] = ["", "rust", "no_run", "should_panic", "compile_fail", "ignore"];

/// Files of tests that are part of no program, and examples that are not run.
pub(crate) fn problems(metadata: &Metadata) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in metadata.members() {
        if !read(&package.dir().join("Cargo.toml"))?.contains("doctest = false") {
            continue;
        }
        for path in rust_files(&package.dir().join("src"))? {
            if has_example(&read(&path)?) {
                let name = path.strip_prefix(crate::root()).unwrap_or(&path).display();
                problems.push(format!("{name}: its example is not run; take `doctest = false` out of the manifest"));
            }
        }
    }
    for package in metadata.members() {
        let folder = package.dir().join("tests");
        let program = folder.join(PROGRAM).with_extension("rs");
        if !program.exists() {
            continue;
        }
        let (program, manifest) = (read(&program)?, read(&package.dir().join("Cargo.toml"))?);
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
            if let Some(name) = module(&path)
                && !is_named(&name, &program, &manifest)
            {
                problems.push(format!(
                    "{}: tests/{name} is part of no program; name it in tests/{PROGRAM}.rs",
                    package.name
                ));
            }
        }
    }
    problems.sort();
    Ok(problems)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The name of the module that a file or folder of tests is; others hold data.
fn module(path: &Path) -> Option<String> {
    let is_one = if path.is_dir() {
        path.join("mod.rs").exists()
    } else {
        path.extension().is_some_and(|extension| extension == "rs")
    };
    path.file_stem().filter(|_| is_one).map(|name| name.to_string_lossy().into_owned())
}

/// Whether documentation has a block of code that is Rust.
fn has_example(source: &str) -> bool {
    let mut is_open = false;
    for line in source.lines().map(str::trim_start) {
        let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_open = false;
            continue;
        };
        let Some(words) = text.trim().strip_prefix("```") else { continue };
        if !is_open && words.split(',').all(|word| RUN.contains(&word.trim())) {
            return true;
        }
        is_open = !is_open;
    }
    false
}

fn is_named(name: &str, program: &str, manifest: &str) -> bool {
    let (as_module, as_program) = (format!("mod {name};"), format!("\"tests/{name}.rs\""));
    name == PROGRAM || program.lines().any(|line| line == as_module) || manifest.contains(&as_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_neither_the_program_nor_the_manifest_names_is_found() {
        let (program, manifest) = ("//! All.\n\nmod moves;\n", "path = \"tests/memory.rs\"\n");
        let named = ["integration", "moves", "memory", "move"].map(|name| is_named(name, program, manifest));
        assert_eq!(named, [true, true, true, false]);
    }

    #[test]
    fn examples_are_told_from_other_blocks() {
        assert!(has_example("/// It adds:\n/// ```\n/// assert!(true);\n/// ```\nfn a() {}"));
        assert!(has_example("//! ```text\n//! a\n//! ```\n//!\n//! ```rust,no_run\n//! ```"));
        assert!(!has_example("//! ```text\n//! a\n//! ```\nfn a() {}\n    /// ```toml\n    /// ```\n"));
    }

    #[test]
    fn some_packages_have_such_a_program_and_each_names_its_files() {
        let metadata = Metadata::of_workspace().unwrap();
        let programs = metadata.members().filter(|package| package.dir().join("tests/integration.rs").exists());
        assert!(programs.count() >= 10);
        assert_eq!(problems(&metadata).unwrap(), Vec::<String>::new());
    }
}
