//! No two source files of a package have the same name, so that a file which is opened by its name is the one meant.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::metadata::Metadata;
use crate::sources::rust_files;

/// Names that a folder or a module gives its file.
const BY_POSITION: [&str; 4] = ["lib.rs", "main.rs", "mod.rs", "tests.rs"];

/// Packages with folders that mirror each other, where files of one name are one subject seen from several sides. The
/// empty folder is `src` itself.
const MIRRORS: [(&str, &[&str]); 8] = [
    // What is declared, and its validation.
    ("symphony-config", &["", "validate"]),
    // A command's arguments, its work, and what is shown of its subject.
    ("symphony", &["cli", "tools", "tools/describe", "inspect", "console"]),
    // The two kinds of workers.
    ("symphony-scheduler-runtime", &["workers/model_worker", "workers/policy_worker"]),
    // Of models, and of pipelines.
    ("symphony-simulator", &["", "pipelines"]),
    ("symphony-workload", &["", "pipelines"]),
    // Of a cluster, and of a federation.
    ("symphony-chaos", &["", "run", "federation"]),
    // One benchmark each.
    ("symphony-benches", &["frames", "pull", "stress"]),
    // What starts processes, and what fuzzes their formats.
    ("symphony-tests", &["", "fuzz_entries"]),
];

/// Names that stand twice.
pub(crate) fn problems(metadata: &Metadata) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in metadata.members() {
        let src = package.dir().join("src");
        if !src.is_dir() {
            continue;
        }
        let files = rust_files(&src)?;
        let files = files.iter().filter_map(|file| file.strip_prefix(&src).ok());
        problems.extend(twice(&package.name, files));
    }
    Ok(problems)
}

/// Names that stand twice among the files of a package, whose paths begin at `src`.
fn twice<'a>(package: &str, files: impl Iterator<Item = &'a Path>) -> Vec<String> {
    let mut folders = BTreeMap::<String, Vec<String>>::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let folder = file.parent().unwrap_or(Path::new("")).to_string_lossy().into_owned();
        if !BY_POSITION.contains(&name.as_str()) {
            folders.entry(name).or_default().push(folder);
        }
    }
    let mirrors = |folders: &[String]| {
        MIRRORS.iter().any(|(of, mirrored)| *of == package && folders.iter().all(|it| mirrored.contains(&it.as_str())))
    };
    let clashes = folders.into_iter().filter(|(_, folders)| folders.len() > 1 && !mirrors(folders.as_slice()));
    let message = |(name, folders): (String, Vec<String>)| {
        let places: Vec<_> = folders.iter().map(|folder| format!("src/{folder}")).collect();
        format!("{package}: {name} stands in {}; expected one file of a name: rename all but one", places.join(", "))
    };
    clashes.map(message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(package: &str, files: &[&str]) -> Vec<String> {
        twice(package, files.iter().map(Path::new))
    }

    #[test]
    fn a_name_stands_once_but_for_folders_that_mirror_each_other() {
        let once = ["lib.rs", "a/mod.rs", "b/mod.rs", "a/levels.rs", "a/tests.rs", "b/tests.rs"];
        assert_eq!(found("symphony-net", &once), Vec::<String>::new());
        let clash = found("symphony-net", &["levels.rs", "a/levels.rs"]);
        assert_eq!(
            clash,
            ["symphony-net: levels.rs stands in src/, src/a; expected one file of a name: rename all but one"]
        );
        assert_eq!(found("symphony-config", &["cluster.rs", "validate/cluster.rs"]), Vec::<String>::new());
        assert_eq!(found("symphony-config", &["cluster.rs", "validate/cluster.rs", "a/cluster.rs"]).len(), 1);
        assert_eq!(found("symphony-net", &["cluster.rs", "validate/cluster.rs"]).len(), 1);
    }
}
