//! Certificates of a local cluster, generated at its start.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;
use symphony_config::{RepositoryConfig, SecurityConfig};
use symphony_net::{Authority, CredentialFiles, Credentials, HostName, Identity, Net, Role};

use super::layout::Layout;
use crate::cli::OPERATOR;

/// Their validity: no local cluster runs longer.
const DAYS: u32 = 90;

/// The certificates of one local cluster, or none if it speaks plaintext.
#[derive(Debug)]
pub(crate) struct Pki<'a> {
    /// For plaintext: no certificates.
    dir: Option<&'a Path>,
}

impl<'a> Pki<'a> {
    /// Creates an authority in `dir` if there is none, and certificates for every process of `layout` and for an
    /// operator.
    pub(crate) fn prepare(layout: &Layout, dir: &'a Path) -> anyhow::Result<Self> {
        let schedulers = layout.schedulers.iter().map(|s| (Role::Scheduler, s.id.get().to_string()));
        let backends = layout.backends.iter().map(|b| (Role::Backend, b.name.clone()));
        // The second frontend is for `symphony load --protocol native --identity frontend-load`.
        let frontends = layout.own_frontend().map(|frontend| frontend.name.as_str()).into_iter().chain(["load"]);
        let frontends = frontends.map(|name| (Role::Frontend, name.to_owned()));
        let who = schedulers.chain(backends).chain(frontends).chain(layout.guests.iter().flatten().cloned());
        let hosts = layout.cluster.scheduler.iter().map(|replica| replica.control.host());
        Self::make(dir, &layout.cluster.name, layout.security.insecure_dev, who, hosts)
    }

    /// Creates an authority for `cluster` in `dir` if there is none, and certificates for all of `who` and for an
    /// operator. Only the certificates of schedulers, to which clients of other processes connect, contain `hosts`: if
    /// all did, a backend's key would suffice to impersonate a scheduler.
    pub(crate) fn make<'h>(
        dir: &'a Path,
        cluster: &str,
        insecure_dev: bool,
        who: impl Iterator<Item = (Role, String)>,
        hosts: impl Iterator<Item = &'h str>,
    ) -> anyhow::Result<Self> {
        if insecure_dev {
            return Ok(Self { dir: None });
        }
        let authority = Authority::open_or_create(dir, cluster).context("cannot make certificates")?;
        let (role, name) = OPERATOR;
        let hosts: BTreeSet<_> = hosts.collect();
        // An invalid certificate name cannot be searched for there either.
        let hosts: Vec<HostName> = hosts.into_iter().filter_map(|host| host.parse().ok()).collect();
        for (role, name) in who.chain([(role, name.to_owned())]) {
            let identity = Identity::new(cluster, role, &name)?;
            let hosts = if role == Role::Scheduler { hosts.as_slice() } else { &[] };
            authority.issue_at(&identity, hosts, DAYS).context("cannot make certificates")?;
        }
        Ok(Self { dir: Some(dir) })
    }

    /// The existing certificates in `dir`.
    pub(crate) fn known(dir: &'a Path, insecure_dev: bool) -> Self {
        Self { dir: (!insecure_dev).then_some(dir) }
    }

    /// The `[security]` of one process.
    pub(crate) fn security(&self, role: Role, name: &str) -> SecurityConfig {
        match self.dir.map(|dir| CredentialFiles::in_dir(dir, role, name)) {
            Some(CredentialFiles { ca, cert, key }) => {
                SecurityConfig { ca: Some(ca), cert: Some(cert), key: Some(key), ..SecurityConfig::default() }
            }
            None => SecurityConfig { insecure_dev: true, ..SecurityConfig::default() },
        }
    }

    /// Lets a frontend load models with the operator's rights for tenants that may, or for clients that present a
    /// token, which is generated if missing.
    pub(crate) fn authorize(&self, repository: &mut RepositoryConfig, tenants: bool) -> anyhow::Result<()> {
        if repository.dir.is_none() || (repository.token_file.is_none() && !tenants) {
            return Ok(());
        }
        if let Some(token_file) = repository.token_file.as_ref().filter(|file| !file.exists()) {
            let token = format!("{}\n", symphony_transport::fresh_operation_id());
            write_private(token_file, &token).with_context(|| format!("cannot write {}", token_file.display()))?;
        }
        if let Some(dir) = self.dir {
            let (role, name) = OPERATOR;
            let CredentialFiles { cert, key, .. } = CredentialFiles::in_dir(dir, role, name);
            (repository.cert, repository.key) = (Some(cert), Some(key));
        }
        Ok(())
    }

    /// The operator's connections to the cluster.
    pub(crate) fn operator(&self) -> anyhow::Result<Net> {
        let Some(dir) = self.dir else { return Ok(Net::plaintext()) };
        let (role, name) = OPERATOR;
        let credentials = Credentials::load(CredentialFiles::in_dir(dir, role, name))?;
        Ok(Net::secured(std::sync::Arc::new(credentials)))
    }
}

/// Creates a file that only its owner can read.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::File::options().create_new(true).write(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use x509_parser::parse_x509_certificate;
    use x509_parser::pem::parse_x509_pem;

    use super::*;

    #[test]
    fn certificates_of_schedulers_alone_name_hosts() {
        let dir = tempfile::tempdir().unwrap();
        let all = [(Role::Scheduler, "1"), (Role::Backend, "b"), (Role::Frontend, "f"), OPERATOR];
        let who = all[..3].iter().map(|&(role, name)| (role, name.to_owned()));
        Pki::make(dir.path(), "blue", false, who, ["127.0.0.1", "replica.example"].into_iter()).unwrap();
        for (role, name) in all {
            let pem = std::fs::read(CredentialFiles::in_dir(dir.path(), role, name).cert).unwrap();
            let (_, pem) = parse_x509_pem(&pem).unwrap();
            let (_, certificate) = parse_x509_certificate(&pem.contents).unwrap();
            let names = certificate.subject_alternative_name().unwrap().unwrap().value.general_names.len();
            // One is its identity.
            assert_eq!(names, if role == Role::Scheduler { 3 } else { 1 }, "{role} {name}");
        }
    }
}
