//! Connections with certificates of the same authority, of another one, and of none.

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use crate::http_version::PREFACE;
use crate::{
    Authority, CredentialError, CredentialFiles, Credentials, HANDSHAKE_TIMEOUT, HANDSHAKES_MAX, HostName, Identity,
    Incoming, Net, OPENING_TIMEOUT, Port, Refusal, Role,
};

const SOON: Duration = Duration::from_secs(60);

fn identity(cluster: &str, role: Role, name: &str) -> Identity {
    Identity::new(cluster, role, name).unwrap()
}

fn net(authority: &Authority, cluster: &str, role: Role, name: &str) -> Net {
    let issued = authority.issue(&identity(cluster, role, name), 1).unwrap();
    Net::secured(Arc::new(Credentials::load(issued.files).unwrap()))
}

async fn listener() -> (tokio::net::TcpListener, String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    (listener, addr)
}

/// Whether a call from one to the other carries a message there and back.
async fn talk(from: &Net, to: &Net, role: Role) -> bool {
    let (listener, addr) = listener().await;
    let mut incoming = Incoming::new(listener, to.clone(), Port::new("test", &[Role::Scheduler], 256));
    let answering = tokio::spawn(async move {
        let mut connection = incoming.next().await?;
        let mut word = [0; 4];
        connection.read_exact(&mut word).await.ok()?;
        connection.write_all(&word).await.ok()?;
        connection.flush().await.ok()?;
        connection.read_u8().await.is_err().then_some(())
    });
    let exchange = async {
        let mut connection = from.dial(&addr, &role.into()).await.ok()?;
        connection.write_all(b"ping").await.ok()?;
        connection.flush().await.ok()?;
        let mut word = [0; 4];
        connection.read_exact(&mut word).await.ok()?;
        (&word == b"ping").then_some(())
    };
    let received = tokio::time::timeout(SOON, exchange).await.expect("refusals do not hang").is_some();
    answering.abort();
    received
}

#[tokio::test]
async fn only_the_right_certificates_talk() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::create(&dir.path().join("ours"), "blue").unwrap();
    let theirs = Authority::create(&dir.path().join("theirs"), "blue").unwrap();
    let backend = net(&ours, "blue", Role::Backend, "b");
    let scheduler = net(&ours, "blue", Role::Scheduler, "1");

    assert!(talk(&scheduler, &backend, Role::Backend).await);
    assert!(!talk(&net(&ours, "blue", Role::Frontend, "f"), &backend, Role::Backend).await, "a caller of another role");
    assert!(!talk(&scheduler, &backend, Role::Frontend).await, "somebody of another role answered");
    assert!(!talk(&net(&ours, "green", Role::Scheduler, "2"), &backend, Role::Backend).await, "another cluster");
    assert!(!talk(&net(&theirs, "blue", Role::Scheduler, "1"), &backend, Role::Backend).await, "another authority");
    assert!(!talk(&Net::plaintext(), &backend, Role::Backend).await, "plaintext calls TLS");
    assert!(!talk(&scheduler, &Net::plaintext(), Role::Backend).await, "TLS calls plaintext");
    assert!(talk(&Net::plaintext(), &Net::plaintext(), Role::Backend).await);
}

#[tokio::test]
async fn a_caller_that_says_nothing_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::create(dir.path(), "blue").unwrap();
    let (backend, scheduler) = (net(&ours, "blue", Role::Backend, "b"), net(&ours, "blue", Role::Scheduler, "1"));
    let (listener, addr) = listener().await;
    let mut incoming = Incoming::new(listener, backend, Port::new("test", &[Role::Scheduler], 256));
    let _silent = tokio::net::TcpStream::connect(&addr).await.unwrap();
    let expected = Role::Backend.into();
    let (dialled, accepted) = tokio::join!(scheduler.dial(&addr, &expected), incoming.next());
    assert_eq!(dialled.unwrap().peer().identity, Some(identity("blue", Role::Backend, "b")));
    assert_eq!(accepted.unwrap().peer().identity, Some(identity("blue", Role::Scheduler, "1")));
}

