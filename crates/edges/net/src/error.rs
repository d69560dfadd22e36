//! What can be wrong with certificates.

use std::path::PathBuf;

use crate::identity::IdentityError;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: std::io::Error,
    },
    /// A file holds something else than expected.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A certificate names nobody.
    #[error("{what}: {source}")]
    Identity {
        /// Which certificate.
        what: String,
        /// What is wrong with its name.
        source: IdentityError,
    },
    /// The certificate is somebody else's.
    #[error("{}: the certificate is that of {found}; expected {expected}", path.display())]
    Foreign {
        /// The certificate.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it should be.
        expected: String,
    },
    /// The key does not fit the certificate, or the library refuses both.
    #[error("{what}: {source}")]
    Tls {
        /// What was made of what.
        what: String,
        /// Why not.
        source: rustls::Error,
    },
    /// A certificate cannot be made.
    #[error("cannot make {what}: {source}")]
    Make {
        /// What.
        what: String,
        /// Why not.
        source: rcgen::Error,
    },
}
