//! `verify` and `fix`.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Result;

use crate::metadata::Metadata;
use crate::step::Step;
use crate::{What, check};

const FORMAT: Step<'_> = Step { name: "format", args: &["fmt", "--all", "--", "--check"], env: &[] };
const LINTS: Step<'_> = Step {
    name: "lints",
    args: &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
    env: &[],
};
const DOCUMENTATION: Step<'_> = Step {
    name: "documentation",
    args: &["doc", "--workspace", "--no-deps", "--locked", "--document-private-items"],
    env: &[("RUSTDOCFLAGS", "-D warnings")],
};
const EXAMPLES: Step<'_> = Step {
    name: "examples in documentation",
    args: &["test", "--workspace", "--doc", "--locked", "--quiet"],
    env: &[],
};
// Integration tests start the programs, which are built with them: each program is of a package that has such tests.
// A build of the programs alone has other features, as nothing of the tests is in it, and builds much a second time.
// `--tests`: of everything but examples, which the lints have compiled.
const NEXTEST: Step<'_> =
    Step { name: "tests", args: &["nextest", "run", "--workspace", "--tests", "--locked", "--no-fail-fast"], env: &[] };
const CARGO_TEST: Step<'_> =
    Step { name: "tests", args: &["test", "--workspace", "--tests", "--locked", "--no-fail-fast"], env: &[] };

// A separate feature: HiGHS is a C++ library that not every machine has.
// Of the whole workspace, so that features are those of the tests before, and little is built again.
const EXACT_SOLVER: [&str; 7] = ["test", "--workspace", "--features", "symphony/highs", "--test", "oracle", "--locked"];
// Only tests of libraries: the program itself would stay linked against a library that exists only here.
const EXACT_COMMAND: [&str; 7] =
    ["test", "--workspace", "--features", "symphony/highs", "--lib", "--locked", "the_exact_solver"];

/// All steps, cheap ones first; goes on after a failure, so that one run reports all. What failed is repeated at the
/// end, where it is read first, and the last line has the number of tests.
pub(crate) fn verify() -> Result<bool> {
    let began = Instant::now();
    let mut failed = Vec::new();
    let mut note = |name, well: bool| {
        if !well {
            failed.push(name);
        }
    };
    note("format", FORMAT.run()?);
    let problems = check(What::All)?;
    note("checks", problems.is_empty());
    note("lints", LINTS.run()?);
    note("documentation", DOCUMENTATION.run()?);
    note("examples in documentation", EXAMPLES.run()?);
    let (well, lines) = if nextest_installed() {
        NEXTEST.run_and_pick(|line| is_nextest_summary(line) || is_failed_test(line))?
    } else {
        CARGO_TEST.run_and_pick(|line| line.starts_with("test result: ") || is_failed_test(line))?
    };
    let (failed_tests, lines): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| is_failed_test(line));
    note("tests", well);
    if let Some(well) = exact_solver()? {
        note("exact solver", well);
    }
    if let Some(well) = rdma()? {
        note("RDMA", well);
    }
    if let Some(well) = packaging()? {
        note("packaging", well);
    }
    // Nextest names each failed test twice.
    let failed_tests: BTreeSet<&str> = failed_tests.iter().map(|line| line.trim()).collect();
    for line in problems.iter().map(String::as_str).chain(failed_tests) {
        eprintln!("xtask: failed: {line}");
    }
    let seconds = began.elapsed().as_secs();
    let verdict = if failed.is_empty() { "passed".to_owned() } else { format!("FAILED: {}", failed.join(", ")) };
    eprintln!("xtask: verify {verdict} in {seconds} s; {}", count(&lines));
    Ok(failed.is_empty())
}

/// The environment variable with the comma-separated names of what must not be missing (`symphony_testkit::needed`).
const REQUIRE: &str = "SYMPHONY_TEST_REQUIRE";

/// Whether the tests of the exact solver may be skipped where HiGHS is missing.
fn may_lack_highs(required: &str) -> bool {
    required.split(',').all(|name| name.trim() != "highs")
}

