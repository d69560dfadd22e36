//! The bytes of a public connection, plain or within TLS.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio_rustls::server::TlsStream;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::http_version::HttpVersion;
use crate::public_tls::PublicTls;

/// The names in the certificate of a caller that has shown one which an authority of clients has signed: the common
/// names of its subject, and its alternative names. Empty before the handshake, and for all others.
#[derive(Clone, Debug, Default)]
pub struct CertificateNames(Arc<OnceLock<Vec<String>>>);

impl CertificateNames {
    /// The names.
    #[must_use]
    pub fn get(&self) -> &[String] {
        self.0.get().map_or(&[], Vec::as_slice)
    }
}

/// A connection whose handshake, if there is any, happens as it is first read or written: other connections do not wait
/// for it.
pub(crate) struct PublicStream {
    bytes: Bytes,
    names: CertificateNames,
}

enum Bytes {
    Plain(TcpStream),
    Handshake(Box<Handshake>),
    Secured(Box<TlsStream<TcpStream>>),
    /// The handshake failed.
    Ended,
}

struct Handshake {
    accept: tokio_rustls::Accept<TcpStream>,
    turns: Arc<Semaphore>,
    /// Waits for one of the turns, in the order of coming.
    waits: Option<Waits>,
}

type Waits = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync>>;

impl Handshake {
    /// Works on it for as long as there are bytes of the caller. The deadline of a connection's opening runs meanwhile,
    /// and so bounds how long it waits for its turn.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<TlsStream<TcpStream>>> {
        let _turn = match &mut self.waits {
            None => match Arc::clone(&self.turns).try_acquire_owned() {
                Ok(turn) => turn,
                Err(_) => {
                    let waits = self.waits.insert(Box::pin(Arc::clone(&self.turns).acquire_owned()));
                    ready!(waits.as_mut().poll(context)).map_err(|_| ended())?
                }
            },
            Some(waits) => ready!(waits.as_mut().poll(context)).map_err(|_| ended())?,
        };
        self.waits = None;
        Pin::new(&mut self.accept).poll(context)
    }
}

impl fmt::Debug for PublicStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicStream").field("names", &self.names).finish_non_exhaustive()
    }
}

impl PublicStream {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self { bytes: Bytes::Plain(stream), names: CertificateNames::default() }
    }

    pub(crate) fn secured(stream: TcpStream, tls: &PublicTls, http: HttpVersion) -> Self {
        let accept = tls.acceptor(http).accept(stream);
        let handshake = Handshake { accept, turns: Arc::clone(tls.turns()), waits: None };
        Self { bytes: Bytes::Handshake(Box::new(handshake)), names: CertificateNames::default() }
    }

    pub(crate) fn certificate_names(&self) -> CertificateNames {
        self.names.clone()
    }

    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Bytes::Handshake(handshake) = &mut self.bytes else { return Poll::Ready(Ok(())) };
        match ready!(handshake.poll(context)) {
            Ok(stream) => {
                let certificate = stream.get_ref().1.peer_certificates().and_then(|all| all.first());
                if let Some(certificate) = certificate {
                    let _ = self.names.0.set(names_in(certificate));
                }
                self.bytes = Bytes::Secured(Box::new(stream));
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                self.bytes = Bytes::Ended;
                Poll::Ready(Err(error))
            }
        }
    }
}

/// The names in a certificate that the TLS library has verified.
fn names_in(certificate: &[u8]) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let alternative = parsed.subject_alternative_name().ok().flatten();
    let alternative = alternative.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) | GeneralName::RFC822Name(name) => Some(*name),
        _ => None,
    });
    common.chain(alternative).map(str::to_owned).collect()
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the TLS handshake failed")
}

impl AsyncRead for PublicStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_handshake(context))?;
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Bytes::Secured(stream) => Pin::new(stream).poll_read(context, buffer),
            Bytes::Handshake(_) | Bytes::Ended => Poll::Ready(Err(ended())),
        }
    }
}

