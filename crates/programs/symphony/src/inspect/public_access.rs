//! How tools show who they are at the public ports of frontends.

use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use symphony_load::Access;

use crate::cli::{ClusterArgs, PublicArgs, PublicFiles};
use crate::exit::bad_input;

/// Bytes of a file with a key or an authority at most: a key is a line, an authority a few certificates.
const FILE_BYTES_MAX: u64 = 64 << 10;
const KEY_FILE: &str = "--key-file (SYMPHONY_KEY_FILE)";
const PUBLIC_CA: &str = "--public-ca (SYMPHONY_PUBLIC_CA)";

impl PublicArgs {
    /// The credentials from options, variables and the context; without any, none, over plaintext.
    ///
    /// # Errors
    /// If a file that is named cannot be read, or holds something else.
    pub(crate) fn access(&self, cluster: &ClusterArgs) -> anyhow::Result<Access> {
        let context = cluster.context()?.map(|named| named.context).unwrap_or_default();
        let PublicFiles { key_file, public_ca, insecure_key } = self.files(context, cluster.is_by_named_context());
        access(key_file, public_ca, insecure_key)
    }
}

/// The credentials from the variables, for a process that serves: contexts are for people.
///
/// # Errors
/// As [`PublicArgs::access`].
pub(crate) fn from_env() -> anyhow::Result<Access> {
    let path = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let insecure_key = std::env::var("SYMPHONY_INSECURE_KEY").is_ok_and(|value| matches!(value.as_str(), "1" | "true"));
    access(path("SYMPHONY_KEY_FILE"), path("SYMPHONY_PUBLIC_CA"), insecure_key)
}

fn access(key_file: Option<PathBuf>, public_ca: Option<PathBuf>, insecure_key: bool) -> anyhow::Result<Access> {
    let named = |option, path: Option<PathBuf>| path.map(|path| read(option, &path)).transpose();
    let key = named(KEY_FILE, key_file)?.map(|bytes| key_in(&bytes)).transpose().map_err(bad_input)?;
    Ok(Access { key, authority: named(PUBLIC_CA, public_ca)?, insecure_key })
}

fn read(option: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    let refusal = |why: &dyn Display| bad_input(format!("{option}: {}: {why}", path.display()));
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| refusal(&error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(refusal(&format!("has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// The key in a file, which no error shows.
fn key_in(bytes: &[u8]) -> Result<String, String> {
    let key = bytes.trim_ascii();
    if key.is_empty() || !key.iter().all(u8::is_ascii_graphic) {
        return Err(format!("{KEY_FILE}: expected a key and nothing else, as `symphony keys make` prints it"));
    }
    Ok(String::from_utf8_lossy(key).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_key_and_no_error_shows_it() {
        assert_eq!(key_in(b"abc-123\n").as_deref(), Ok("abc-123"));
        for wrong in [&b""[..], b" \n", b"abc\n[[tenant]]\n", b"abc def", b"abc\0", "abc\u{e9}".as_bytes()] {
            let refused = key_in(wrong).unwrap_err();
            assert!(refused.starts_with("--key-file (SYMPHONY_KEY_FILE): expected a key"), "{refused}");
            assert!(!refused.contains("abc"), "{refused}");
        }
    }

    #[test]
    fn a_file_without_end_is_not_read_to_it() {
        let refused = |path: &str| read(PUBLIC_CA, Path::new(path)).unwrap_err().to_string();
        assert!(refused("/dev/zero").contains("(SYMPHONY_PUBLIC_CA): /dev/zero: has more than 65536 bytes"));
        assert!(refused("/nowhere/ca.pem").contains("/nowhere/ca.pem: No such file"));
    }
}
