//! Reserved disk space that is freed when the disk is full, so that a node can still open its log.

use std::fs;
use std::io;
use std::path::Path;

use crate::log::recovery::RecoveryError;

const FILE: &str = "ballast";

/// Runs `open`; if the disk is full, frees the ballast and tries again.
pub(super) fn with_ballast<T>(
    dir: &Path,
    bytes: usize,
    open: impl Fn() -> Result<T, RecoveryError>,
) -> Result<T, RecoveryError> {
    let ballast = dir.join(FILE);
    let opened = match open() {
        Err(RecoveryError::Io(error)) if error.kind() == io::ErrorKind::StorageFull && ballast.exists() => {
            tracing::warn!(file = %ballast.display(), "disk is full: giving up the ballast to open the log");
            fs::remove_file(&ballast)?;
            return open();
        }
        other => other?,
    };
    let whole = fs::metadata(&ballast).is_ok_and(|found| found.len() == bytes as u64);
    if !whole && let Err(error) = fs::write(&ballast, vec![0u8; bytes]) {
        tracing::warn!(file = %ballast.display(), %error, "no room for the ballast");
        // Half a ballast would only take space that is short.
        let _ = fs::remove_file(&ballast);
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const BYTES: usize = 5_000;

    #[test]
    fn a_full_disk_costs_the_ballast_and_not_the_node() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let ballast = dir.path().join(FILE);
        with_ballast(dir.path(), BYTES, || Ok(())).expect("opens");
        assert_eq!(fs::metadata(&ballast).expect("ballast").len(), BYTES as u64);

        let full = Cell::new(true);
        let open = || match full.replace(false) {
            true => Err(io::Error::from(io::ErrorKind::StorageFull).into()),
            false => Ok(()),
        };
        with_ballast(dir.path(), BYTES, open).expect("opens once there is room");
        assert!(!ballast.exists());
    }
}