impl AsyncWrite for PublicStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_handshake(context))?;
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Bytes::Secured(stream) => Pin::new(stream).poll_write(context, bytes),
            Bytes::Handshake(_) | Bytes::Ended => Poll::Ready(Err(ended())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_flush(context),
            Bytes::Secured(stream) => Pin::new(stream).poll_flush(context),
            // Nothing was written yet.
            Bytes::Handshake(_) | Bytes::Ended => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Bytes::Secured(stream) => Pin::new(stream).poll_shutdown(context),
            // The connection is closed when this is dropped.
            Bytes::Handshake(_) | Bytes::Ended => Poll::Ready(Ok(())),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_handshake(context))?;
        match &mut self.bytes {
            Bytes::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Bytes::Secured(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Bytes::Handshake(_) | Bytes::Ended => Poll::Ready(Err(ended())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self.bytes, Bytes::Plain(_) | Bytes::Secured(_))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::{
        Authority, CallerLimits, CredentialFiles, Identity, PublicConnection, PublicListener, PublicPort,
        PublicTlsFiles, Role,
    };

    struct Scene {
        dir: tempfile::TempDir,
        authority: Authority,
        tls: Arc<PublicTls>,
        listener: PublicListener,
    }

    fn issue(authority: &Authority, name: &str) -> CredentialFiles {
        let identity = Identity::new("clients", Role::Operator, name).unwrap();
        authority.issue_at(&identity, &["127.0.0.1".parse().unwrap()], 1).unwrap().files
    }

    impl Scene {
        async fn new(http: HttpVersion) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let authority = Authority::create(dir.path(), "clients").unwrap();
            let CredentialFiles { ca, cert, key } = issue(&authority, "server");
            let tls = Arc::new(PublicTls::load(PublicTlsFiles { cert, key, client_ca: Some(ca) }).unwrap());
            let limits = CallerLimits { total: 8, per_address: 8 };
            let port = PublicPort { name: "public", limits, http, idle_max: None };
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let listener = PublicListener::new(listener, port).secured(Some(Arc::clone(&tls)));
            Self { dir, authority, tls, listener }
        }

        fn client(&self, version: &'static SupportedProtocolVersion, shows: Option<&CredentialFiles>) -> ClientConfig {
            let pem = |path: &Path| CertificateDer::from_pem_file(path).unwrap();
            let mut roots = RootCertStore::empty();
            roots.add(pem(&self.dir.path().join("ca.pem"))).unwrap();
            let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots);
            let mut config = match shows {
                None => builder.with_no_client_auth(),
                Some(files) => {
                    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
                    builder.with_client_auth_cert(vec![pem(&files.cert)], key).unwrap()
                }
            };
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            config
        }

        async fn connect(&self) -> (TcpStream, PublicConnection) {
            let addr = self.listener.local_addr().unwrap();
            let (stream, (connection, _)) = tokio::join!(TcpStream::connect(addr), self.listener.accept());
            (stream.unwrap(), connection)
        }

        /// What the server reads, the names it knows, and the protocol that was agreed on.
        async fn talk(&self, config: ClientConfig) -> io::Result<(String, Vec<String>, Vec<u8>)> {
            let (stream, mut connection) = self.connect().await;
            let name = ServerName::try_from("127.0.0.1").unwrap();
            let caller = async {
                let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
                stream.write_all(b"hello").await?;
                stream.shutdown().await?;
                io::Result::Ok(stream.get_ref().1.alpn_protocol().unwrap_or_default().to_vec())
            };
            let mut received = String::new();
            let (agreed, read) = tokio::join!(caller, connection.read_to_string(&mut received));
            read?;
            Ok((received, connection.certificate_names().get().to_vec(), agreed?))
        }
    }

    #[tokio::test]
    async fn callers_of_either_version_are_heard_and_known_by_the_certificate_that_they_show() {
        for (http, protocol) in [(HttpVersion::Http1, &b"http/1.1"[..]), (HttpVersion::Http2, b"h2")] {
            let scene = Scene::new(http).await;
            let ann = issue(&scene.authority, "ann");
            for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
                let shown = scene.talk(scene.client(version, Some(&ann))).await.unwrap();
                let names = ["operator ann", "spiffe://clients/operator/ann"].map(str::to_owned).to_vec();
                assert_eq!(shown, ("hello".into(), names, protocol.to_vec()));
                let (received, names, _) = scene.talk(scene.client(version, None)).await.unwrap();
                assert_eq!((received.as_str(), names), ("hello", vec![]), "a key may be shown instead");
            }
            let foreign = tempfile::tempdir().unwrap();
            let foreign = issue(&Authority::create(foreign.path(), "clients").unwrap(), "ann");
            let stranger = scene.talk(scene.client(&rustls::version::TLS13, Some(&foreign))).await;
            assert!(stranger.is_err(), "{stranger:?}");
        }
    }

    #[tokio::test]
    async fn what_is_no_handshake_ends_the_connection() {
        let scene = Scene::new(HttpVersion::Http1).await;
        let (mut plain, mut connection) = scene.connect().await;
        plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut read = Vec::new();
        assert!(connection.read_to_end(&mut read).await.is_err());
        assert_eq!(connection.write(b"x").await.unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert!(read.is_empty());
    }

    #[tokio::test]
    async fn a_handshake_waits_for_its_turn_and_gives_it_back() {
        let scene = Scene::new(HttpVersion::Http1).await;
        let turns = scene.tls.turns();
        let count = turns.available_permits();
        let taken = turns.acquire_many(u32::try_from(count).unwrap()).await.unwrap();
        let (_silent, mut silent) = scene.connect().await;
        let mut talk = std::pin::pin!(scene.talk(scene.client(&rustls::version::TLS13, None)));
        let early = tokio::time::timeout(std::time::Duration::from_millis(200), &mut talk).await;
        assert!(early.is_err(), "{early:?}: there is no turn");
        drop(taken);
        let mut nothing = [0; 1];
        tokio::select! {
            read = silent.read(&mut nothing) => panic!("{read:?} of a caller that is silent"),
            received = talk => assert_eq!(received.unwrap().0, "hello", "who is silent keeps no turn"),
        }
        // It may have been given one just now.
        let read = tokio::time::timeout(std::time::Duration::from_millis(50), silent.read(&mut nothing)).await;
        assert!(read.is_err(), "{read:?}");
        assert_eq!(turns.available_permits(), count);
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_begin_a_handshake_is_ended_in_time() {
        let scene = Scene::new(HttpVersion::Http1).await;
        let (_silent, mut connection) = scene.connect().await;
        let error = connection.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// As HTTP/2 does with its settings.
    #[tokio::test(start_paused = true)]
    async fn who_does_not_begin_a_handshake_with_a_server_that_writes_first_is_ended_in_time() {
        let scene = Scene::new(HttpVersion::Http2).await;
        let ((_one, mut whole), (_other, mut in_slices)) = (scene.connect().await, scene.connect().await);
        assert_eq!(whole.write_all(b"settings").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let error = in_slices.write_vectored(&[io::IoSlice::new(b"settings")]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_renewed_certificate_is_used_and_a_broken_one_is_not() {
        let scene = Scene::new(HttpVersion::Http1).await;
        assert!(!scene.tls.reload().unwrap());
        let ended = scene.tls.expires().unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        let path = scene.dir.path().join("operator-server.pem");
        let before = std::fs::read(&path).unwrap();
        std::fs::write(&path, "no certificate").unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        let refused = scene.tls.reload().unwrap_err().to_string();
        assert!(refused.contains("there is no certificate in it"), "{refused}");
        scene.talk(scene.client(&rustls::version::TLS13, None)).await.unwrap();
        let other = Identity::new("clients", Role::Operator, "other").unwrap();
        scene.authority.issue_at(&other, &["127.0.0.1".parse().unwrap()], 3).unwrap();
        let renewed = std::fs::read(scene.dir.path().join("operator-other.pem")).unwrap();
        let key = std::fs::read(scene.dir.path().join("operator-other.key")).unwrap();
        std::fs::write(&path, renewed).unwrap();
        let refused = scene.tls.reload().unwrap_err().to_string();
        assert!(refused.contains("operator-server.pem"), "the key is another one's: {refused}");
        std::fs::write(scene.dir.path().join("operator-server.key"), key).unwrap();
        assert_eq!(scene.tls.expires(), Some(ended), "what cannot be used is not shown");
        assert!(scene.tls.reload().unwrap());
        let day = std::time::Duration::from_secs(24 * 3600);
        assert!(scene.tls.expires().unwrap() > ended + day, "three days instead of one");
        scene.talk(scene.client(&rustls::version::TLS13, None)).await.unwrap();
        // A certificate with the same time, as `cp -p` makes it, that does not match the key.
        let time = std::fs::metadata(&path).unwrap().modified().unwrap();
        let beside = scene.dir.path().join("beside.pem");
        std::fs::write(&beside, before).unwrap();
        std::fs::File::options().write(true).open(&beside).unwrap().set_modified(time).unwrap();
        std::fs::rename(&beside, &path).unwrap();
        assert!(scene.tls.reload().is_err());
    }
}
