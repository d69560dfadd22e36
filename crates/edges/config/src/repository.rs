//! `[frontend.repository]`: a folder of models that clients may load.

use std::path::PathBuf;

/// A folder of models that clients can see, and load if they present the token.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepositoryConfig {
    /// The folder, as this frontend sees it; none (an empty string) is no repository. Backends see the same one at
    /// `backend.model_dir`.
    #[serde(with = "crate::empty_is_none")]
    pub dir: Option<PathBuf>,
    /// A file with the token for loading and unloading models; none (an empty string) forbids both.
    #[serde(with = "crate::empty_is_none")]
    pub token_file: Option<PathBuf>,
    /// Certificate of an operator, PEM: the cluster remembers loads and unloads under its name.
    #[serde(with = "crate::empty_is_none")]
    pub cert: Option<PathBuf>,
    /// Its key, PEM.
    #[serde(with = "crate::empty_is_none")]
    pub key: Option<PathBuf>,
}

impl RepositoryConfig {
    /// Its files, with their keys.
    #[must_use]
    pub(crate) fn files(&self) -> [(&'static str, Option<&PathBuf>); 3] {
        let [token, cert, key] =
            ["frontend.repository.token_file", "frontend.repository.cert", "frontend.repository.key"];
        [(token, self.token_file.as_ref()), (cert, self.cert.as_ref()), (key, self.key.as_ref())]
    }
}
