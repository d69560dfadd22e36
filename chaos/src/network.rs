//! How the processes of a run reach each other, and how that is taken from them.

mod namespaces;
mod proxies;
mod proxy;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail, ensure};
use symphony_config::Address;
use symphony_testkit::ChildSpec;

pub(crate) use namespaces::Namespaces;
pub(crate) use proxies::Proxies;
pub(crate) use proxy::{OneWay, Proxy};

use crate::cluster::{Process, Processes};
use crate::scenario::Links;

/// The faults of links now, by source and destination. Links that are not listed work.
pub(crate) type Troubles = BTreeMap<(Process, Process), OneWay>;

/// First port that is given. All are below those that the system gives to callers.
const FIRST_PORT: u16 = 7000;
/// The last one.
const LAST_PORT: u16 = 30_000;

/// A fresh port at an address of loopback that belongs to this program alone: nobody's dial, nobody's test and no other
/// run of this program can take it before the process that it is for has bound it.
pub(crate) fn own_loopback() -> Result<Address> {
    static NEXT: AtomicU16 = AtomicU16::new(FIRST_PORT);
    let port = NEXT.fetch_add(1, Ordering::Relaxed);
    ensure!((FIRST_PORT..=LAST_PORT).contains(&port), "this program has used up its ports");
    // Process ids have 22 bits; 127.0.0.0/8 has 24, of which the smallest are in everybody's use.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ok(format!("127.{}.{middle}.{low}:{port}", high + 64).parse()?)
}

/// The network of one run. Dropping it removes whatever it made.
#[derive(Debug)]
pub(crate) enum Network {
    /// Loopback.
    Direct,
    Namespaces(Namespaces),
    Proxied(Proxies),
}

impl Network {
    /// Makes what the scenario asks for.
    pub(crate) fn new(links: Links, processes: &Processes) -> Result<Self> {
        Ok(match links {
            Links::Direct => Self::Direct,
            Links::Namespaces => Self::Namespaces(Namespaces::new(processes)?),
            Links::Proxied => Self::Proxied(Proxies::new(processes)),
            Links::Cuttable => match Namespaces::new(processes) {
                Ok(namespaces) => Self::Namespaces(namespaces),
                Err(why) => {
                    eprintln!("no network namespaces ({why:#}); links go through the fault proxy");
                    Self::Proxied(Proxies::new(processes))
                }
            },
        })
    }

    /// For reports.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Namespaces(_) => "namespaces",
            Self::Proxied(_) => "proxied",
        }
    }

    /// A fresh address of a process, at which it listens.
    pub(crate) fn address(&mut self, process: Process) -> Result<Address> {
        match self {
            Self::Namespaces(namespaces) => namespaces.address(process),
            Self::Direct | Self::Proxied(_) => own_loopback(),
        }
    }

    /// Puts what stands between processes before an address; returns the address that other processes dial for it.
    pub(crate) async fn stand_before(&mut self, owner: Process, address: &Address) -> Result<Vec<(Process, Address)>> {
        match self {
            Self::Proxied(proxies) => proxies.stand_before(owner, address).await,
            Self::Direct | Self::Namespaces(_) => Ok(Vec::new()),
        }
    }

    /// This process, started where this network has it.
    pub(crate) fn place(&self, process: Process, spec: ChildSpec) -> Result<ChildSpec> {
        match self {
            Self::Namespaces(namespaces) => namespaces.place(process, spec),
            Self::Direct | Self::Proxied(_) => Ok(spec),
        }
    }

    /// Applies `troubles` to the links, to all at once as far as possible.
    pub(crate) fn set(&mut self, troubles: &Troubles) -> Result<()> {
        match self {
            Self::Direct => bail!("links of this scenario are direct: nothing can come between them"),
            Self::Namespaces(namespaces) => namespaces.set(troubles),
            Self::Proxied(proxies) => {
                proxies.set(troubles);
                Ok(())
            }
        }
    }

    /// Packets dropped, or bytes and connections held, slowed or harmed, so far: a trouble that touches nothing is no
    /// trouble.
    pub(crate) fn touched(&self) -> Result<u64> {
        match self {
            Self::Direct => Ok(0),
            Self::Namespaces(namespaces) => namespaces.dropped(),
            Self::Proxied(proxies) => Ok(proxies.touched()),
        }
    }
}
