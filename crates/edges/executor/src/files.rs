//! Safe access to files of unknown origin.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read as _, Result};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a regular file for reading, and nothing else: a pipe would block until it has a writer, and a device may
/// never end.
///
/// # Errors
/// If it cannot be opened, or is something else than a regular file behind all links.
pub fn open_regular(path: &Path) -> Result<File> {
    // Checked before, because opening a device may have effects; and after, because the file may have been exchanged
    // for a pipe, which then does not block.
    let is_file = fs::metadata(path)?.is_file();
    let open = || OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
    let file = if is_file { Some(open()?) } else { None };
    match file.map(|file| file.metadata().map(|now| (now.is_file(), file))).transpose()? {
        Some((true, file)) => Ok(file),
        _ => Err(Error::new(ErrorKind::InvalidInput, "expected a regular file; it is a folder, a pipe or a device")),
    }
}

/// Checks that a file lies within a folder, after resolving all links: the user that may write to the folder need not
/// be allowed to read files elsewhere. Links within it are fine; Kubernetes volumes and git-sync consist of them.
///
/// # Errors
/// If it lies elsewhere, or one of the two is not there.
pub fn check_within(root: &Path, path: &Path) -> Result<()> {
    let (root, found) = (fs::canonicalize(root)?, fs::canonicalize(path)?);
    if found.starts_with(&root) {
        return Ok(());
    }
    let problem = format!("a link leads to {}; expected a file within {}", found.display(), root.display());
    Err(Error::new(ErrorKind::PermissionDenied, problem))
}

/// Reads a text of at most `bytes_max` bytes from a regular file, whatever size the file system reports.
///
/// # Errors
/// If it cannot be read, is longer, or no UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let problem = format!("the file has more bytes; expected at most {bytes_max}");
        return Err(Error::new(ErrorKind::FileTooLarge, problem));
    }
    String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn what_is_no_file_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, zero) = (dir.path().join("pipe"), dir.path().join("zero"));
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        symlink("/dev/zero", &zero).unwrap();
        for path in [pipe.as_path(), &zero, dir.path()] {
            let refused = read_text(path, 10).unwrap_err();
            assert!(refused.to_string().contains("expected a regular file"), "{}: {refused}", path.display());
        }
        assert_eq!(open_regular(&dir.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn links_may_lead_anywhere_within_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        // As Kubernetes lays out what it mounts, and the mount itself by way of a link.
        let (real, root) = (dir.path().join("real"), dir.path().join("models"));
        fs::create_dir_all(real.join("..2026_1/m")).unwrap();
        fs::write(real.join("..2026_1/m/model.onnx"), "x").unwrap();
        symlink("..2026_1", real.join("..data")).unwrap();
        symlink("..data/m", real.join("m")).unwrap();
        symlink(&real, &root).unwrap();
        check_within(&root, &root.join("m/model.onnx")).unwrap();

        let secret = dir.path().join("secret");
        fs::write(&secret, "x").unwrap();
        symlink(&secret, real.join("..2026_1/m/other.onnx")).unwrap();
        symlink(dir.path(), real.join("out")).unwrap();
        for path in ["m/other.onnx", "out/secret", "../secret"] {
            let refused = check_within(&root, &root.join(path)).unwrap_err();
            assert!(refused.to_string().contains("expected a file within"), "{path}: {refused}");
        }
        assert_eq!(check_within(&root, &root.join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn no_more_is_read_than_allowed_also_if_the_length_is_not_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        fs::write(&path, "äöü").unwrap();
        assert_eq!(read_text(&path, 6).unwrap(), "äöü");
        assert_eq!(read_text(&path, 5).unwrap_err().kind(), ErrorKind::FileTooLarge, "cut within a character");
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 5).unwrap_err().kind(), ErrorKind::InvalidData);
        // A file with a reported size of 0 and some hundred bytes.
        let status = Path::new("/proc/self/status");
        assert_eq!(fs::metadata(status).unwrap().len(), 0);
        assert_eq!(read_text(status, 100).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}
