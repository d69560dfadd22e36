//! The certificate of the public ports, and the authorities whose clients may show one.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::certificate::expires;
use crate::credential_files::{FileStamp, certificates, read};
use crate::credentials::{HTTP_2, RELOAD_EVERY};
use crate::error::CredentialError;
use crate::http_version::HttpVersion;

/// HTTP/1.1 by its name in a TLS handshake.
const HTTP_1: &[u8] = b"http/1.1";

/// One of this many threads works on handshakes of strangers at a time, each of which takes an operation with the
/// private key: the others serve requests meanwhile, however often clients reconnect.
const THREADS_PER_HANDSHAKE: usize = 2;

/// The files of the public ports' certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicTlsFiles {
    /// The certificate that clients are shown, and the intermediate ones, PEM.
    pub cert: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// Authorities of clients, PEM; none if certificates of clients are not checked.
    pub client_ca: Option<PathBuf>,
}

type Stamps = [Option<FileStamp>; 3];

impl PublicTlsFiles {
    fn stamps(&self) -> Stamps {
        [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()]
            .map(|path| path.and_then(|path| FileStamp::at(path)))
    }
}

/// What the files contain, for either protocol.
#[derive(Clone, Debug)]
struct Loaded {
    http_1: Arc<ServerConfig>,
    http_2: Arc<ServerConfig>,
    /// The end of the certificate that clients are shown; none if it cannot be read.
    expires: Option<SystemTime>,
}

/// TLS 1.2 and 1.3 at the public ports. Renewed files are loaded at run time and used for later connections.
///
/// A client without a certificate gets in, too: it shows a key with its requests.
#[derive(Debug)]
pub struct PublicTls {
    files: PublicTlsFiles,
    loaded: RwLock<(Stamps, Loaded)>,
    turns: Arc<Semaphore>,
}

impl PublicTls {
    /// Loads the files.
    ///
    /// # Errors
    /// If one cannot be read, holds something else, or the key is not the certificate's.
    pub fn load(files: PublicTlsFiles) -> Result<Self, CredentialError> {
        let stamps = files.stamps();
        let loaded = load(&files)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let turns = Arc::new(Semaphore::new(threads.div_ceil(THREADS_PER_HANDSHAKE)));
        Ok(Self { files, loaded: RwLock::new((stamps, loaded)), turns })
    }

    /// Loads changed files; true if there were any. Of unusable ones nothing is used.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn reload(&self) -> Result<bool, CredentialError> {
        let stamps = self.files.stamps();
        if stamps == self.loaded.read().unwrap_or_else(PoisonError::into_inner).0 {
            return Ok(false);
        }
        let loaded = load(&self.files)?;
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = (stamps, loaded);
        Ok(true)
    }

    /// Reloads every [`RELOAD_EVERY`] while it is polled.
    pub async fn keep_fresh(self: Arc<Self>) {
        let cert = self.files.cert.display().to_string();
        loop {
            tokio::time::sleep(RELOAD_EVERY).await;
            match self.reload() {
                Ok(true) => tracing::info!(cert, "the certificate of the public ports was renewed"),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "a renewed certificate cannot be used; the former one stays"),
            }
        }
    }

    /// When the certificate that clients are shown expires; none if it cannot be read.
    #[must_use]
    pub fn expires(&self) -> Option<SystemTime> {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).1.expires
    }

    /// A handshake holds one while it is worked on, and none while it waits for its caller: a silent caller does not
    /// delay others. The ports share them.
    pub(crate) const fn turns(&self) -> &Arc<Semaphore> {
        &self.turns
    }

    pub(crate) fn acceptor(&self, http: HttpVersion) -> TlsAcceptor {
        let loaded = &self.loaded.read().unwrap_or_else(PoisonError::into_inner).1;
        TlsAcceptor::from(Arc::clone(match http {
            HttpVersion::Http1 => &loaded.http_1,
            HttpVersion::Http2 => &loaded.http_2,
        }))
    }
}

fn load(files: &PublicTlsFiles) -> Result<Loaded, CredentialError> {
    let content = |path: &PathBuf, what: String| CredentialError::Content { path: path.clone(), what };
    let tls = |source| CredentialError::Tls { what: files.cert.display().to_string(), source };
    let chain = certificates(&files.cert)?;
    let expires = chain.first().and_then(expires);
    let key = PrivateKeyDer::from_pem_slice(read(&files.key)?.as_bytes())
        .map_err(|error| content(&files.key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(tls)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| content(path, error.to_string()))?;
            }
            let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| content(path, error.to_string()))?;
            builder.with_client_cert_verifier(clients)
        }
    };
    let mut http_2 = builder.with_single_cert(chain, key).map_err(tls)?;
    let mut http_1 = http_2.clone();
    (http_1.alpn_protocols, http_2.alpn_protocols) = (vec![HTTP_1.to_vec()], vec![HTTP_2.to_vec()]);
    Ok(Loaded { http_1: Arc::new(http_1), http_2: Arc::new(http_2), expires })
}
