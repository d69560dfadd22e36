//! The files of certificates and keys: their names, their contents, and whether they are still the same.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::certificate::CertificateFacts;
use crate::error::CredentialError;
use crate::identity::Role;

/// The authority's certificate; every process gets it.
pub(crate) const CA_FILE: &str = "ca.pem";

/// The files of a process's certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFiles {
    /// Certificates of the trusted authorities, PEM.
    pub ca: PathBuf,
    /// Its own certificate and the intermediate ones, PEM.
    pub cert: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
}

impl CredentialFiles {
    /// The files that [`Authority::issue`](crate::Authority::issue) writes: `ca.pem`, `ROLE-NAME.pem`,
    /// `ROLE-NAME.key`.
    #[must_use]
    pub fn in_dir(dir: &Path, role: Role, name: &str) -> Self {
        Self {
            ca: dir.join(CA_FILE),
            cert: dir.join(format!("{role}-{name}.pem")),
            key: dir.join(format!("{role}-{name}.key")),
        }
    }

    fn all(&self) -> [&Path; 3] {
        [&self.ca, &self.cert, &self.key]
    }

    pub(crate) fn stamps(&self) -> [Option<FileStamp>; 3] {
        self.all().map(FileStamp::at)
    }
}

/// Tells a file from its predecessor of the same name. Neither its time nor its length does: `cp -p` keeps the one, and
/// keys and their hashes are all of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    length: u64,
    /// Seconds and nanoseconds of the last change of its content.
    modified: (i64, i64),
    /// The same of any change, its rights included.
    changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of a file with this metadata.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Of the file at this path, if there is one.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Self::of(&metadata))
    }
}

/// The contents of the first certificate in a file.
pub(crate) fn facts_in(path: &Path) -> Result<CertificateFacts, CredentialError> {
    facts_of(path, &certificates(path)?[0])
}

/// The contents of a certificate from that file.
pub(crate) fn facts_of(path: &Path, certificate: &CertificateDer<'_>) -> Result<CertificateFacts, CredentialError> {
    CertificateFacts::of(certificate)
        .map_err(|source| CredentialError::Identity { what: path.display().to_string(), source })
}

/// Reads at least one certificate.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let content = |what: String| CredentialError::Content { path: path.to_owned(), what };
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(content("there is no certificate in it".to_owned())),
        Err(error) => Err(content(error.to_string())),
    }
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String, CredentialError> {
    fs::read_to_string(path).map_err(|source| CredentialError::File { path: path.to_owned(), source })
}
