//! Contexts: where clusters are and who asks, by name, in one file.
//!
//! The file has paths of certificates and keys, never a key. Its relative paths begin at its folder.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use symphony_config::Address;
use symphony_types::is_name;

use crate::exit::bad_input;
use crate::suggestions::unknown;

/// Names the file.
pub(crate) const FILE_VARIABLE: &str = "SYMPHONY_CONFIG_FILE";

/// The largest file accepted: a context has some hundred bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The most links from one to the next that are followed, as the system has it.
const LINKS_MAX: usize = 40;

/// How tools reach a cluster, and with which identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Context {
    /// The cluster's name, which the certificate has to bear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    /// Control addresses of the scheduler replicas.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) schedulers: Vec<String>,
    /// Control addresses of a federation's replicas.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) federation: Vec<String>,
    /// The gRPC port of a frontend, or of what stands before the frontends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) frontend_grpc: Option<String>,
    /// The same for REST.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) frontend_rest: Option<String>,
    /// The folder of certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pki: Option<PathBuf>,
    /// The identity of the caller, as `operator-ann`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<String>,
    /// The cluster talks plaintext.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) insecure_dev: bool,
    /// The file with a tenant's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<PathBuf>,
    /// The authority of the frontends' public certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) public_ca: Option<PathBuf>,
}

/// A context, and its name for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) context: Context,
}

/// All of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Contexts {
    /// The one that applies where none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(rename = "context")]
    pub(crate) contexts: BTreeMap<String, Context>,
}

impl Context {
    /// What is wrong with it, if anything.
    fn check(&self) -> Result<(), String> {
        let addresses = [("schedulers", &self.schedulers), ("federation", &self.federation)];
        let addresses = addresses.into_iter().flat_map(|(key, addrs)| addrs.iter().map(move |addr| (key, addr)));
        let frontends = [("frontend_grpc", &self.frontend_grpc), ("frontend_rest", &self.frontend_rest)];
        let frontends = frontends.into_iter().filter_map(|(key, addr)| Some((key, addr.as_ref()?)));
        for (key, addr) in addresses.chain(frontends) {
            addr.parse::<Address>().map_err(|error| format!("{key}: {error}"))?;
        }
        if let Some(cluster) = self.cluster.as_ref().filter(|cluster| !is_name(cluster)) {
            return Err(format!("cluster: `{cluster}`; expected 1 to 63 of a–z, 0–9 and -, no leading -"));
        }
        let is_file = |identity: &String| !identity.is_empty() && !identity.contains('/');
        if let Some(identity) = self.identity.as_ref().filter(|identity| !is_file(identity)) {
            return Err(format!("identity: `{identity}`; expected the name of a certificate's file, as operator-ann"));
        }
        if self.insecure_dev && self.pki.is_some() {
            return Err("insecure_dev: a cluster that talks plaintext has no certificates; expected no pki".into());
        }
        Ok(())
    }

    /// With its relative paths beginning at a folder.
    fn based_at(mut self, folder: &Path) -> Self {
        for path in [&mut self.pki, &mut self.key_file, &mut self.public_ca].into_iter().flatten() {
            *path = folder.join(&*path);
        }
        self
    }
}

impl Contexts {
    /// The contexts of this file; none if it is not there.
    ///
    /// # Errors
    /// If it cannot be read, or has a key that is not known. Whether a context is sound, its use will show.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let at = |error: &dyn std::fmt::Display| bad_input(format!("{}: {error}", path.display()));
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            file => file.map_err(|error| at(&error))?,
        };
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| at(&error))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(at(&format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        toml::from_str(&text).map_err(|error| {
            // Without the line itself, which may contain a key.
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            at(&format!("line {line}: {}", error.message()))
        })
    }

    /// The context of this name, if nothing is wrong with it: others may be.
    pub(crate) fn sound(&self, name: &str) -> Result<&Context, String> {
        let context = self.find(name)?;
        check_name(name)?;
        context.check().map_err(|problem| format!("context.{name}.{problem}"))?;
        Ok(context)
    }

    /// The context of this name.
    pub(crate) fn find(&self, name: &str) -> Result<&Context, String> {
        let known = || self.contexts.keys().map(String::as_str);
        self.contexts.get(name).ok_or_else(|| unknown("context", name, known(), "symphony context list"))
    }

    /// The named context, or else the current one, if there is one. Its paths begin at this folder.
    pub(crate) fn choose(&self, name: Option<&str>, folder: &Path) -> Result<Option<Named>, String> {
        let Some(name) = name.or(self.current.as_deref()) else { return Ok(None) };
        let context = self.sound(name)?.clone().based_at(folder);
        Ok(Some(Named { name: name.to_owned(), context }))
    }

    /// As the file has it.
    pub(crate) fn text(&self) -> anyhow::Result<String> {
        let head = "# Written by `symphony context`, which keeps no comments. Paths only: no key belongs here.\n";
        Ok(format!("{head}{}", toml::to_string(self)?))
    }

    /// Puts the file in its place in one step, readable for its owner only.
    ///
    /// # Errors
    /// If it cannot be written; the previous one stays.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        // A link to the file stays one, also to a file that is not there yet.
        let path = behind_links(path);
        let at = |error: io::Error| anyhow::anyhow!("{}: {error}", path.display());
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(at)?;
        }
        let text = self.text()?;
        let mut beside = path.clone().into_os_string();
        beside.push(format!(".new-{}", std::process::id()));
        let beside = PathBuf::from(beside);
        // What a killed process of this id has left.
        let _ = fs::remove_file(&beside);
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
        let written = written.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.and_then(|()| fs::rename(&beside, &path)).map_err(|error| {
            let _ = fs::remove_file(&beside);
            at(error)
        })
    }
}

