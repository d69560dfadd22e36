//! Ports that no process listens on.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, ensure};

/// How many ports one call gives: each is a socket held open until all are found.
pub const PORTS_MAX: usize = 256;

/// All are below those that Linux gives to clients and to listeners that ask for any, by the thousand in a run of all
/// tests: one of those could take a port before the process that it is for has started.
const FIRST: u32 = 10_000;
/// Ports of each test that runs at the same time.
const OF_A_TEST: u32 = 2_000;
/// This many tests at the same time have ports of their own.
const TESTS: u32 = 11;

/// `n` different TCP ports on loopback that were free a moment ago.
///
/// Up to eleven tests that nextest runs at the same time get different ones, and so do calls of one process until all
/// have been given. Another process may still take one before the test does; a process that fails to bind says so by
/// name.
///
/// # Errors
/// If `n` is more than [`PORTS_MAX`] or no such port is left.
pub fn free_ports(n: usize) -> Result<Vec<u16>> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    ensure!(n <= PORTS_MAX, "{n} ports asked for; at most {PORTS_MAX} are given at once");
    let slot = std::env::var("NEXTEST_TEST_GLOBAL_SLOT").ok().and_then(|slot| slot.parse().ok()).unwrap_or(0_u32);
    let first = FIRST + slot % TESTS * OF_A_TEST;
    // Another run of tests at the same time begins elsewhere.
    let start = std::process::id() % OF_A_TEST * PORTS_MAX as u32;
    let free = (0..OF_A_TEST).filter_map(|_| {
        let port = first + (start + GIVEN.fetch_add(1, Ordering::Relaxed)) % OF_A_TEST;
        TcpListener::bind((Ipv4Addr::LOCALHOST, u16::try_from(port).ok()?)).ok()
    });
    let held: Vec<_> = free.take(n).collect();
    ensure!(held.len() == n, "got {} free ports of {OF_A_TEST} from {first} on; expected {n}", held.len());
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

    #[test]
    fn calls_of_one_test_have_different_ports_and_none_that_clients_get() {
        let (one, other) = (free_ports(8).unwrap(), free_ports(8).unwrap());
        assert!(one.iter().all(|port| !other.contains(port)), "{one:?} {other:?}");
        assert!(one.iter().chain(&other).all(|&port| (10_000..32_000).contains(&u32::from(port))), "{one:?} {other:?}");
    }
}