#[tokio::test]
async fn strangers_from_one_address_leave_places_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::create(dir.path(), "blue").unwrap();
    let (backend, scheduler) = (net(&ours, "blue", Role::Backend, "b"), net(&ours, "blue", Role::Scheduler, "1"));
    let (listener, addr) = listener().await;
    let mut incoming = Incoming::new(listener, backend, Port::new("test", &[Role::Scheduler], 256));
    let mut silent = Vec::new();
    for _ in 0..HANDSHAKES_MAX {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        silent.push(socket.connect(addr.parse().unwrap()).await.unwrap());
    }
    let expected = Role::Backend.into();
    let (dialled, _accepted) = tokio::join!(scheduler.dial(&addr, &expected), incoming.next());
    assert!(dialled.is_ok());
    let first = silent[0].try_read(&mut [0; 1]);
    assert!(first.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "nobody had to give up for it");
}

#[test]
fn a_blocking_handshake_is_bounded_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::create(dir.path(), "blue").unwrap();
    let scheduler = net(&ours, "blue", Role::Scheduler, "1");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut slow = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let dripping = std::thread::spawn(move || {
        // A handshake record of 16 KiB, a byte at a time: each read gets something soon.
        let mut record = [0x16, 3, 1, 0x40, 0].into_iter().chain(std::iter::repeat(0));
        let give_up = Instant::now() + 4 * HANDSHAKE_TIMEOUT;
        while Instant::now() < give_up && slow.write_all(&[record.next().unwrap()]).is_ok() {
            std::thread::sleep(HANDSHAKE_TIMEOUT / 20);
        }
    });
    let begun = Instant::now();
    assert!(scheduler.accept_line(listener.accept().unwrap().0, &[Role::Scheduler]).is_err());
    assert!(begun.elapsed() < 3 * HANDSHAKE_TIMEOUT, "{:?}", begun.elapsed());
    dripping.join().unwrap();
}

#[test]
fn blocking_lines_carry_words_and_know_the_peer() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::create(dir.path(), "blue").unwrap();
    for (one, two) in [
        (net(&ours, "blue", Role::Scheduler, "1"), net(&ours, "blue", Role::Scheduler, "2")),
        (Net::plaintext(), Net::plaintext()),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let secured = one.credentials().is_some();
        let answering = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut line = two.accept_line(stream, &[Role::Scheduler]).unwrap();
            assert!(line.peer().may_be(Role::Scheduler, "1"));
            assert_eq!(line.peer().may_be(Role::Scheduler, "3"), !secured);
            let mut word = [0; 4];
            line.read_exact(&mut word).unwrap();
            word
        });
        let mut line = greeted(&one, addr, &crate::Expected::named(Role::Scheduler, "2")).unwrap();
        line.write_all(b"beat").unwrap();
        line.flush().unwrap();
        assert_eq!(&answering.join().unwrap(), b"beat");
    }
}

fn greeted(net: &Net, addr: std::net::SocketAddr, expected: &crate::Expected) -> std::io::Result<crate::Line> {
    net.authenticate_line(net.connect_line(&[addr], SOON)?, expected, SOON, SOON, || true)
}

/// A peer that accepts and is silent costs the limit at most, and no more than a moment once the line is not wanted.
#[test]
fn a_silent_peer_is_given_up_in_time_and_at_once_where_the_line_is_not_wanted_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::create(dir.path(), "blue").unwrap();
    let net = net(&ours, "blue", Role::Scheduler, "1");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let expected = crate::Expected::named(Role::Scheduler, "2");
    let greet = |within: Duration, go_on: fn() -> bool| {
        let stream = net.connect_line(&[addr], SOON).unwrap();
        net.authenticate_line(stream, &expected, within, Duration::from_millis(5), go_on).unwrap_err().kind()
    };
    assert_eq!(greet(Duration::from_millis(30), || true), std::io::ErrorKind::TimedOut);
    assert_eq!(greet(Duration::from_secs(3_600), || false), std::io::ErrorKind::Interrupted);
}