/// Where a path leads; there may be nothing yet.
fn behind_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

/// Whether a context may be called so.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    Err(format!("`{name}` is no name of a context; expected 1 to 63 of a–z, 0–9 and -, no leading -"))
}

/// Where the file is, or would be; none if the environment names no place.
pub(crate) fn path() -> Option<PathBuf> {
    path_by(|name| std::env::var_os(name))
}

fn path_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let given = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // A relative XDG_CONFIG_HOME is to be ignored, as its specification has it.
    let folder = || given("XDG_CONFIG_HOME").filter(|folder| folder.is_absolute());
    let folder = || folder().or_else(|| Some(given("HOME")?.join(".config")));
    given(FILE_VARIABLE).or_else(|| Some(folder()?.join("symphony/config.toml")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn place(variables: &[(&str, &str)]) -> Option<PathBuf> {
        path_by(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn the_file_is_where_it_is_said_or_where_the_desktop_keeps_such_files() {
        let home = ("HOME", "/home/ann");
        assert_eq!(place(&[home]), Some("/home/ann/.config/symphony/config.toml".into()));
        assert_eq!(place(&[home, ("XDG_CONFIG_HOME", "/etc/ann")]), Some("/etc/ann/symphony/config.toml".into()));
        assert_eq!(place(&[home, ("XDG_CONFIG_HOME", "here")]), Some("/home/ann/.config/symphony/config.toml".into()));
        assert_eq!(place(&[home, (FILE_VARIABLE, "mine.toml")]), Some("mine.toml".into()));
        assert_eq!(place(&[home, (FILE_VARIABLE, "")]), place(&[home]));
        assert_eq!(place(&[]), None);
    }

    #[test]
    fn what_is_written_is_read_again_and_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/config.toml");
        assert_eq!(Contexts::read(&path).unwrap(), Contexts::default(), "no file is no context");
        let blue = Context {
            cluster: Some("blue".into()),
            schedulers: vec!["s1:7001".into(), "[::1]:7001".into()],
            pki: Some("pki".into()),
            identity: Some("operator-ann".into()),
            key_file: Some("/keys/ann".into()),
            ..Context::default()
        };
        let plain = Context { insecure_dev: true, ..Context::default() };
        let contexts = Contexts {
            current: Some("blue".into()),
            contexts: [("blue".to_owned(), blue), ("plain".to_owned(), plain)].into(),
        };
        contexts.write(&path).unwrap();
        contexts.write(&path).unwrap();
        assert_eq!(Contexts::read(&path).unwrap(), contexts);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");

        let chosen = contexts.choose(None, Path::new("/etc/ann")).unwrap().unwrap();
        assert_eq!((chosen.name.as_str(), chosen.context.pki), ("blue", Some("/etc/ann/pki".into())));
        assert_eq!(chosen.context.key_file, Some("/keys/ann".into()));
        assert_eq!(contexts.choose(Some("plain"), dir.path()).unwrap().unwrap().name, "plain");
        let message = contexts.choose(Some("bleu"), dir.path()).unwrap_err();
        assert!(message.contains("no context is named `bleu`") && message.contains("blue"), "{message}");
    }

    #[test]
    fn a_link_to_a_file_that_is_not_there_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("config.toml");
        std::os::unix::fs::symlink("kept/contexts.toml", &link).unwrap();
        for _ in 0..2 {
            Contexts::default().write(&link).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert!(dir.path().join("kept/contexts.toml").is_file());
        }
    }

    #[test]
    fn a_file_with_a_key_that_is_unknown_is_refused_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let mistakes = [
            ("[context.a]\nscheduler = [\"h:1\"]", "line 2"),
            ("[context.a]\nscheduler = [\"h:1\"]", "unknown field `scheduler`"),
            ("key = \"symphony_1\"", "unknown field `key`"),
        ];
        for (text, word) in mistakes {
            fs::write(&path, text).unwrap();
            let message = Contexts::read(&path).unwrap_err().to_string();
            assert!(message.contains(word) && message.contains("config.toml"), "{text}: {message}");
        }
    }

    #[test]
    fn a_context_with_a_mistake_is_refused_and_the_others_serve() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let mistakes = [
            ("current = \"a\"\n[context.a]\nschedulers = [\"h\"]", "context.a.schedulers"),
            ("current = \"a\"\n[context.a]\nfrontend_grpc = \"h:x\"", "context.a.frontend_grpc"),
            ("current = \"a\"\n[context.a]\ninsecure_dev = true\npki = \"p\"", "context.a.insecure_dev"),
            ("current = \"a\"\n[context.a]\nidentity = \"../x\"", "context.a.identity"),
            ("current = \"A\"\n[context.A]\n", "`A` is no name"),
            ("current = \"b\"\n", "no context is named `b`"),
        ];
        for (text, word) in mistakes {
            fs::write(&path, format!("{text}\n[context.good]\n")).unwrap();
            let contexts = Contexts::read(&path).unwrap();
            let message = contexts.choose(None, dir.path()).unwrap_err();
            assert!(message.contains(word), "{text}: {message}");
            assert_eq!(contexts.choose(Some("good"), dir.path()).unwrap().unwrap().name, "good");
        }
    }
}
