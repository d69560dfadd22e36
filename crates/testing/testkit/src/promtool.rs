//! Prometheus' own judge of metrics and rules.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::needed::needed;

/// `promtool`, from where `deploy/setup/promtool.sh` puts it or from the `PATH`; without it the test is skipped, and
/// says so.
#[must_use]
pub fn promtool() -> Option<PathBuf> {
    let cached = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.cache/promtool/promtool");
    let runs = |program: &Path| {
        let quiet = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet.is_ok_and(|status| status.success())
    };
    let found = [cached, PathBuf::from("promtool")].into_iter().find(|program| runs(program));
    needed("promtool", found.ok_or("no promtool: run deploy/setup/promtool.sh"))
}
