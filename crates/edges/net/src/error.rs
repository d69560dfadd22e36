//! Errors of certificates.

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
        /// The system's error.
        source: std::io::Error,
    },
    /// A file holds something else than expected.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The defect.
        what: String,
    },
    /// The name in a certificate is invalid.
    #[error("{what}: {source}")]
    Identity {
        /// Which certificate.
        what: String,
        /// The defect of its name.
        source: IdentityError,
    },
    /// The certificate has another holder.
    #[error("{}: the certificate is that of {found}; expected {expected}", path.display())]
    Foreign {
        /// The certificate.
        path: PathBuf,
        /// Its holder.
        found: String,
        /// The expected holder.
        expected: String,
    },
    /// The key does not match the certificate, or the library refuses both.
    #[error("{what}: {source}")]
    Tls {
        /// The failed step.
        what: String,
        /// The library's error.
        source: rustls::Error,
    },
    /// A certificate cannot be made.
    #[error("cannot make {what}: {source}")]
    Make {
        /// The kind of certificate.
        what: String,
        /// The library's error.
        source: rcgen::Error,
    },
}
