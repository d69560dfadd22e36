//! Finds and loads the ONNX Runtime library, once per process (docs/adr/0003-onnx-runtime-loading.md).

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ort::environment::Environment;

use crate::{batch_memory, heap};

/// The oldest ONNX Runtime that is accepted: the API version that the `ort` crate is built for here.
pub const ONNXRUNTIME_VERSION_MIN: &str = "1.23";
/// The ONNX Runtime that `make setup` installs and the tests run with.
pub const ONNXRUNTIME_VERSION_TESTED: &str = "1.31.1";

/// The environment variables that name the library, in order of precedence.
const VARIABLES: [&str; 2] = ["SYMPHONY_ONNXRUNTIME", "ORT_DYLIB_PATH"];
/// Where `make setup` installs the library, in a checkout.
const CACHE_DIR: &str = ".cache/onnxruntime";
/// Where packages have the library, beside the folder of the program: `bin/symphony` and `lib/symphony`.
const INSTALLED_DIR: &str = "lib/symphony";
/// Enough for `target/<triple>/<profile>/deps/<binary>` to see the checkout it was built in.
const BINARY_ANCESTORS_MAX: usize = 5;
/// The wheel has the library three folders down; anything much deeper is not ours.
const CACHE_DEPTH_MAX: usize = 5;
/// The names that the dynamic linker is asked for last.
const SYSTEM_NAMES: [&str; 2] = ["libonnxruntime.so", "libonnxruntime.so.1"];

/// The loaded library. To have one is the proof that ONNX models can be loaded.
#[derive(Clone)]
pub struct Runtime {
    path: PathBuf,
    version: String,
    pub(crate) environment: Environment,
    /// The limit in bytes of what batches on the CPU share; none if each model keeps its own.
    batch_memory: Arc<Mutex<Option<u64>>>,
}

/// Why there is no ONNX Runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// It is nowhere to be found.
    #[error(
        "ONNX Runtime was not found; run `make setup`, or `pip install --no-deps --target DIR \
         onnxruntime=={ONNXRUNTIME_VERSION_TESTED}` and set SYMPHONY_ONNXRUNTIME to the libonnxruntime.so.* in DIR; tried: {}",
        .tried.join("; ")
    )]
    NotFound {
        /// Where it was looked for and what was wrong there.
        tried: Vec<String>,
    },
    /// A library was named, and it cannot be used. Another one is not used in its stead.
    #[error(
        "ONNX Runtime at `{}`, named by {named_by}, cannot be used: {reason}; expected the library of ONNX Runtime \
         {ONNXRUNTIME_VERSION_MIN} or later, which `make setup` installs", .path.display()
    )]
    Unusable {
        /// The library named.
        path: PathBuf,
        /// The setting or variable that named it.
        named_by: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Another library was loaded before; a process can have only one.
    #[error("ONNX Runtime is already loaded from `{}`; a process cannot load `{}` too", .loaded.display(), .asked.display())]
    AlreadyLoaded {
        /// The library in use.
        loaded: PathBuf,
        /// The library asked for.
        asked: PathBuf,
    },
}

impl Runtime {
    /// Where the library was loaded from: a path, or a bare name if the dynamic linker found it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version, as far as its file name or build information tells.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

impl Runtime {
    /// From now on batches of all models that are loaded for the CPU take turns with one arena of at most this many
    /// bytes (0: no limit), and a batch that would need more fails. It cannot be undone, and is done once in a process:
    /// the first limit holds. Returns the limit.
    ///
    /// # Errors
    /// In ONNX Runtime's words.
    pub fn share_batch_memory(&self, limit_bytes: u64) -> Result<u64, String> {
        let mut shared = self.lock();
        if let Some(limit) = *shared {
            return Ok(limit);
        }
        batch_memory::share(&self.environment, limit_bytes).map_err(|error| error.to_string())?;
        Ok(*shared.insert(limit_bytes))
    }

