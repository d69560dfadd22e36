//! A certificate authority for clusters without one of their own.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use time::{Duration, OffsetDateTime};

use crate::credential_files::{CA_FILE, CredentialFiles, facts_in, read};
use crate::error::CredentialError;
use crate::host_name::HostName;
use crate::identity::Identity;

/// The authority's key, which can sign certificates.
const CA_KEY_FILE: &str = "ca.key";

/// How long the authority is valid.
const CA_DAYS: i64 = 3650;
/// Tolerated difference of clocks in a cluster when a certificate is first used.
const CLOCKS_DIFFER: Duration = Duration::hours(1);

/// Signs certificates. Kept in a folder with two files, `ca.pem` and `ca.key`; only the key's owner can read it.
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// A newly issued certificate.
#[derive(Clone, Debug)]
pub struct Issued {
    /// Its holder.
    pub identity: Identity,
    /// Where its certificate and key lie.
    pub files: CredentialFiles,
    /// Whether they are in place of older ones.
    pub is_renewed: bool,
}

impl Authority {
    /// Creates an authority in `dir`, which is created if necessary.
    ///
    /// # Errors
    /// If there is one already, or the folder cannot be written.
    pub fn create(dir: &Path, cluster: &str) -> Result<Self, CredentialError> {
        fs::create_dir_all(dir).map_err(|source| CredentialError::File { path: dir.to_owned(), source })?;
        let key = KeyPair::generate().map_err(make("the authority's key"))?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("Symphony cluster {cluster}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let now = OffsetDateTime::now_utc();
        params.not_before = now - CLOCKS_DIFFER;
        params.not_after = now + Duration::days(CA_DAYS);
        let certificate = params.self_signed(&key).map_err(make("the authority's certificate"))?;
        write_new(&dir.join(CA_KEY_FILE), &key.serialize_pem(), 0o600)?;
        write_new(&dir.join(CA_FILE), &certificate.pem(), 0o644)?;
        Ok(Self { dir: dir.to_owned(), issuer: Issuer::new(params, key) })
    }

    /// The authority in `dir`.
    ///
    /// # Errors
    /// If there is none, or its files are damaged.
    pub fn open(dir: &Path) -> Result<Self, CredentialError> {
        let (ca, key) = (dir.join(CA_FILE), dir.join(CA_KEY_FILE));
        let (ca_text, key_text) = (read(&ca)?, read(&key)?);
        let bad = |path: &Path| {
            let path = path.to_owned();
            move |source: rcgen::Error| CredentialError::Content { path, what: source.to_string() }
        };
        let key_pair = KeyPair::from_pem(&key_text).map_err(bad(&key))?;
        let issuer = Issuer::from_ca_cert_pem(&ca_text, key_pair).map_err(bad(&ca))?;
        Ok(Self { dir: dir.to_owned(), issuer })
    }

    /// Opens the authority in `dir`, or creates one.
    ///
    /// # Errors
    /// As [`Authority::create`] and [`Authority::open`].
    pub fn open_or_create(dir: &Path, cluster: &str) -> Result<Self, CredentialError> {
        if dir.join(CA_FILE).exists() { Self::open(dir) } else { Self::create(dir, cluster) }
    }

    /// Issues a key and a certificate for `identity`, in place of its old ones, into the authority's folder.
    ///
    /// # Errors
    /// If the folder cannot be written, or its files belong to another holder, for example to a process of another
    /// cluster with the same role and name, or there is a key without a certificate, whose owner is unknown.
    pub fn issue(&self, identity: &Identity, days: u32) -> Result<Issued, CredentialError> {
        self.issue_at(identity, &[], days)
    }

    /// Like [`Authority::issue`], for a process that foreign clients verify by these host names.
    ///
    /// # Errors
    /// As [`Authority::issue`].
    pub fn issue_at(&self, identity: &Identity, hosts: &[HostName], days: u32) -> Result<Issued, CredentialError> {
        let what = || format!("a certificate for {identity}");
        let key = KeyPair::generate().map_err(make(&what()))?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("{} {}", identity.role, identity.name));
        let uri = identity.to_string().try_into().map_err(make(&what()))?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        for host in hosts {
            params.subject_alt_names.push(host.alternative_name().map_err(make(&what()))?);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let now = OffsetDateTime::now_utc();
        params.not_before = now - CLOCKS_DIFFER;
        params.not_after = now + Duration::days(days.into());
        let certificate = params.signed_by(&key, &self.issuer).map_err(make(&what()))?;
        let files = CredentialFiles::in_dir(&self.dir, identity.role, &identity.name);
        let is_renewed = files.cert.exists();
        if !is_renewed && files.key.exists() {
            let what = "a key without its certificate, which may be in use elsewhere: add the certificate, or move the key away";
            return Err(CredentialError::Content { path: files.key, what: what.to_owned() });
        }
        if is_renewed {
            let found = facts_in(&files.cert)?.identity;
            if found != *identity {
                let (found, expected) = (found.to_string(), identity.to_string());
                return Err(CredentialError::Foreign { path: files.cert, found, expected });
            }
        }
        // The key first: a process that reloads in between sees a pair that does not match, and keeps its old one.
        replace(&files.key, &key.serialize_pem(), 0o600)?;
        replace(&files.cert, &certificate.pem(), 0o644)?;
        Ok(Issued { identity: identity.clone(), files, is_renewed })
    }
}

fn make(what: &str) -> impl FnOnce(rcgen::Error) -> CredentialError + use<> {
    let what = what.to_owned();
    move |source| CredentialError::Make { what, source }
}

/// Writes a new file; fails if it exists.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), CredentialError> {
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|source| CredentialError::File { path: path.to_owned(), source })
}

/// Replaces a file atomically.
fn replace(path: &Path, text: &str, mode: u32) -> Result<(), CredentialError> {
    let beside = path.with_extension("new");
    let _ = fs::remove_file(&beside);
    write_new(&beside, text, mode)?;
    fs::rename(&beside, path).map_err(|source| CredentialError::File { path: path.to_owned(), source })
}
