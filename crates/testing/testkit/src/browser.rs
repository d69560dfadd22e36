//! A browser, and what drives it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::needed::needed;

/// Chromium by the names that systems give it.
const CHROMIUM: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// What a test of a page needs.
#[derive(Clone, Debug)]
pub struct Browser {
    /// Python with playwright, which drives it.
    pub python: PathBuf,
    /// Path of the Chromium that is driven.
    pub chromium: PathBuf,
}

/// Chromium from the `PATH`, and playwright from `.cache/venv`; without them the test is skipped, and says so.
#[must_use]
pub fn browser() -> Option<Browser> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.cache/venv/bin/python");
    let runs = |program: &Path, args: &[&str]| {
        let mut quiet = Command::new(program);
        quiet.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).flat_map(|dir| CHROMIUM.map(|name| dir.join(name)));
    let found = match places.find(|program| runs(program, &["--version"])) {
        None => Err("no Chromium: install it with this system's package manager, then run `make setup-tests`"),
        Some(_) if !runs(&python, &["-c", "import playwright"]) => {
            Err("no playwright in .cache/venv: run `make setup-tests`")
        }
        Some(chromium) => Ok(Browser { python, chromium }),
    };
    needed("chromium", found)
}
