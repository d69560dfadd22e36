//! Ids. Each is a number with its own type, so that a GPU can never be passed where a model is expected.

use std::fmt;
use std::str::FromStr;

use rkyv::{Archive, Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Archive, Serialize, Deserialize, serde::Serialize, serde::Deserialize,
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
        )]
        #[rkyv(derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash))]
        #[serde(transparent)]
        pub struct $name($inner);

        impl $name {
            /// Wraps the number.
            #[must_use]
            pub const fn new(number: $inner) -> Self {
                Self(number)
            }

            /// The number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A model, unique in its cluster and never reused.
    ModelId(u32), "m"
);
id!(
    /// A GPU (or another accelerator, or a CPU executor), unique in its cluster and never reused.
    GpuId(u32), "g"
);
id!(
    /// A sub-cluster: GPUs that all hold the same models, under one rank worker.
    SubclusterId(u32), "s"
);
id!(
    /// A scheduler replica, never reused.
    NodeId(u64), "n"
);
id!(
    /// A backend, never reused.
    BackendId(u32), "b"
);
id!(
    /// A frontend, never reused.
    FrontendId(u32), "f"
);
id!(
    /// A boot id: a fresh number per run of a process, so that a restarted process is a new one.
    BootId(u64), "boot-"
);
id!(
    /// The fencing number of a GPU's assignment: the Raft log index that granted it. It only grows (invariant C1).
    Token(u64), "t"
);
id!(
    /// A committed version of the plan. It only grows (invariant C1).
    Epoch(u64), "e"
);

/// The id of a request. It names the frontend that owns the request until the request has its one outcome (invariant
/// S3).
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[rkyv(derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash))]
pub struct RequestId {
    /// The frontend that accepted the request.
    pub frontend: FrontendId,
    /// The boot id of that frontend.
    pub boot: BootId,
    /// Sequence number of the request within that boot.
    pub sequence: u64,
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:x}/{}", self.frontend, self.boot.get(), self.sequence)
    }
}

/// A text that is no request id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no request id; expected the frontend, its boot id and a number, as in f2/9a3f/17")]
pub struct NoRequestId(String);

/// Parses the format that [`fmt::Display`] writes.
impl FromStr for RequestId {
    type Err = NoRequestId;

    fn from_str(text: &str) -> Result<Self, NoRequestId> {
        let parse = || {
            let mut parts = text.strip_prefix('f')?.split('/');
            let id = Self {
                frontend: FrontendId::new(parts.next()?.parse().ok()?),
                boot: BootId::new(u64::from_str_radix(parts.next()?, 16).ok()?),
                sequence: parts.next()?.parse().ok()?,
            };
            parts.next().is_none().then_some(id)
        };
        parse().ok_or_else(|| NoRequestId(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_is_read_as_it_is_written() {
        let id = RequestId { frontend: FrontendId::new(2), boot: BootId::new(0x9a3f), sequence: 17 };
        assert_eq!(id.to_string(), "f2/9a3f/17");
        assert_eq!("f2/9a3f/17".parse(), Ok(id));
        for wrong in ["", "2/9a3f/17", "f2/9a3f", "f2/9a3f/17/1", "f2/xyz/17", "f2/9a3f/-1", "f/1/1", "17"] {
            assert!(wrong.parse::<RequestId>().is_err(), "{wrong}");
        }
    }
}