/// The tests of the partitioner against HiGHS, if `deploy/setup/highs.sh` has installed it; otherwise none, or a
/// failure if it is required.
fn exact_solver() -> Result<Option<bool>> {
    let lib = crate::root().join(".cache/highs/lib");
    if !lib.join("pkgconfig/highs.pc").exists() {
        if !may_lack_highs(&std::env::var(REQUIRE).unwrap_or_default()) {
            eprintln!("xtask: exact solver: {REQUIRE} names highs, and it is not here: run deploy/setup/highs.sh");
            return Ok(Some(false));
        }
        eprintln!("xtask: exact solver: skipped, since deploy/setup/highs.sh has not been run here");
        return Ok(None);
    }
    let include = Command::new("gcc").arg("-print-file-name=include").output()?;
    let include = format!("-isystem {}", String::from_utf8_lossy(&include.stdout).trim());
    let (lib, pkgconfig) = (lib.display().to_string(), lib.join("pkgconfig").display().to_string());
    let env = [
        ("PKG_CONFIG_PATH", pkgconfig.as_str()),
        ("LIBCLANG_PATH", lib.as_str()),
        ("LD_LIBRARY_PATH", lib.as_str()),
        ("BINDGEN_EXTRA_CLANG_ARGS", include.as_str()),
    ];
    let solver = Step { name: "exact solver", args: &EXACT_SOLVER, env: &env }.run()?;
    let command = Step { name: "exact solver by command", args: &EXACT_COMMAND, env: &env }.run()?;
    Ok(Some(solver && command))
}

/// The tests of RDMA over Soft-RoCE in a virtual machine, if `deploy/setup/rdma.sh --guest` has made one; they may not
/// be skipped there. Without one none run, unless SYMPHONY_TEST_REQUIRE names `rdma`.
fn rdma() -> Result<Option<bool>> {
    let root = crate::root();
    let guest_is_there = root.join(".cache/rdma/base.cpio").exists();
    let required = std::env::var("SYMPHONY_TEST_REQUIRE").unwrap_or_default();
    if let Err(well) = rdma_runs(guest_is_there, &required) {
        eprintln!("xtask: RDMA: skipped, since deploy/setup/rdma.sh --guest has not been run here");
        return Ok(well);
    }
    // Without measurements.
    let script = root.join("tests/rdma/test.sh");
    eprintln!("xtask: RDMA: {} 0", script.display());
    Ok(Some(Command::new(script).arg("0").status()?.success()))
}

/// Whether the tests of RDMA run; otherwise the result of the step.
fn rdma_runs(guest_is_there: bool, required: &str) -> Result<(), Option<bool>> {
    let is_required = required.split(',').any(|name| name.trim() == "rdma");
    if guest_is_there { Ok(()) } else { Err(is_required.then_some(false)) }
}

