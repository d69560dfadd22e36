//! Names of clusters, nodes, sub-clusters and GPU kinds; they become labels of metrics and parts of file names.

/// The longest name, in bytes: that of a DNS label, which names become in most deployments.
pub const NAME_BYTES_MAX: usize = 63;

/// Whether a name is acceptable: 1 to [`NAME_BYTES_MAX`] of `a–z 0–9 -`, beginning with a letter or digit.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(allowed)
}

/// Optional paths: TOML has no null, so an empty string stands for "none", in files, environment and flags alike.
pub(crate) mod empty_is_none {
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(path.as_deref().unwrap_or(Path::new("")), serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        let path = PathBuf::deserialize(deserializer)?;
        Ok((!path.as_os_str().is_empty()).then_some(path))
    }
}
