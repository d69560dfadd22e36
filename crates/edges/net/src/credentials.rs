//! A process's own certificate and key, and the authorities that it trusts.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use crate::certificate::CertificateFacts;
use crate::credential_files::{CredentialFiles, FileStamp, certificates, facts_of, read};
use crate::error::CredentialError;
use crate::identity::Identity;

/// How often files are checked for renewed certificates.
pub const RELOAD_EVERY: Duration = Duration::from_secs(10);

/// HTTP/2, which gRPC uses, by its name in a TLS handshake.
pub(crate) const HTTP_2: &[u8] = b"h2";

/// The loaded certificates.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) facts: CertificateFacts,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

/// A process's certificates. Renewed ones are loaded at run time and used for later connections.
#[derive(Debug)]
pub struct Credentials {
    files: CredentialFiles,
    loaded: RwLock<Arc<Loaded>>,
    stamps: RwLock<[Option<FileStamp>; 3]>,
}

impl Credentials {
    /// Loads the files.
    ///
    /// # Errors
    /// If one cannot be read, holds something else, or the key is not the certificate's.
    pub fn load(files: CredentialFiles) -> Result<Self, CredentialError> {
        let stamps = files.stamps();
        let loaded = Arc::new(load(&files)?);
        Ok(Self { files, loaded: RwLock::new(loaded), stamps: RwLock::new(stamps) })
    }

    /// Loads the files, which must be those of `expected`.
    ///
    /// # Errors
    /// As [`Credentials::load`], or if the certificate has another holder.
    pub fn load_for(files: CredentialFiles, expected: &Identity) -> Result<Self, CredentialError> {
        let credentials = Self::load(files)?;
        let found = credentials.facts().identity;
        if found == *expected {
            return Ok(credentials);
        }
        let path = credentials.files.cert;
        Err(CredentialError::Foreign { path, found: found.to_string(), expected: expected.to_string() })
    }

    /// The contents of the own certificate.
    #[must_use]
    pub fn facts(&self) -> CertificateFacts {
        self.now().facts.clone()
    }

    pub(crate) fn now(&self) -> Arc<Loaded> {
        Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Loads changed files; true if there were any. If the new files are unusable or have another identity, the loaded
    /// certificates stay.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn reload(&self) -> Result<bool, CredentialError> {
        let stamps = self.files.stamps();
        if stamps == *self.stamps.read().unwrap_or_else(PoisonError::into_inner) {
            return Ok(false);
        }
        let (fresh, current) = (load(&self.files)?, self.now());
        if fresh.facts.identity != current.facts.identity {
            let (found, expected) = (fresh.facts.identity.to_string(), current.facts.identity.to_string());
            return Err(CredentialError::Foreign { path: self.files.cert.clone(), found, expected });
        }
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        *self.stamps.write().unwrap_or_else(PoisonError::into_inner) = stamps;
        Ok(true)
    }

    /// Reloads every [`RELOAD_EVERY`] while it is polled.
    pub async fn keep_fresh(self: Arc<Self>) {
        loop {
            tokio::time::sleep(RELOAD_EVERY).await;
            match self.reload() {
                Ok(true) => tracing::info!(identity = %self.facts().identity, "certificates were renewed"),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "renewed certificates cannot be used; the former ones stay"),
            }
        }
    }
}

fn load(files: &CredentialFiles) -> Result<Loaded, CredentialError> {
    let content = |path: &Path, what: String| CredentialError::Content { path: path.to_owned(), what };
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_slice(read(&files.key)?.as_bytes())
        .map_err(|error| content(&files.key, error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for authority in certificates(&files.ca)? {
        roots.add(authority).map_err(|error| content(&files.ca, error.to_string()))?;
    }
    let facts = facts_of(&files.cert, &chain[0])?;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(roots);
    let tls = |source| CredentialError::Tls { what: files.cert.display().to_string(), source };
    let callers = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
        .build()
        .map_err(|error| content(&files.ca, error.to_string()))?;
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls)?
        .with_client_cert_verifier(callers)
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(tls)?;
    // Foreign gRPC clients, KEDA's among them, disconnect unless the handshake agrees on HTTP/2; ours do not ask for
    // it.
    server.alpn_protocols = vec![HTTP_2.to_vec()];
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ByAuthority { roots, provider }))
        .with_client_auth_cert(chain, key)
        .map_err(tls)?;
    Ok(Loaded { facts, client: Arc::new(client), server: Arc::new(server) })
}

/// Accepts any certificate of the authority, at whatever address: processes have roles and names, not host names. The
/// identity is checked after the handshake, before anything is sent.
#[derive(Debug)]
struct ByAuthority {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ByAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