    /// Whether batches on the CPU share their memory.
    pub(crate) fn shares_batch_memory(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<u64>> {
        self.batch_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("path", &self.path).field("version", &self.version).finish_non_exhaustive()
    }
}

/// Loads ONNX Runtime from the first of these that there is: `explicit`; what `SYMPHONY_ONNXRUNTIME` or
/// `ORT_DYLIB_PATH` names; the newest library in `lib/symphony` beside the binary's folder, where packages put it; that
/// under `.cache/onnxruntime` in the current folder or beside one of the binary's own folders; what the dynamic linker
/// finds.
///
/// The library stays loaded until the process ends. Later calls return the same one.
///
/// # Errors
/// If no library is found, a library named by the caller or a variable cannot be used, or `explicit` differs from the
/// library in use. This function never panics for lack of a library, and neither does anything that takes a
/// [`Runtime`].
pub fn load_runtime(explicit: Option<&Path>) -> Result<Runtime, RuntimeError> {
    static LOADED: Mutex<Option<Runtime>> = Mutex::new(None);
    let mut loaded = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);

    if let Some(runtime) = loaded.as_ref() {
        return match explicit.map(absolute) {
            Some(requested) if requested != runtime.path => {
                Err(RuntimeError::AlreadyLoaded { loaded: runtime.path.clone(), asked: requested })
            }
            _ => Ok(runtime.clone()),
        };
    }
    let runtime = match named_library(explicit) {
        Some((path, named_by)) => load(&path).map_err(|reason| RuntimeError::Unusable { path, named_by, reason })?,
        None => load_first(candidates())?,
    };
    heap::give_large_blocks_back();
    tracing::info!(path = %runtime.path.display(), version = runtime.version, "loaded ONNX Runtime");
    Ok(loaded.insert(runtime).clone())
}

/// The library that was asked for, and the setting or variable that did.
fn named_library(explicit: Option<&Path>) -> Option<(PathBuf, String)> {
    let by_variable = || {
        VARIABLES.into_iter().find_map(|variable| {
            let value = env::var_os(variable).filter(|value| !value.is_empty())?;
            Some((absolute(Path::new(&value)), format!("the variable {variable}")))
        })
    };
    explicit.map(|path| (absolute(path), "the configuration".to_owned())).or_else(by_variable)
}

/// Relative paths are the caller's; the `ort` crate would look beside the binary first.
fn absolute(path: &Path) -> PathBuf {
    fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

fn candidates() -> Vec<PathBuf> {
    let beside_binary = env::current_exe().ok();
    let ancestors = beside_binary.iter().flat_map(|exe| exe.ancestors().skip(1).take(BINARY_ANCESTORS_MAX));
    let mut found = installed(beside_binary.as_deref());
    for dir in env::current_dir().iter().map(PathBuf::as_path).chain(ancestors) {
        for library in libraries_under(&dir.join(CACHE_DIR)) {
            if !found.contains(&library) {
                found.push(library);
            }
        }
    }
    found.extend(SYSTEM_NAMES.map(PathBuf::from));
    found
}

/// The libraries of the package that this program is from.
fn installed(binary: Option<&Path>) -> Vec<PathBuf> {
    // Only beside a folder `bin`: running `/tmp/x/symphony` must not load from `/tmp/lib`.
    let bin = binary.and_then(Path::parent).filter(|folder| folder.ends_with("bin"));
    let prefix = bin.and_then(Path::parent);
    prefix.map(|prefix| libraries_under(&prefix.join(INSTALLED_DIR))).unwrap_or_default()
}

/// The libraries in a folder and its sub-folders, newest version first.
fn libraries_under(dir: &Path) -> Vec<PathBuf> {
    fn collect(dir: &Path, depth_left: usize, found: &mut Vec<PathBuf>) {
        let Ok(entries) = fs::read_dir(dir) else { return };
        for entry in entries.flatten() {
            // `DirEntry::file_type` does not follow links: no cycle can trap the search.
            let Ok(file_type) = entry.file_type() else { continue };
            if file_type.is_dir() && depth_left > 0 {
                collect(&entry.path(), depth_left - 1, found);
            } else if entry.file_name().to_string_lossy().starts_with("libonnxruntime.so") {
                found.push(absolute(&entry.path()));
            }
        }
    }
    let mut found = Vec::new();
    collect(dir, CACHE_DEPTH_MAX, &mut found);
    found.sort_by_cached_key(|path| std::cmp::Reverse((version_numbers(path), path.clone())));
    found.dedup();
    found
}

fn version_numbers(library: &Path) -> Vec<u32> {
    version_in_name(library).unwrap_or_default().split('.').filter_map(|part| part.parse().ok()).collect()
}

/// `1.31.1` of `libonnxruntime.so.1.31.1`.
fn version_in_name(library: &Path) -> Option<&str> {
    library.file_name()?.to_str()?.strip_prefix("libonnxruntime.so.")
}

fn load_first(candidates: Vec<PathBuf>) -> Result<Runtime, RuntimeError> {
    let mut tried = vec![format!("{CACHE_DIR} in the current folder and beside the binary's folders")];
    for path in candidates {
        match load(&path) {
            Ok(runtime) => return Ok(runtime),
            Err(reason) => tried.push(reason),
        }
    }
    Err(RuntimeError::NotFound { tried })
}

/// A failed attempt leaves nothing behind: the `ort` crate keeps a library only after it has checked its version.
fn load(path: &Path) -> Result<Runtime, String> {
    let environment = ort::init_from(path)
        .map_err(|error| load_failure(&error))?
        .with_name("symphony")
        .with_telemetry(false)
        .build()
        .map_err(|error| format!("{} loads but does not start: {error}", path.display()))?;
    let version = version_in_name(path).map_or_else(|| version_in_build(ort::info()), str::to_owned);
    Ok(Runtime { path: path.to_owned(), version, environment, batch_memory: Arc::default() })
}

/// The error with the dynamic linker's own words, which its `Display` leaves out.
fn load_failure(error: &ort::LoadDynamicError) -> String {
    match error {
        ort::LoadDynamicError::Dlopen { error, path } => {
            let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
            format!("{} does not load: {cause}", path.display())
        }
        other => other.to_string(),
    }
}

/// `1.31.1` of `ORT Build Info: git-branch=rel-1.31.1, …`, or the whole text if it has no such part.
fn version_in_build(info: &str) -> String {
    let branch = info.split("git-branch=rel-").nth(1).and_then(|rest| rest.split([',', ' ']).next());
    branch.unwrap_or(info).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_in_sub_folders_and_the_newest_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let capi = dir.path().join("onnxruntime/capi");
        fs::create_dir_all(&capi).unwrap();
        for name in ["libonnxruntime.so.1.9.0", "libonnxruntime.so.1.31.1", "libonnxruntime.so", "other.so"] {
            fs::write(capi.join(name), "").unwrap();
        }
        let names: Vec<_> = libraries_under(dir.path())
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["libonnxruntime.so.1.31.1", "libonnxruntime.so.1.9.0", "libonnxruntime.so"]);
        assert!(libraries_under(&dir.path().join("nowhere")).is_empty());
    }

    #[test]
    fn a_package_has_the_library_beside_the_folder_of_its_program() {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("usr/lib/symphony/libonnxruntime.so.1.31.1");
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        fs::write(&library, "").unwrap();
        assert_eq!(installed(Some(&dir.path().join("usr/bin/symphony"))), [library]);
        assert!(installed(Some(&dir.path().join("opt/bin/symphony"))).is_empty());
    }

    #[test]
    fn the_version_is_read_from_name_or_build() {
        assert_eq!(version_in_name(Path::new("/a/libonnxruntime.so.1.23.2")), Some("1.23.2"));
        assert_eq!(version_in_name(Path::new("/a/libonnxruntime.so")), None);
        assert_eq!(version_in_build("ORT Build Info: git-branch=rel-1.31.1, git-commit-id=f00"), "1.31.1");
        assert_eq!(version_in_build("something else"), "something else");
    }
}
