//! Finds declared dependencies that a package never uses.

use std::fs;

use anyhow::{Context as _, Result};

use crate::metadata::{Metadata, Package};
use crate::rust_code::lines_with;
use crate::sources::rust_files;

/// Dependencies that no source names, and the reason for each.
const NEVER_NAMED: [(&str, &str); 4] = [
    ("tonic-prost", "code that tonic generates names it"),
    ("highs-sys", "linked for `highs`, by its feature"),
    ("idna_adapter", "only for its version: see Cargo.toml"),
    ("prettyplease", "only for its feature: see Cargo.toml"),
];

/// Dependencies that nothing uses.
pub(crate) fn problems(metadata: &Metadata) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in metadata.members() {
        let mut sources = String::new();
        for path in rust_files(package.dir())? {
            let source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            sources.push_str(&source);
        }
        problems.extend(unused(package, &sources));
    }
    Ok(problems)
}

fn unused(package: &Package, sources: &str) -> Vec<String> {
    let named = |name: &str| !lines_with(sources, &name.replace('-', "_")).is_empty();
    let declared = package.dependencies.iter().map(|dependency| dependency.name.as_str());
    let unused = declared.filter(|name| NEVER_NAMED.iter().all(|(known, _)| known != name) && !named(name));
    unused.map(|name| format!("{} declares {name} and never names it; remove it", package.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Declared, planted};

    #[test]
    fn a_dependency_that_no_source_names_is_found() {
        let mut metadata = planted(&["types"], &[], &[]);
        let declared = |name: &str| Declared { name: name.into(), features: Vec::new() };
        metadata.packages[0].dependencies = ["serde", "tokio-util", "tonic-prost"].map(declared).into();
        let found = unused(&metadata.packages[0], "use serde_json as json;\nuse tokio_util::sync;\n");
        assert_eq!(found, ["symphony-types declares serde and never names it; remove it"]);
    }
}
