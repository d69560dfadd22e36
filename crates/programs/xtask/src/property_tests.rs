//! Runs property tests with other inputs than the usual ones.

use std::collections::BTreeSet;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};

use crate::metadata::Metadata;
use crate::rust_code::{is_word, without_text};
use crate::sources::rust_files;
use crate::step::Step;
use crate::verify::nextest_installed;

/// The seed of proptest's random numbers; `.cargo/config.toml` sets it for every other command.
const SEED: &str = "PROPTEST_RNG_SEED";

/// Runs all property tests once for each of `rounds` seeds, from `first` or from the clock. Returns whether all passed.
pub(crate) fn search(first: Option<u64>, rounds: u64) -> Result<bool> {
    let (packages, names) = found(&Metadata::of_workspace()?)?;
    ensure!(!names.is_empty(), "there are no property tests");
    let first = first.map_or_else(seed_of_the_clock, Ok)?;
    let begin: &[&str] = if nextest_installed() { &["nextest", "run", "--tests"] } else { &["test", "--tests"] };
    let mut args = begin.to_vec();
    args.extend(packages.iter().flat_map(|package| ["--package", package]));
    args.extend(["--locked", "--no-fail-fast", "--"]);
    args.extend(names.iter().map(String::as_str));
    let mut failed = Vec::new();
    for seed in first..first.saturating_add(rounds) {
        eprintln!("xtask: property tests: {SEED}={seed}");
        let value = seed.to_string();
        if !(Step { name: "property tests", args: &args, env: &[(SEED, &value)] }.run()?) {
            failed.push(seed);
        }
    }
    for seed in &failed {
        eprintln!("xtask: FAILED; the same inputs again: {SEED}={seed} cargo nextest run -p PACKAGE NAME");
    }
    eprintln!("xtask: {} property tests, {rounds} seeds from {first}: {} failed", names.len(), failed.len());
    Ok(failed.is_empty())
}

fn seed_of_the_clock() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs())
}

/// The packages with property tests, and the names of those tests.
fn found(metadata: &Metadata) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let (mut packages, mut names) = (BTreeSet::new(), BTreeSet::new());
    for package in metadata.members() {
        for path in rust_files(package.dir())? {
            let source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let here = names_in(&without_text(&source));
            if !here.is_empty() {
                packages.insert(package.name.clone());
                names.extend(here);
            }
        }
    }
    Ok((packages, names))
}

/// The functions inside each `proptest! { … }` of code without its strings and comments.
fn names_in(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, opening) in code.match_indices("proptest! {") {
        let body = &code[at + opening.len()..];
        let mut depth = 1_u32;
        for (at, byte) in body.bytes().enumerate() {
            match byte {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                b'f' if depth == 1 && body[at..].starts_with("fn ") => {
                    let name = body[at + "fn ".len()..].bytes().take_while(|&byte| is_word(byte));
                    names.push(name.map(char::from).collect());
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_tests_are_found_and_what_they_call_is_not() {
        let code = "fn a() {}\nproptest! {\n #[test]\n fn b(x in 0..9) { fn c() {} }\n #[test]\n fn d_2(y in 0..9) {}\n}\nfn e() {}\n";
        assert_eq!(names_in(code), ["b", "d_2"]);
        let (packages, names) = found(&Metadata::of_workspace().unwrap()).unwrap();
        assert!(names.contains("solving_again_from_the_plan_changes_nothing"), "{names:?}");
        assert!(packages.contains("symphony-partitioner"), "{packages:?}");
    }

    /// Otherwise the same tree might pass once and fail once.
    #[test]
    fn every_cargo_command_fixes_the_seed() {
        assert!(std::env::var(SEED).is_ok(), "{SEED} is not set: see .cargo/config.toml");
    }
}