/// A handshake like that of a gRPC client without identities: it trusts the authority, requires the dialled host in
/// the certificate, and insists on HTTP/2.
async fn strangers_client(files: &CredentialFiles, server: &Net, host: &str) -> std::io::Result<()> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.ca).unwrap()).unwrap();
    let own = vec![CertificateDer::from_pem_file(&files.cert).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_client_auth_cert(own, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (listener, addr) = listener().await;
    let server = server.clone();
    let answering =
        tokio::spawn(async move { server.accept(listener.accept().await.unwrap().0, &[Role::Viewer]).await });
    let stream = tokio::net::TcpStream::connect(&addr).await?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = connector.connect(ServerName::try_from(host.to_owned()).unwrap(), stream).await?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    answering.await.unwrap().map(drop)
}

#[tokio::test]
async fn clients_of_others_believe_who_has_the_host_in_the_certificate_and_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path(), "blue").unwrap();
    let keda = authority.issue(&identity("blue", Role::Viewer, "keda"), 1).unwrap().files;
    let hosts = ["symphony-control.default.svc", "127.0.0.1", "::1"].map(|host| host.parse::<HostName>().unwrap());
    let scheduler = identity("blue", Role::Scheduler, "1");
    let files = authority.issue_at(&scheduler, &hosts, 1).unwrap().files;
    let credentials = Credentials::load_for(files, &scheduler).unwrap();
    let server = Net::secured(Arc::new(credentials));
    for host in ["symphony-control.default.svc", "127.0.0.1", "::1"] {
        strangers_client(&keda, &server, host).await.unwrap_or_else(|error| panic!("{host}: {error}"));
    }
    let elsewhere = strangers_client(&keda, &server, "elsewhere.default.svc").await.unwrap_err();
    assert!(elsewhere.to_string().contains("not valid for name"), "{elsewhere}");

    let nowhere = net(&authority, "blue", Role::Scheduler, "2");
    assert!(strangers_client(&keda, &nowhere, "127.0.0.1").await.is_err(), "it names no host");
    for text in ["", "a b", "127.0.0.1:7001", "-.example"] {
        assert!(text.parse::<HostName>().unwrap_err().to_string().contains("without a port"), "{text}");
    }
}

#[tokio::test]
async fn certificates_of_another_cluster_are_called_that() {
    let dir = tempfile::tempdir().unwrap();
    let authority = |folder: &str, name| Authority::create(&dir.path().join(folder), name).unwrap();
    let me = net(&authority("ours", "blue"), "blue", Role::Operator, "admin");
    for theirs in [authority("of-the-same-name", "blue"), authority("of-another-name", "green")] {
        let server = net(&theirs, "blue", Role::Scheduler, "1");
        let (listener, addr) = listener().await;
        let answering =
            tokio::spawn(async move { server.accept(listener.accept().await.unwrap().0, &[Role::Operator]).await });
        let error = me.dial(&addr, &Role::Scheduler.into()).await.unwrap_err();
        assert!(error.to_string().contains("those of another cluster"), "{error}");
        assert!(answering.await.unwrap().is_err());
    }
}

#[test]
fn renewed_certificates_are_taken_up_and_wrong_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path(), "blue").unwrap();
    let me = identity("blue", Role::Backend, "b");
    let files = authority.issue(&me, 1).unwrap().files;
    let credentials = Credentials::load_for(files.clone(), &me).unwrap();
    assert!(!credentials.reload().unwrap(), "nothing has changed");
    let before = credentials.facts();

    assert!(authority.issue(&me, 9).unwrap().is_renewed);
    assert!(credentials.reload().unwrap());
    assert!(credentials.facts().expires > before.expires);

    let other = authority.issue(&identity("blue", Role::Backend, "c"), 1).unwrap().files;
    std::fs::copy(&other.cert, &files.cert).unwrap();
    assert!(matches!(credentials.reload(), Err(CredentialError::Tls { .. })), "the key is not this certificate's");
    std::fs::copy(&other.key, &files.key).unwrap();
    assert!(matches!(credentials.reload(), Err(CredentialError::Foreign { .. })), "another name");
    assert_eq!(credentials.facts().identity, me, "what was loaded stays");
    assert!(matches!(Credentials::load_for(files, &me), Err(CredentialError::Foreign { .. })));
}

