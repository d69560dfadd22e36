//! How tools show who they are at the public ports of frontends.

use std::ffi::OsString;
use std::path::PathBuf;

use symphony_load::Access;

use crate::cli::{ClusterArgs, PublicArgs};
use crate::exit::bad_input;

impl PublicArgs {
    /// What options and variables say, or else the context; nothing, over plaintext, if none says anything.
    ///
    /// # Errors
    /// If a file that is named cannot be read.
    pub(crate) fn access(&self, cluster: &ClusterArgs) -> anyhow::Result<Access> {
        let given = |path: &Option<OsString>| path.clone().filter(|path| !path.is_empty()).map(PathBuf::from);
        let context = cluster.context()?.map(|named| named.context).unwrap_or_default();
        let read = |option: &str, path: Option<PathBuf>| {
            let read = |path: PathBuf| {
                std::fs::read(&path).map_err(|error| bad_input(format!("{option}: {}: {error}", path.display())))
            };
            path.map(read).transpose()
        };
        let text = |bytes: Vec<u8>| {
            String::from_utf8(bytes)
                .map(|key| key.trim().to_owned())
                .map_err(|_| bad_input("--key-file: the key is no text"))
        };
        let key = read("--key-file (SYMPHONY_KEY_FILE)", given(&self.key_file).or(context.key_file))?;
        let authority = read("--public-ca (SYMPHONY_PUBLIC_CA)", given(&self.public_ca).or(context.public_ca))?;
        Ok(Access { key: key.map(text).transpose()?, authority, insecure_key: self.insecure_key })
    }
}
