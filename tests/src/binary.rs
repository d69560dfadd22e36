//! The program under test, and its output.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Output and exit code of a run of the program.
#[derive(Clone, Debug)]
pub struct ProgramOutput {
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Its arguments, for messages.
    args: String,
}

impl ProgramOutput {
    /// The run, if it ended with `code`.
    ///
    /// # Panics
    /// If it ended with another code.
    #[must_use]
    #[track_caller]
    pub fn ended_with(self, code: i32) -> Self {
        let Self { args, out, err, .. } = &self;
        assert_eq!(self.code, Some(code), "exit code of `symphony {args}`; it said:\n{out}\n{err}");
        self
    }

    /// The run, if its standard error has all of these words.
    ///
    /// # Panics
    /// If one is missing.
    #[track_caller]
    pub fn complains(self, words: &[&str]) -> Self {
        for word in words {
            let Self { args, err, .. } = &self;
            assert!(err.contains(word), "`symphony {args}` does not say `{word}`; it said:\n{err}");
        }
        self
    }

    /// Standard output as JSON.
    ///
    /// # Panics
    /// If it is anything else.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let Self { args, out, err, .. } = self;
        serde_json::from_str(out).unwrap_or_else(|e| panic!("`symphony {args}` wrote no JSON ({e}):\n{out}\n{err}"))
    }
}

/// The program `symphony`, as the build left it beside this test's own program.
///
/// # Errors
/// If it is not there.
pub fn symphony() -> Result<PathBuf> {
    let own = std::env::current_exe().context("this test does not know its own program")?;
    // target/PROFILE/deps/TEST → target/PROFILE/symphony
    let folder = own.parent().and_then(Path::parent).context("this test's program lies in no target folder")?;
    let program = folder.join("symphony");
    ensure!(
        program.is_file(),
        "{} is missing; build it first, with the test's own profile: cargo build -p symphony --bins",
        program.display()
    );
    Ok(program)
}

/// Runs the program to its end in `dir`.
///
/// # Errors
/// If it cannot be started.
pub fn run<S: AsRef<str>>(dir: &Path, env: &[(&str, &str)], args: &[S]) -> Result<ProgramOutput> {
    let args: Vec<_> = args.iter().map(AsRef::as_ref).collect();
    let output = Command::new(symphony()?)
        .args(&args)
        .envs(env.iter().copied())
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run `symphony {}`", args.join(" ")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(ProgramOutput {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
        args: args.join(" "),
    })
}
