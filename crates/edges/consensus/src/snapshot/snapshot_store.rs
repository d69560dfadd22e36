//! Where snapshots are kept: files in one directory, the newest two.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::image::{self, Image};
use crate::limits::{SNAPSHOT_IMAGE_BYTES_MAX, SNAPSHOTS_KEPT};
use crate::record::Position;

const SUFFIX: &str = ".snapshot";
const UNFINISHED_SUFFIX: &str = ".unfinished";

/// A directory of snapshots of one cluster.
#[derive(Debug)]
pub(crate) struct SnapshotStore {
    dir: PathBuf,
    cluster: String,
    #[cfg(feature = "crash-suite")]
    syncs_names: bool,
}

impl SnapshotStore {
    /// Opens the directory and removes what a crash left unfinished.
    pub(crate) fn open(dir: PathBuf, cluster: String) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        for file in fs::read_dir(&dir)? {
            let path = file?.path();
            if has_suffix(&path, UNFINISHED_SUFFIX) {
                fs::remove_file(path)?;
            }
        }
        File::open(&dir)?.sync_all()?;
        if let Some(parent) = dir.parent() {
            File::open(parent)?.sync_all()?;
        }
        Ok(Self {
            dir,
            cluster,
            #[cfg(feature = "crash-suite")]
            syncs_names: true,
        })
    }

    /// A planted bug: files are synced, their names are not.
    #[cfg(feature = "crash-suite")]
    pub(crate) fn without_synced_names(self) -> Self {
        Self { syncs_names: false, ..self }
    }

    pub(crate) fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Stores an image that covers everything up to `at`; durable on return. Keeps the last two.
    pub(crate) fn put(&self, at: Option<Position>, bytes: &[u8]) -> io::Result<()> {
        let place = at.map_or_else(|| "empty".to_owned(), |at| format!("{:020}-{}-{}", at.index, at.term, at.node));
        let finished = self.dir.join(format!("{place}{SUFFIX}"));
        let unfinished = self.dir.join(format!("{place}{UNFINISHED_SUFFIX}"));
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&unfinished, &finished)?;
        self.sync_names()?;
        for old in self.newest_first()?.into_iter().skip(SNAPSHOTS_KEPT) {
            fs::remove_file(old)?;
        }
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        #[cfg(feature = "crash-suite")]
        if !self.syncs_names {
            return Ok(());
        }
        File::open(&self.dir)?.sync_all()
    }

    /// The newest snapshot that verifies. Damaged ones are reported and skipped; the caller must check that the log
    /// still reaches back to the result.
    pub(crate) fn newest(&self) -> io::Result<Option<(Image, Bytes)>> {
        for path in self.newest_first()? {
            let length = fs::metadata(&path)?.len();
            if length > SNAPSHOT_IMAGE_BYTES_MAX as u64 {
                tracing::error!(file = %path.display(), length, "snapshot is larger than any that was written");
                continue;
            }
            let bytes = Bytes::from(fs::read(&path)?);
            match image::decode(&bytes, &self.cluster) {
                Ok(image) => return Ok(Some((image, bytes))),
                Err(error) => tracing::error!(file = %path.display(), %error, "snapshot is passed over"),
            }
        }
        Ok(None)
    }

    fn newest_first(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for file in fs::read_dir(&self.dir)? {
            let path = file?.path();
            if has_suffix(&path, SUFFIX) {
                found.push(path);
            }
        }
        // Names start with the index in fixed width; "empty" sorts after digits, so it is put last by hand.
        found.sort_by_key(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            (name.starts_with(|c: char| c.is_ascii_digit()), name)
        });
        found.reverse();
        Ok(found)
    }
}

fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Members;

    fn snapshots(dir: &Path) -> SnapshotStore {
        SnapshotStore::open(dir.to_owned(), "blue".to_owned()).expect("store opens")
    }

    fn put(snapshots: &SnapshotStore, index: u64) {
        let at = Some(Position { term: 1, node: 1, index });
        let image = Image { at, members_at: None, members: Members::default(), state: index.to_le_bytes().to_vec() };
        snapshots.put(at, &image::encode(image, "blue").expect("encodes")).expect("stores");
    }

    fn newest(snapshots: &SnapshotStore) -> Option<u64> {
        snapshots.newest().expect("reads").and_then(|(image, _)| image.at).map(|at| at.index)
    }

    #[test]
    fn the_newest_two_are_kept() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let snapshots = snapshots(dir.path());
        assert_eq!(newest(&snapshots), None);
        for index in [9, 10, 100] {
            put(&snapshots, index);
        }
        assert_eq!(newest(&snapshots), Some(100));
        assert_eq!(snapshots.newest_first().expect("lists").len(), SNAPSHOTS_KEPT);
    }

    #[test]
    fn a_damaged_one_is_passed_over_for_the_one_before() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let snapshots = snapshots(dir.path());
        put(&snapshots, 1);
        put(&snapshots, 2);
        let newest_file = snapshots.newest_first().expect("lists").remove(0);
        let mut bytes = fs::read(&newest_file).expect("reads");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&newest_file, bytes).expect("damages");
        assert_eq!(newest(&snapshots), Some(1));
    }

    #[test]
    fn what_a_crash_left_unfinished_is_removed() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let torn = dir.path().join(format!("{:020}-1-1{UNFINISHED_SUFFIX}", 7));
        fs::write(&torn, b"half").expect("plants the file");
        let snapshots = snapshots(dir.path());
        assert!(!torn.exists());
        assert_eq!(newest(&snapshots), None);
    }
}
