//! Prometheus, and its own judge of metrics and rules.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::needed::needed;

/// `promtool`, from where `deploy/setup/prometheus.sh` puts it or from the `PATH`; without it the test is skipped, and
/// says so.
#[must_use]
pub fn promtool() -> Option<PathBuf> {
    program("promtool")
}

/// `prometheus`, the server, from the same places.
#[must_use]
pub fn prometheus() -> Option<PathBuf> {
    program("prometheus")
}

fn program(name: &str) -> Option<PathBuf> {
    let cached = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.cache/prometheus").join(name);
    let runs = |program: &Path| {
        let quiet = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet.is_ok_and(|status| status.success())
    };
    let found = [cached, PathBuf::from(name)].into_iter().find(|program| runs(program));
    needed(name, found.ok_or_else(|| format!("no {name}: run deploy/setup/prometheus.sh")))
}
