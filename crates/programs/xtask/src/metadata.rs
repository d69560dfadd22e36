//! Cargo's metadata of the workspace, as far as the checks need it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// The answer of `cargo metadata --format-version 1`.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

/// One package at one version.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) description: Option<String>,
    manifest_path: PathBuf,
    /// As in its manifest.
    #[serde(default)]
    pub(crate) dependencies: Vec<Declared>,
}

/// A declared dependency.
#[derive(Debug, Deserialize)]
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) features: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DepKind>,
}

#[derive(Debug, Deserialize)]
struct DepKind {
    /// `None` is a normal dependency; else `build` or `dev`.
    kind: Option<String>,
}

impl Metadata {
    /// Runs cargo, without the network and without touching Cargo.lock.
    pub(crate) fn of_workspace() -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--locked"])
            .output()
            .context("cannot start cargo metadata")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata failed: {}", error.trim());
        Self::parse(&output.stdout)
    }

    pub(crate) fn parse(json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json).context("cargo metadata gave something unexpected")
    }

    /// The packages of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// The packages outside the workspace.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| !self.workspace_members.contains(&package.id))
    }

    /// The packages that each package needs to be built and run, without those of its tests, by id.
    pub(crate) fn edges(&self, build_too: bool) -> BTreeMap<&str, Vec<&Package>> {
        let by_id: BTreeMap<_, _> = self.packages.iter().map(|package| (package.id.as_str(), package)).collect();
        let wanted = |dep: &Dependency| {
            dep.dep_kinds.iter().any(|k| k.kind.is_none() || (build_too && k.kind.as_deref() == Some("build")))
        };
        let edges = self.resolve.nodes.iter().map(|node| {
            let needed = node.deps.iter().filter(|dep| wanted(dep));
            (node.id.as_str(), needed.filter_map(|dep| by_id.get(dep.pkg.as_str()).copied()).collect())
        });
        edges.collect()
    }
}

impl Package {
    /// The directory of its manifest.
    pub(crate) fn dir(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new("."))
    }

    /// The directory of its manifest relative to the root of the repository.
    pub(crate) fn folder(&self) -> &Path {
        self.dir().strip_prefix(crate::root()).unwrap_or(self.dir())
    }

    /// Its name without the project's prefix.
    pub(crate) fn short_name(&self) -> &str {
        self.name.strip_prefix("symphony-").unwrap_or(&self.name)
    }
}

/// Metadata for tests: members by their folders below `crates/`, others by name, and their normal dependencies.
#[cfg(test)]
pub(crate) fn planted(members: &[&str], foreign: &[&str], edges: &[(&str, &[&str])]) -> Metadata {
    let name = |folder: &str| format!("symphony-{}", folder.rsplit('/').next().unwrap_or_default());
    let package = |name: String, folder: &str| Package {
        id: name.clone(),
        description: None,
        name,
        version: "1.0.0".to_owned(),
        license: Some("MIT".to_owned()),
        manifest_path: PathBuf::from(format!("crates/{folder}/Cargo.toml")),
        dependencies: Vec::new(),
    };
    let dependency = |name: &&str| Dependency { pkg: (*name).to_owned(), dep_kinds: vec![DepKind { kind: None }] };
    let node =
        |(id, deps): &(&str, &[&str])| Node { id: (*id).to_owned(), deps: deps.iter().map(dependency).collect() };
    Metadata {
        packages: members
            .iter()
            .map(|folder| package(name(folder), folder))
            .chain(foreign.iter().map(|&name| package(name.to_owned(), name)))
            .collect(),
        workspace_members: members.iter().map(|folder| name(folder)).collect(),
        resolve: Resolve { nodes: edges.iter().map(node).collect() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_dependencies_are_told_apart() {
        let json = br#"{
            "packages": [
                {"id": "a", "name": "symphony-a", "version": "0.1.0", "license": null, "manifest_path": "crates/a/Cargo.toml"},
                {"id": "b", "name": "b", "version": "2.0.0", "license": "MIT", "manifest_path": "b/Cargo.toml"},
                {"id": "c", "name": "c", "version": "2.0.0", "license": "MIT", "manifest_path": "c/Cargo.toml"},
                {"id": "d", "name": "d", "version": "2.0.0", "license": "MIT", "manifest_path": "d/Cargo.toml"}],
            "workspace_members": ["a"],
            "resolve": {"nodes": [{"id": "a", "deps": [
                {"pkg": "b", "dep_kinds": [{"kind": null, "target": null}]},
                {"pkg": "c", "dep_kinds": [{"kind": "dev"}]},
                {"pkg": "d", "dep_kinds": [{"kind": "build"}, {"kind": "dev"}]}]}]}}"#;
        let metadata = Metadata::parse(json).unwrap();
        let names = |build| metadata.edges(build)["a"].iter().map(|p| p.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names(false), ["b"]);
        assert_eq!(names(true), ["b", "d"]);
        assert_eq!(metadata.members().next().unwrap().short_name(), "a");
        assert_eq!(metadata.members().next().unwrap().dir(), Path::new("crates/a"));
        assert_eq!(metadata.foreign().count(), 3);
        assert!(Metadata::parse(b"{}").is_err());
    }
}