#[test]
fn what_was_issued_to_another_cluster_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path(), "blue").unwrap();
    let files = authority.issue(&identity("blue", Role::Backend, "b"), 1).unwrap().files;
    let before = [&files.cert, &files.key].map(|file| std::fs::read(file).unwrap());
    // The files of both have the same names.
    let refused = authority.issue(&identity("green", Role::Backend, "b"), 1);
    assert!(matches!(refused, Err(CredentialError::Foreign { .. })), "{refused:?}");
    assert_eq!([&files.cert, &files.key].map(|file| std::fs::read(file).unwrap()), before);
    std::fs::write(&files.cert, "notes").unwrap();
    let refused = authority.issue(&identity("blue", Role::Backend, "b"), 1);
    assert!(matches!(refused, Err(CredentialError::Content { .. })), "{refused:?}");
    // A key alone does not say whose it is.
    std::fs::remove_file(&files.cert).unwrap();
    let refused = authority.issue(&identity("blue", Role::Backend, "b"), 1).unwrap_err().to_string();
    assert!(refused.contains("backend-b.key: a key without its certificate"), "{refused}");
    assert_eq!(std::fs::read(&files.key).unwrap(), before[1]);
    std::fs::remove_file(&files.key).unwrap();
    assert!(!authority.issue(&identity("blue", Role::Backend, "b"), 1).unwrap().is_renewed);
}

#[test]
fn keys_are_private_and_authorities_are_not_overwritten() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path(), "blue").unwrap();
    let files = authority.issue(&identity("blue", Role::Operator, "admin"), 1).unwrap().files;
    for key in [dir.path().join("ca.key"), files.key.clone()] {
        assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600, "{}", key.display());
    }
    assert!(matches!(Authority::create(dir.path(), "blue"), Err(CredentialError::File { .. })));
    std::fs::write(&files.cert, "no certificate").unwrap();
    assert!(matches!(Credentials::load(files), Err(CredentialError::Content { .. })));
    let gone = CredentialFiles::in_dir(dir.path(), Role::Viewer, "nobody");
    assert!(Credentials::load(gone).unwrap_err().to_string().contains("viewer-nobody.pem"));
}

#[tokio::test]
async fn a_routed_address_is_dialled_elsewhere_and_must_still_be_who_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::create(dir.path(), "blue").unwrap();
    let (listener, addr) = listener().await;
    let routes = [("backend.example:7101".to_owned(), addr.clone())].into();
    let scheduler = net(&ours, "blue", Role::Scheduler, "1").routed(routes);
    assert_eq!((scheduler.through("backend.example:7101"), scheduler.through("other:1")), (addr.as_str(), "other:1"));
    let backend = net(&ours, "blue", Role::Backend, "b");
    let mut incoming = Incoming::new(listener, backend, Port::new("test", &[Role::Scheduler], 256));
    for (role, right) in [(Role::Backend, true), (Role::Frontend, false)] {
        let expected = role.into();
        let (dialled, _accepted) = tokio::join!(scheduler.dial("backend.example:7101", &expected), incoming.next());
        assert_eq!(dialled.is_ok(), right, "{role}");
    }
}

/// Whether nothing comes of this connection but its end. In TLS 1.3 the caller has its connection before the other side
/// has checked its certificate.
async fn is_ended(mut connection: impl AsyncRead + Unpin) -> bool {
    tokio::time::timeout(SOON, connection.read_u8()).await.unwrap().is_err()
}

