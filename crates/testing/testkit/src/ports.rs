//! Ports that no process listens on.

use std::net::TcpListener;

use anyhow::{Context as _, Result, ensure};

/// How many ports one call gives: each is a socket held open until all are found.
pub const PORTS_MAX: usize = 256;

/// `n` different TCP ports on loopback that were free a moment ago.
///
/// The operating system chooses them while all are held at once, so they differ. Another process may still take one
/// before the test does; a process that fails to bind says so by name, and ephemeral ports are not handed out again
/// until the whole range has been.
///
/// # Errors
/// If `n` is more than [`PORTS_MAX`] or the system has no port left.
pub fn free_ports(n: usize) -> Result<Vec<u16>> {
    ensure!(n <= PORTS_MAX, "{n} ports asked for; at most {PORTS_MAX} are given at once");
    let held: Vec<_> =
        (0..n).map(|_| TcpListener::bind("127.0.0.1:0").context("no free port on 127.0.0.1")).collect::<Result<_>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ports_differ_and_can_be_bound() {
        let ports = free_ports(32).unwrap();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 32);
        TcpListener::bind(("127.0.0.1", ports[7])).unwrap();
        assert!(free_ports(PORTS_MAX + 1).is_err());
    }
}
