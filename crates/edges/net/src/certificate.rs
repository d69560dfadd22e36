//! The contents of a certificate.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::identity::{Identity, IdentityError};

/// The contents of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Its holder.
    pub identity: Identity,
    /// The end of its validity.
    pub expires: SystemTime,
}

impl CertificateFacts {
    /// Reads a certificate that the TLS library has verified, or that is the process's own.
    ///
    /// # Errors
    /// If it has no URI of the form [`Identity`] describes, or several.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, IdentityError> {
        let nobody = |what: &str| IdentityError::Form(what.to_owned());
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| nobody("(no X.509 certificate)"))?;
        let names = parsed.subject_alternative_name().ok().flatten();
        let mut uris = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        });
        let uri = uris.next().ok_or_else(|| nobody("(a certificate without a URI)"))?;
        if uris.next().is_some() {
            return Err(nobody("(a certificate with several URIs)"));
        }
        Ok(Self { identity: uri.parse()?, expires: end_of(&parsed) })
    }
}

/// When a certificate expires; none if it cannot be read.
pub(crate) fn expires(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    X509Certificate::from_der(certificate).ok().map(|(_, parsed)| end_of(&parsed))
}

fn end_of(certificate: &X509Certificate<'_>) -> SystemTime {
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    UNIX_EPOCH + Duration::from_secs(seconds)
}
