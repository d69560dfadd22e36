//! Who stands at a port: so many callers in all, and so many from one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A host has all addresses of such a network to itself, so they count as one.
const IPV6_NETWORK_BITS: u32 = 64;

/// How many callers a port takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerLimits {
    /// From all addresses.
    pub total: usize,
    /// From one address, from which anybody may call: fewer than in all, so that it cannot take every place there is.
    pub per_address: usize,
}

/// Why a caller is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// There are as many as the port takes.
    TooMany,
    /// There are as many from its address as the port takes from one.
    TooManyFromThere,
    /// It said nothing that a request begins with in time, or nothing more.
    Silent,
    /// It did not show that it may call.
    Stranger,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::TooMany, Self::TooManyFromThere, Self::Silent, Self::Stranger];

    /// Its name in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::TooMany => "too_many",
            Self::TooManyFromThere => "too_many_from_there",
            Self::Silent => "silent",
            Self::Stranger => "stranger",
        }
    }
}

/// The callers of one port that are there now.
#[derive(Clone, Debug)]
pub struct Callers(Arc<Mutex<Book>>);

/// A caller's place; given back when dropped.
#[derive(Debug)]
pub struct CallerPlace {
    callers: Callers,
    network: IpAddr,
}

#[derive(Debug)]
struct Book {
    limits: CallerLimits,
    total: usize,
    by_network: HashMap<IpAddr, usize>,
}

impl Callers {
    /// Nobody yet.
    #[must_use]
    pub fn new(limits: CallerLimits) -> Self {
        Self(Arc::new(Mutex::new(Book { limits, total: 0, by_network: HashMap::new() })))
    }

    /// A place for one more from there.
    ///
    /// # Errors
    /// If there is none.
    pub fn admit(&self, peer: IpAddr) -> Result<CallerPlace, Refusal> {
        let network = network_of(peer);
        self.book().enter(network)?;
        Ok(CallerPlace { callers: self.clone(), network })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn enter(&mut self, network: IpAddr) -> Result<(), Refusal> {
        if self.total >= self.limits.total {
            return Err(Refusal::TooMany);
        }
        let count = self.by_network.get(&network).copied().unwrap_or(0);
        if count >= self.limits.per_address {
            return Err(Refusal::TooManyFromThere);
        }
        self.by_network.insert(network, count + 1);
        self.total += 1;
        Ok(())
    }

    fn leave(&mut self, network: IpAddr) {
        if let Some(count) = self.by_network.get_mut(&network) {
            *count -= 1;
            self.total -= 1;
            if *count == 0 {
                self.by_network.remove(&network);
            }
        }
    }
}

impl Drop for CallerPlace {
    fn drop(&mut self) {
        self.callers.book().leave(self.network);
    }
}

fn network_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let mask = u128::MAX << (Ipv6Addr::BITS - IPV6_NETWORK_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_address_has_so_many_places_and_leaves_those_of_others() {
        let callers = Callers::new(CallerLimits { total: 3, per_address: 2 });
        let admit = |peer| callers.admit(addr(peer));
        let places = [admit("10.0.0.1").unwrap(), admit("10.0.0.1").unwrap()];
        assert_eq!(admit("10.0.0.1").unwrap_err(), Refusal::TooManyFromThere);
        let other = admit("10.0.0.2").unwrap();
        assert_eq!(admit("10.0.0.3").unwrap_err(), Refusal::TooMany);
        drop(other);
        drop(admit("10.0.0.3").unwrap());
        drop(places);
        assert!(callers.book().by_network.is_empty() && callers.book().total == 0, "nothing is remembered of the gone");
        assert!(admit("10.0.0.1").is_ok());
    }

    #[test]
    fn addresses_that_one_host_has_count_as_one() {
        let same = |one, other| network_of(addr(one)) == network_of(addr(other));
        assert!(same("2001:db8::1", "2001:db8::ffff:2") && !same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1") && !same("::ffff:10.0.0.1", "::ffff:10.0.0.2"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
    }
}
