//! Reading what programs write for programs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::wait_until;

/// Reads a JSON file.
///
/// # Errors
/// If it cannot be read or is not JSON.
pub fn read_json(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}

/// Waits until a file exists and is complete JSON, as when another process is about to write it.
///
/// # Errors
/// If `timeout` passes first.
pub fn wait_for_json(path: &Path, timeout: Duration) -> Result<Value> {
    wait_until(&format!("{}", path.display()), timeout, || read_json(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workspace;

    #[test]
    fn half_a_file_is_waited_for_and_named_when_it_stays_half() {
        let workspace = Workspace::new("json").unwrap();
        let path = workspace.write("report.json", "{\"good\": 3").unwrap();
        let error = wait_for_json(&path, Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.contains("report.json is not JSON"), "{error}");
        workspace.write("report.json", "{\"good\": 3}").unwrap();
        assert_eq!(wait_for_json(&path, Duration::from_secs(5)).unwrap()["good"], 3);
    }
}