/// An authenticated connection from another address of this host than [`Net::dial`] has.
async fn dial_from_elsewhere(net: &Net, addr: &str) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let stream = socket.connect(addr.parse().unwrap()).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::clone(&net.credentials().unwrap().now().client));
    connector.connect("symphony".try_into().unwrap(), stream).await.unwrap()
}

#[tokio::test]
async fn connections_beyond_the_share_of_an_address_are_turned_away_until_one_ends() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::create(dir.path(), "blue").unwrap();
    let (backend, scheduler) = (net(&ours, "blue", Role::Backend, "b"), net(&ours, "blue", Role::Scheduler, "1"));
    let (listener, addr) = listener().await;
    let mut incoming = Incoming::new(listener, backend, Port::new("shared", &[Role::Scheduler], 4));
    let expected = Role::Backend.into();
    let dial = || async { tokio::time::timeout(SOON, scheduler.dial(&addr, &expected)).await.unwrap().unwrap() };
    let count = |refusal: Refusal| crate::refusals().get(&("shared", refusal)).copied().unwrap_or(0);

    let (first, second) = (dial().await, dial().await);
    let taken = [incoming.next().await.unwrap(), incoming.next().await.unwrap()];
    assert!(is_ended(dial().await).await, "turned away");
    assert_eq!((count(Refusal::TooManyFromThere), count(Refusal::TooMany)), (1, 0));

    // The other half of the places is for others, whatever certificate they show.
    let elsewhere = || dial_from_elsewhere(&scheduler, &addr);
    let (third, fourth) = (elsewhere().await, elsewhere().await);
    let others = [incoming.next().await.unwrap(), incoming.next().await.unwrap()];
    assert!(is_ended(elsewhere().await).await, "the port is full");
    assert_eq!((count(Refusal::TooManyFromThere), count(Refusal::TooMany)), (1, 1));
    drop((third, fourth, others));

    // Either half of a connection keeps its place.
    let [one, two] = taken;
    let (read, write) = one.into_split();
    drop(read);
    assert!(is_ended(dial().await).await);
    drop(write);
    let _fifth = dial().await;
    let fifth = tokio::time::timeout(SOON, incoming.next()).await.expect("a place is free").unwrap();
    drop((first, second, two, fifth));
}

#[tokio::test]
async fn a_caller_of_a_grpc_port_begins_in_time_or_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::create(dir.path(), "blue").unwrap();
    let (server, caller) = (net(&ours, "blue", Role::Scheduler, "1"), net(&ours, "blue", Role::Operator, "admin"));
    let (listener, addr) = listener().await;
    let incoming = Incoming::new(listener, server, Port::new("calls", &[Role::Operator], 4));
    let mut incoming = std::pin::pin!(incoming.into_stream());
    let expected = Role::Scheduler.into();
    let silent_ones = || crate::refusals().get(&("calls", Refusal::Silent)).copied().unwrap_or(0);
    for (words, ends) in [(&PREFACE[..PREFACE.len() - 1], true), (PREFACE, false)] {
        let mut dialled = tokio::time::timeout(SOON, caller.dial(&addr, &expected)).await.unwrap().unwrap();
        let mut accepted = tokio::time::timeout(SOON, incoming.next()).await.unwrap().unwrap().unwrap();
        dialled.write_all(words).await.unwrap();
        dialled.flush().await.unwrap();
        accepted.read_exact(&mut vec![0; words.len()]).await.unwrap();
        // From here on nothing comes, and time passes at once.
        tokio::time::pause();
        let silence = tokio::time::timeout(2 * OPENING_TIMEOUT, accepted.read_u8()).await;
        tokio::time::resume();
        match ends {
            true => assert_eq!(silence.expect("the deadline comes first").unwrap_err().kind(), ErrorKind::TimedOut),
            false => assert!(silence.is_err(), "{silence:?}: a channel may be idle"),
        }
        assert_eq!(silent_ones(), 1);
    }
}
