//! Keeps out versions with known vulnerabilities; exceptions are written down.
//!
//! This works without the network, from a list in `policy.toml`; it does not replace a look at the advisory database
//! (`cargo audit`) when dependencies change.

use crate::metadata::Metadata;
use crate::policy::Policy;

/// Packages older than the policy allows, and exceptions that are no longer needed.
pub(crate) fn problems(metadata: &Metadata, policy: &Policy) -> Vec<String> {
    let mut problems = Vec::new();
    for minimum in &policy.minimums {
        let Some(least) = numbers(&minimum.version) else {
            problems.push(format!("policy.toml: `{}` is not a version", minimum.version));
            continue;
        };
        for package in metadata.foreign().filter(|package| package.name == minimum.name) {
            if numbers(&package.version).is_none_or(|version| version < least) {
                problems.push(format!(
                    "{} {} is older than {}: {}",
                    package.name, package.version, minimum.version, minimum.reason
                ));
            }
        }
    }
    for accepted in &policy.accepted {
        if !metadata.foreign().any(|package| package.name == accepted.name) {
            problems.push(format!(
                "{} is accepted for {}, which is not a dependency; remove it",
                accepted.id, accepted.name
            ));
        }
    }
    problems
}

/// Major, minor and patch. A pre-release is older than its release, so it does not count as a version here.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let release = version.split('+').next()?;
    let mut parts = release.split('.').map(str::parse);
    let mut next = || parts.next()?.ok();
    let found = [next()?, next()?, next()?];
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::planted;

    #[test]
    fn old_versions_and_stale_acceptances_are_found() {
        let policy = Policy::parse(
            "minimum = [{ crate = \"rkyv\", version = \"0.8.17\", reason = \"holes\" }]
             accepted = [{ id = \"RUSTSEC-1\", crate = \"fxhash\", reason = \"harmless\" }]",
        )
        .unwrap();
        let mut metadata = planted(&[], &["rkyv", "fxhash"], &[]);
        for (version, fine) in [
            ("0.8.17", true),
            ("0.8.18+x", true),
            ("0.10.0", true),
            ("0.8.9", false),
            ("0.8.17-rc.1", false),
            ("0.7.99", false),
        ] {
            metadata.packages[0].version = version.into();
            assert_eq!(problems(&metadata, &policy).is_empty(), fine, "{version}");
        }
        metadata.packages[0].version = "0.8.9".into();
        assert_eq!(problems(&metadata, &policy), ["rkyv 0.8.9 is older than 0.8.17: holes"]);
        let without = planted(&[], &[], &[]);
        assert_eq!(
            problems(&without, &policy),
            ["RUSTSEC-1 is accepted for fxhash, which is not a dependency; remove it"]
        );
    }
}
