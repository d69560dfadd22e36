//! Limits the callers of a port, in total and per address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Concurrent handshakes on one port; further callers wait in the listener's backlog.
pub const HANDSHAKES_MAX: usize = 256;

/// The part of them from one address, which strangers may share with nodes: a quarter. Further callers are refused,
/// and nodes dial again within milliseconds.
pub const HANDSHAKES_PER_PEER_MAX: usize = HANDSHAKES_MAX / 4;

/// The most concurrent callers of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerLimits {
    /// From all addresses.
    pub total: usize,
    /// From one address, which anyone may use: fewer than in total, so that it cannot take every place.
    pub per_address: usize,
}

/// Why a caller is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The port is full.
    TooMany,
    /// The limit per address is reached.
    TooManyFromThere,
    /// It did not begin a request in time, or stopped in the middle.
    Silent,
    /// It took nothing of its answer for too long.
    Stalled,
    /// It did not authenticate.
    Stranger,
}

impl Refusal {
    /// Every reason.
    pub const ALL: [Self; 5] = [Self::TooMany, Self::TooManyFromThere, Self::Silent, Self::Stalled, Self::Stranger];

    /// Its name in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::TooMany => "too_many",
            Self::TooManyFromThere => "too_many_from_there",
            Self::Silent => "silent",
            Self::Stalled => "stalled",
            Self::Stranger => "stranger",
        }
    }
}

/// The current callers of one port.
#[derive(Clone, Debug)]
pub struct Callers(Arc<Mutex<Book>>);

/// A caller's place; given back when dropped.
#[derive(Debug)]
pub struct CallerPlace {
    callers: Callers,
    address: IpAddr,
}

#[derive(Debug)]
struct Book {
    limits: CallerLimits,
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Callers {
    /// No callers yet.
    #[must_use]
    pub fn new(limits: CallerLimits) -> Self {
        Self(Arc::new(Mutex::new(Book { limits, total: 0, by_address: HashMap::new() })))
    }

    /// A place for a caller from this address.
    ///
    /// # Errors
    /// If there is none.
    pub fn take_place(&self, peer: IpAddr) -> Result<CallerPlace, Refusal> {
        let address = peer.to_canonical();
        self.book().enter(address)?;
        Ok(CallerPlace { callers: self.clone(), address })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn enter(&mut self, address: IpAddr) -> Result<(), Refusal> {
        if self.total >= self.limits.total {
            return Err(Refusal::TooMany);
        }
        let count = self.by_address.get(&address).copied().unwrap_or(0);
        if count >= self.limits.per_address {
            return Err(Refusal::TooManyFromThere);
        }
        self.by_address.insert(address, count + 1);
        self.total += 1;
        Ok(())
    }

    fn leave(&mut self, address: IpAddr) {
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            self.total -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

impl Drop for CallerPlace {
    fn drop(&mut self) {
        self.callers.book().leave(self.address);
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
        let take_place = |peer| callers.take_place(addr(peer));
        let places = [take_place("10.0.0.1").unwrap(), take_place("10.0.0.1").unwrap()];
        assert_eq!(take_place("10.0.0.1").unwrap_err(), Refusal::TooManyFromThere);
        let other = take_place("10.0.0.2").unwrap();
        assert_eq!(take_place("10.0.0.3").unwrap_err(), Refusal::TooMany);
        drop(other);
        drop(take_place("10.0.0.3").unwrap());
        drop(places);
        assert!(callers.book().by_address.is_empty() && callers.book().total == 0, "nothing is remembered of the gone");
        assert!(take_place("10.0.0.1").is_ok());
    }

    #[test]
    fn an_address_of_either_form_is_one() {
        let callers = Callers::new(CallerLimits { total: 3, per_address: 1 });
        let take_place = |peer| callers.take_place(addr(peer));
        let _one = take_place("10.0.0.1").unwrap();
        assert_eq!(take_place("::ffff:10.0.0.1").unwrap_err(), Refusal::TooManyFromThere);
        let _others = [take_place("2001:db8::1").unwrap(), take_place("2001:db8::2").unwrap()];
    }
}
