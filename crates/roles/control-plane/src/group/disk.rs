//! The number of a replica's disk. An emptied disk gets a new one, which shows that votes were lost.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

const FILE: &str = "disk-id";

/// The number of the disk at `dir`. It gets `fresh`, a unique number, if it has none or the replica has no data on it.
///
/// # Errors
/// If the file cannot be read or written.
pub(crate) fn number(dir: &Path, has_past: bool, fresh: u64) -> io::Result<u64> {
    let path = dir.join(FILE);
    if has_past {
        match fs::read_to_string(&path) {
            Ok(text) => {
                let malformed =
                    |_| io::Error::new(io::ErrorKind::InvalidData, format!("{}: no number", path.display()));
                return text.trim().parse().map_err(malformed);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    fs::create_dir_all(dir)?;
    let draft = dir.join(format!("{FILE}.new"));
    let mut file = File::create(&draft)?;
    writeln!(file, "{fresh}")?;
    file.sync_all()?;
    fs::rename(&draft, &path)?;
    File::open(dir)?.sync_all()?;
    Ok(fresh)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_keeps_its_number_until_it_is_emptied() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(number(dir.path(), false, 5).unwrap(), 5);
        assert_eq!(number(dir.path(), true, 6).unwrap(), 5);
        assert_eq!(number(dir.path(), false, 7).unwrap(), 7, "the log is gone, whatever else is left");
        fs::write(dir.path().join(FILE), "rubbish").unwrap();
        assert!(number(dir.path(), true, 8).unwrap_err().to_string().contains("no number"));
        fs::remove_file(dir.path().join(FILE)).unwrap();
        assert_eq!(number(dir.path(), true, 9).unwrap(), 9);
    }
}
