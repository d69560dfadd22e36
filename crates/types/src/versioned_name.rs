//! Model versions: each is a model of the cluster by itself, under the name `NAME@VERSION`.

/// Separates name and version.
const SEPARATOR: char = '@';

/// A model's name as clients write it, and its version.
///
/// Versions have their own weights, profiles and queues, and cannot share a batch. So a cluster knows only models, no
/// versions; the names tell which models are versions of the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionedName<'a> {
    /// The name shared by all versions.
    pub name: &'a str,
    /// The version, from 1.
    pub version: u64,
}

impl<'a> VersionedName<'a> {
    /// The version of a model that was loaded without one.
    pub const UNVERSIONED: u64 = 1;

    /// Parses the name of a model in a cluster. A name without a version suffix means version [`Self::UNVERSIONED`].
    #[must_use]
    pub fn parse(loaded_as: &'a str) -> Self {
        let versioned = loaded_as.rsplit_once(SEPARATOR).and_then(|(name, version)| {
            let version = parse_version(version).filter(|_| !name.is_empty())?;
            Some(Self { name, version })
        });
        versioned.unwrap_or(Self { name: loaded_as, version: Self::UNVERSIONED })
    }

    /// The cluster's name for this version.
    #[must_use]
    pub fn loaded_as(&self) -> String {
        format!("{}{SEPARATOR}{}", self.name, self.version)
    }

    /// Whether this is a valid model name: it cannot be confused with a versioned one, and is a valid folder name.
    #[must_use]
    pub fn is_base_name(name: &str) -> bool {
        !name.is_empty()
            && !name.starts_with('.')
            && !name.contains(['/', '\\', '\0', SEPARATOR])
            && name.trim() == name
    }
}

/// Parses a version as folders and requests write it: a number from 1 without sign or leading zeros.
#[must_use]
pub fn parse_version(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_versions() {
        let parse = |text| {
            let VersionedName { name, version } = VersionedName::parse(text);
            (name, version)
        };
        assert_eq!(parse("digits@3"), ("digits", 3));
        assert_eq!(parse("digits"), ("digits", 1));
        for plain in ["digits@", "digits@03", "digits@+3", "digits@0", "digits@x", "@3", "digits@99999999999999999999"]
        {
            assert_eq!(parse(plain), (plain, 1));
        }
        assert_eq!(VersionedName { name: "digits", version: 3 }.loaded_as(), "digits@3");
        assert_eq!(parse("a@2@3"), ("a@2", 3));
    }

    #[test]
    fn a_base_name_is_a_folder_and_no_version() {
        assert!(VersionedName::is_base_name("resnet_50.v2-x"));
        for no in ["", ".", "..", ".git", "a/b", "a\\b", "a@3", "a@b", " a", "a\0"] {
            assert!(!VersionedName::is_base_name(no), "{no:?}");
        }
    }
}
