//! How tools show who they are at the public ports of frontends.

use std::path::PathBuf;

use symphony_load::Access;

use crate::exit::bad_input;

/// A file with the key of a tenant.
const KEY_FILE: &str = "SYMPHONY_KEY_FILE";
/// A file with the authority of the frontends' public certificates, PEM.
const PUBLIC_CA: &str = "SYMPHONY_PUBLIC_CA";
/// Whether the key may be sent in plaintext beyond loopback.
const INSECURE_KEY: &str = "SYMPHONY_INSECURE_KEY";

/// What the environment says; nothing, over plaintext, if it says nothing.
///
/// # Errors
/// If a file that it names cannot be read.
pub(crate) fn from_env() -> anyhow::Result<Access> {
    let read = |name: &str| {
        let path = std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let read = |path: PathBuf| {
            std::fs::read(&path).map_err(|error| bad_input(format!("{name}: {}: {error}", path.display())))
        };
        path.map(read).transpose()
    };
    let text = |bytes: Vec<u8>| {
        String::from_utf8(bytes)
            .map(|key| key.trim().to_owned())
            .map_err(|_| bad_input(format!("{KEY_FILE}: the key is no text")))
    };
    let insecure_key = std::env::var(INSECURE_KEY).is_ok_and(|value| matches!(value.as_str(), "1" | "true"));
    Ok(Access { key: read(KEY_FILE)?.map(text).transpose()?, authority: read(PUBLIC_CA)?, insecure_key })
}