/// Units by systemd's own check, and manifests by the API's schemas and the program itself, where the tools for it are;
/// where Helm is, too, the chart, which otherwise the check says it skips.
/// Packages are made and tried by `make test-packages`.
fn packaging() -> Result<Option<bool>> {
    let root = crate::root();
    let has = |program: &str| {
        Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let mut well = None;
    let mut and = |succeeds: bool| well = Some(well.unwrap_or(true) && succeeds);
    if has("systemd-analyze") {
        eprintln!("xtask: units");
        and(Command::new(root.join("deploy/systemd/check.sh")).status()?.success());
    } else {
        eprintln!("xtask: units: skipped, since systemd-analyze is not here");
    }
    let python = root.join(".cache/venv/bin/python");
    if python.exists() && (has("kubectl") || has("kustomize")) {
        // The build has left the program beside this one.
        let program = std::env::current_exe()?.with_file_name("symphony");
        eprintln!("xtask: manifests");
        and(Command::new(python).arg(root.join("deploy/kubernetes/check.py")).arg(program).status()?.success());
    } else {
        eprintln!("xtask: manifests: skipped, since kubectl or kubernetes-validate (make setup-tests) is not here");
    }
    Ok(well)
}

/// Formats, and applies what clippy can apply by itself.
pub(crate) fn fix() -> Result<bool> {
    let lints = Step {
        name: "lints",
        args: &["clippy", "--fix", "--allow-dirty", "--allow-staged", "--workspace", "--all-targets", "--locked"],
        env: &[],
    };
    let format = Step { name: "format", args: &["fmt", "--all"], env: &[] };
    crate::crate_table::write(&Metadata::of_workspace()?, crate::root())?;
    crate::configuration_keys::write(crate::root())?;
    Ok(lints.run()? && format.run()?)
}

pub(crate) fn nextest_installed() -> bool {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let quiet = Command::new(cargo).args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

fn is_nextest_summary(line: &str) -> bool {
    line.contains(" tests run: ") || line.contains(" test run: ")
}

/// Whether nextest or `cargo test` says in this line that a test failed.
fn is_failed_test(line: &str) -> bool {
    let word = line.trim_start().split_once(" [").map_or("", |(word, _)| word);
    let by_nextest = matches!(word, "FAIL" | "TIMEOUT" | "ABORT" | "LEAK-FAIL")
        || (word.starts_with("SIG") && word.chars().all(char::is_alphanumeric));
    // Not indented, as nextest shows what a test program printed.
    by_nextest || (line.starts_with("test ") && line.ends_with(" ... FAILED"))
}

/// The number of tests that ran, from nextest's summary or the results of `cargo test`.
fn count(lines: &[String]) -> String {
    if let Some(summary) = lines.iter().rev().find_map(|line| line.split_once("] ").map(|(_, rest)| rest.trim())) {
        return summary.to_owned();
    }
    let sum = |what: &str| -> u64 {
        let numbers = lines.iter().filter_map(|line| {
            let before = line.split(what).next().filter(|before| before.len() < line.len())?;
            before.split_whitespace().next_back()?.parse::<u64>().ok()
        });
        numbers.sum()
    };
    let (passed, failed, ignored) = (sum(" passed"), sum(" failed"), sum(" ignored"));
    format!("{} tests run: {passed} passed, {failed} failed, {ignored} skipped", passed + failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rdma_is_skipped_only_where_it_was_not_set_up_and_nobody_asks_for_it() {
        assert_eq!(rdma_runs(true, ""), Ok(()));
        assert_eq!(rdma_runs(false, "onnxruntime"), Err(None));
        assert_eq!(rdma_runs(false, "onnxruntime, rdma"), Err(Some(false)));
    }

    #[test]
    fn failed_tests_are_picked_from_either_runner() {
        let failed = [
            "        FAIL [   2.101s] symphony-net tls::refused",
            "     SIGKILL [   2.101s] (   7/3046) symphony-net tls::refused",
            "test tls::refused ... FAILED",
        ];
        let others = [
            "        PASS [   2.101s] symphony-net a_FAIL",
            "    test tls::refused ... FAILED",
            "test tls::refused ... ok",
        ];
        assert!(failed.iter().all(|line| is_failed_test(line)));
        assert!(!others.iter().any(|line| is_failed_test(line)));
    }

    #[test]
    fn tests_are_counted_from_either_runner() {
        let nextest = ["     Summary [   0.502s] 19 tests run: 18 passed, 1 failed, 0 skipped".to_owned()];
        assert_eq!(count(&nextest), "19 tests run: 18 passed, 1 failed, 0 skipped");
        let cargo = [
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s".to_owned(),
            "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out".to_owned(),
        ];
        assert_eq!(count(&cargo), "9 tests run: 7 passed, 2 failed, 1 skipped");
        assert_eq!(count(&[]), "0 tests run: 0 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn highs_may_be_missing_unless_it_is_required() {
        for required in ["", "onnxruntime", "highspy"] {
            assert!(may_lack_highs(required), "{required}");
        }
        for required in ["highs", "onnxruntime,highs", " highs , cuda"] {
            assert!(!may_lack_highs(required), "{required}");
        }
    }
}
