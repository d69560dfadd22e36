//! Committed bytes of a format, by which a test sees that it has changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// What is written, by name.
pub type NamedBytes = BTreeMap<String, Vec<u8>>;

/// A committed file with a line `NAME: HEX` for each thing that a format writes.
#[derive(Clone, Debug)]
pub struct FormatFile(PathBuf);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(byte).collect()
}

impl FormatFile {
    /// The file at this path, whether it exists or not.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// What it holds.
    ///
    /// # Panics
    /// If it cannot be read, or holds anything else.
    #[must_use]
    pub fn read(&self) -> NamedBytes {
        let file = self.0.display();
        let text = fs::read_to_string(&self.0).unwrap_or_else(|error| panic!("{file}: {error}"));
        let line = |line: &str| {
            let named = line.split_once(": ").and_then(|(name, hex)| Some((name.to_owned(), bytes(hex)?)));
            named.unwrap_or_else(|| panic!("{file}: `{line}`; expected NAME: HEX"))
        };
        text.lines().map(line).collect()
    }

    /// Whether the same is written as it holds, byte for byte.
    ///
    /// # Panics
    /// If not, with the name of what differs and `advice`.
    #[track_caller]
    pub fn check(&self, written: &NamedBytes, advice: &str) {
        let committed = self.read();
        let file = self.0.display();
        assert!(written.keys().eq(committed.keys()), "{file}: {:?}\n{:?}", written.keys(), committed.keys());
        for (name, bytes) in written {
            assert_eq!(hex(bytes), hex(&committed[name]), "{file}: {name} is written differently: {advice}");
        }
    }

    /// Writes the file unless it exists; returns whether it did.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write_if_missing(&self, written: &NamedBytes) -> bool {
        let file = self.0.display();
        if self.0.exists() {
            return false;
        }
        if let Some(folder) = self.0.parent() {
            fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{file}: {error}"));
        }
        let lines = written.iter().map(|(name, bytes)| format!("{name}: {}\n", hex(bytes)));
        fs::write(&self.0, lines.collect::<String>()).unwrap_or_else(|error| panic!("{file}: {error}"));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &[u8]) -> NamedBytes {
        [("a thing".to_owned(), bytes.to_vec())].into()
    }

    #[test]
    fn what_is_committed_is_read_and_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = FormatFile::new(dir.path().join("format/version-1.txt"));
        assert!(file.write_if_missing(&written(&[0, 255])));
        assert!(!file.write_if_missing(&written(&[7])));
        assert_eq!(file.read(), written(&[0, 255]));
        file.check(&written(&[0, 255]), "");
    }

    #[test]
    #[should_panic(expected = "a thing is written differently: add a level")]
    fn what_is_written_differently_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = FormatFile::new(dir.path().join("version-1.txt"));
        assert!(file.write_if_missing(&written(&[0, 255])));
        file.check(&written(&[0, 254]), "add a level");
    }

    #[test]
    #[should_panic(expected = "`a thing: 0g`; expected NAME: HEX")]
    fn what_is_no_such_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("version-1.txt");
        fs::write(&path, "a thing: 0g\n").unwrap();
        let _ = FormatFile::new(path).read();
    }
}
