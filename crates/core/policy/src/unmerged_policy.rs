//! Policies that give each request a batch of its own: `kairos`, and what its paper measures it against.

use std::fmt;

use crate::error::Refused;
use crate::keys::{only, refuse, write};
use crate::text::PolicyTable;

/// The largest threshold: no request has more items.
const THRESHOLD_MAX: u32 = symphony_types::PROFILE_BATCH_MAX;

/// A policy that never merges requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmergedPolicy {
    /// Kairos (HPDC 2023): requests are matched to GPUs all at once.
    Kairos {
        /// `learn`: whether it goes by latencies that it learns itself, not by profiles.
        learn: bool,
    },
    /// Ribbon, as the Kairos paper uses it: first come, first served, on the best GPU that is free.
    Ribbon,
    /// DeepRecSys's distribution, as the Kairos paper uses it: small requests to slower GPUs.
    Drs {
        /// `threshold`: requests of up to this many items go to slower GPUs; sought if there is none.
        threshold: Option<u32>,
    },
    /// Clockwork's controller without its batches, as the Kairos paper uses it.
    Clkwrk,
}

impl UnmergedPolicy {
    /// As it is written.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Kairos { .. } => "kairos",
            Self::Ribbon => "ribbon",
            Self::Drs { .. } => "drs",
            Self::Clkwrk => "clkwrk",
        }
    }

    /// The one that a table names; `clkwrk` if it names none of the others.
    pub(crate) fn chosen(table: &PolicyTable, name: &str) -> Result<Self, Refused> {
        match name {
            "kairos" => {
                only(table, &[".learn"], "only learn for policy \"kairos\"")?;
                Ok(Self::Kairos { learn: table.learn.unwrap_or(false) })
            }
            "drs" => {
                only(table, &[".threshold"], "only threshold for policy \"drs\"")?;
                match table.threshold {
                    Some(items) if items > THRESHOLD_MAX => {
                        refuse(".threshold", format!("0 to {THRESHOLD_MAX} items"), items.to_string())
                    }
                    threshold => Ok(Self::Drs { threshold }),
                }
            }
            "ribbon" => {
                only(table, &[], "no keys for policy \"ribbon\"")?;
                Ok(Self::Ribbon)
            }
            _ => {
                only(table, &[], "no keys for policy \"clkwrk\"")?;
                Ok(Self::Clkwrk)
            }
        }
    }
}

/// The canonical text: the name alone if all options are its defaults, otherwise a table.
impl fmt::Display for UnmergedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = match self {
            Self::Kairos { learn: true } => vec!["learn = true".to_owned()],
            Self::Drs { threshold: Some(items) } => vec![format!("threshold = {items}")],
            _ => Vec::new(),
        };
        write(f, self.label(), &options)
    }
}
