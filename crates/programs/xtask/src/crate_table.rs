//! The parts of architecture.md that follow from the code: the crates with their layers, and the files with unsafe
//! code. `cargo xtask fix` writes them; a check compares.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::layers::{Layer, layer};
use crate::marked::between;
use crate::metadata::{Metadata, Package};
use crate::rust_code::{lines_with, without_text};
use crate::sources::rust_files;

/// The page, from the root of the repository.
const PAGE: &str = "docs/internals/architecture.md";

/// From the page to the root.
const TO_ROOT: &str = "../..";

/// The differences between the page and the code.
pub(crate) fn problems(metadata: &Metadata, root: &Path) -> Result<Vec<String>> {
    let mut problems: Vec<_> = crates(metadata)
        .filter(|package| package.description.is_none())
        .map(|package| {
            format!("{}: Cargo.toml has no description; say in one line what it decides or owns", package.name)
        })
        .collect();
    let (page, expected) = page(metadata, root)?;
    if page != expected {
        problems.push(format!("{PAGE}: its lists of crates or of unsafe code are stale; run `cargo xtask fix`"));
    }
    Ok(problems)
}

/// Rewrites the page.
pub(crate) fn write(metadata: &Metadata, root: &Path) -> Result<()> {
    let (page, expected) = page(metadata, root)?;
    if page != expected {
        fs::write(root.join(PAGE), expected).with_context(|| format!("cannot write {PAGE}"))?;
    }
    Ok(())
}

/// The page as it is, and as it should be.
fn page(metadata: &Metadata, root: &Path) -> Result<(String, String)> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let with_crates = between(&page, "crates", &crates_table(metadata)).context("no place for crates")?;
    let expected = between(&with_crates, "unsafe", &unsafe_files(metadata)?).context("no place for unsafe code")?;
    Ok((page, expected))
}

fn crates(metadata: &Metadata) -> impl Iterator<Item = &Package> {
    metadata.members().filter(|package| package.folder().starts_with("crates"))
}

/// The folder of a layer.
fn folder(layer: Layer, package: &Package) -> &'static str {
    match layer {
        Layer::Types => "types",
        Layer::Core => "core",
        Layer::Edge => "edges",
        Layer::Role => "roles",
        Layer::Program if package.folder().starts_with("crates/testing") => "testing",
        Layer::Program => "programs",
    }
}

fn crates_table(metadata: &Metadata) -> String {
    let mut rows: Vec<_> = crates(metadata)
        .filter_map(|package| {
            let layer = layer(package)?;
            Some((layer, folder(layer, package), package))
        })
        .collect();
    rows.sort_by_key(|&(layer, folder, package)| (layer, folder, package.short_name()));
    let mut table = String::from("\n| layer | crate | what it decides or owns |\n| --- | --- | --- |\n");
    for (_, folder, package) in rows {
        let (name, path) = (package.short_name(), package.folder().display());
        let owns = package.description.as_deref().unwrap_or_default();
        let _ = writeln!(table, "| {folder} | [{name}]({TO_ROOT}/{path}/README.md) | {owns} |");
    }
    table.push('\n');
    table
}

fn unsafe_files(metadata: &Metadata) -> Result<String> {
    let mut list = String::from("\n");
    for package in crates(metadata) {
        for path in rust_files(&package.dir().join("src"))? {
            let source = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            if !lines_with(&without_text(&source), "unsafe").is_empty() {
                let shown = path.strip_prefix(package.dir()).unwrap_or(&path).display();
                let _ = writeln!(list, "- `{}/{shown}`", package.folder().display());
            }
        }
    }
    list.push('\n');
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::planted;

    #[test]
    fn crates_are_listed_by_layer_with_what_they_own() {
        let mut metadata = planted(&["edges/net", "core/policy", "testing/crash", "types"], &[], &[]);
        metadata.packages[0].description = Some("connections".into());
        let expected = "\n| layer | crate | what it decides or owns |\n| --- | --- | --- |\n\
            | types | [types](../../crates/types/README.md) |  |\n\
            | core | [policy](../../crates/core/policy/README.md) |  |\n\
            | edges | [net](../../crates/edges/net/README.md) | connections |\n\
            | testing | [crash](../../crates/testing/crash/README.md) |  |\n\n";
        assert_eq!(crates_table(&metadata), expected);
    }
}
