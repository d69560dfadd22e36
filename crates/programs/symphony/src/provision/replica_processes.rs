//! The processes of the replicas.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use symphony_config::{Address, BackendConfig, NodeConfig, SecurityConfig};
use symphony_net::{Authority, CredentialFiles, Identity, Role};

use crate::exit::bad_input;
use crate::local::process::{Process, ProcessLifetime};

/// The validity of certificates generated for replicas.
const CERTIFICATE_DAYS: u32 = 90;
/// The number of ports tried per replica, starting with the template's.
const PORTS_TRIED_MAX: u16 = 1000;

/// The ports that replicas of all templates were given, by name: one that was just started may not listen yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports(Arc<Mutex<BTreeMap<String, [u16; 2]>>>);

impl Ports {
    /// Addresses for the two ports of a replica, from these on, that nobody has.
    fn give(&self, name: &str, first: [&Address; 2]) -> anyhow::Result<[Address; 2]> {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        given.remove(name);
        let mut taken: Vec<u16> = given.values().flatten().copied().collect();
        let exec = free_from(first[0], &taken)?;
        taken.push(exec.port());
        let metrics = free_from(first[1], &taken)?;
        given.insert(name.to_owned(), [exec.port(), metrics.port()]);
        Ok([exec, metrics])
    }
}

/// The template of replicas, and the running ones.
#[derive(Debug)]
pub(crate) struct Fleet {
    template: NodeConfig,
    backend: BackendConfig,
    /// Where certificates are found or generated; `None` in plaintext.
    pki: Option<PathBuf>,
    dir: PathBuf,
    processes: BTreeMap<u32, Process>,
    ports: Ports,
}

impl Fleet {
    /// Replicas like the backend of `template`, with configurations and logs in `dir`.
    pub(crate) fn new(template: NodeConfig, pki: Option<PathBuf>, dir: PathBuf, ports: Ports) -> anyhow::Result<Self> {
        let backend = template.backend.clone().ok_or_else(|| bad_input("the configuration has no [backend]"))?;
        std::fs::create_dir_all(dir.join("logs")).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Self { template, backend, pki, dir, processes: BTreeMap::new(), ports })
    }

    /// The name of a replica, as in a stateful set.
    pub(crate) fn name(&self, number: u32) -> String {
        format!("{}{number}", self.prefix())
    }

    /// The common prefix of the names; a number follows.
    pub(crate) fn prefix(&self) -> String {
        format!("{}-", self.backend.name)
    }

    pub(crate) fn start(&mut self, number: u32) -> anyhow::Result<()> {
        let name = self.name(number);
        let [exec, metrics] = self.ports.give(&name, [&self.backend.exec, &self.backend.metrics])?;
        let backend = BackendConfig {
            name: name.clone(),
            exec,
            metrics,
            // Two processes that append to one file would interleave their lines.
            journal_file: self.backend.journal_file.as_ref().map(|path| path.with_extension(number.to_string())),
            ..self.backend.clone()
        };
        let config = NodeConfig { backend: Some(backend), security: self.security(&name)?, ..self.template.clone() };
        let process = Process::start_node("backend", &name, &config, &self.dir, ProcessLifetime::as_own())?;
        self.processes.insert(number, process);
        Ok(())
    }

    /// The certificates of a replica: existing ones, or new ones if the authority's key is there.
    fn security(&self, name: &str) -> anyhow::Result<SecurityConfig> {
        let Some(dir) = &self.pki else {
            return Ok(SecurityConfig { insecure_dev: true, ..SecurityConfig::default() });
        };
        let files = CredentialFiles::in_dir(dir, Role::Backend, name);
        if !files.cert.exists() {
            let identity = Identity::new(&self.template.cluster.name, Role::Backend, name)?;
            let authority = Authority::open(dir).with_context(|| {
                format!("there is no {}, and none can be made without the authority's key", files.cert.display())
            })?;
            authority.issue(&identity, CERTIFICATE_DAYS)?;
        }
        let CredentialFiles { ca, cert, key } = files;
        Ok(SecurityConfig { ca: Some(ca), cert: Some(cert), key: Some(key), ..SecurityConfig::default() })
    }

    /// Whether a replica's process runs; logs it if it has ended by itself.
    pub(crate) fn runs(&mut self, number: u32) -> bool {
        let Some(process) = self.processes.get_mut(&number) else { return false };
        let Some(end) = process.ended() else { return true };
        if !process.stop_requested() {
            eprintln!("{end}");
        }
        self.processes.remove(&number);
        false
    }

    /// Tells a replica's process to stop; it drains first.
    pub(crate) fn request_stop(&mut self, number: u32) {
        if let Some(process) = self.processes.get_mut(&number) {
            process.request_stop();
        }
    }

    pub(crate) fn kill(&mut self, number: u32) {
        // Dropping it kills it.
        self.processes.remove(&number);
    }

    /// Tells all replicas to stop.
    pub(crate) fn stop_all(&mut self) {
        self.processes.values_mut().for_each(Process::request_stop);
    }

    /// Stops all replicas; each first finishes its work.
    pub(crate) fn stop(&mut self) {
        self.stop_all();
        self.processes.values_mut().for_each(Process::stop);
    }
}

/// The first free address by port, from the given one on; never one of `taken`.
fn free_from(first: &Address, taken: &[u16]) -> anyhow::Result<Address> {
    let ports = (first.port()..=u16::MAX).take(PORTS_TRIED_MAX.into());
    for port in ports.filter(|port| !taken.contains(port)) {
        let address: Address = format!("{}:{port}", first.host()).parse()?;
        if TcpListener::bind(address.to_string()).is_ok() {
            return Ok(address);
        }
    }
    anyhow::bail!("no port is free on {} from {} on; {PORTS_TRIED_MAX} were tried", first.host(), first.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_somebody_has_is_passed_over() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let first = Address::loopback(held.local_addr().unwrap().port());
        let found = free_from(&first, &[]).unwrap();
        assert!(found.port() > first.port(), "{found}");
        let next = free_from(&first, &[found.port()]).unwrap();
        assert!(next.port() > found.port(), "{next}");
    }

    #[test]
    fn replicas_that_do_not_listen_yet_have_different_ports() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let first = Address::loopback(held.local_addr().unwrap().port());
        let ports = Ports::default();
        let mut given: Vec<u16> = Vec::new();
        for name in ["a-0", "b-0", "a-1"] {
            given.extend(ports.give(name, [&first, &first]).unwrap().map(|address| address.port()));
        }
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), 6, "{given:?}");
        let [again, _] = ports.give("a-0", [&first, &first]).unwrap();
        assert!(given.contains(&again.port()), "it has none while it starts again");
    }
}
