//! A traffic split as data: which version of a model or pipeline answers the requests that name none. The rules are in
//! `traffic.rs`.

use std::collections::BTreeMap;
use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};
use symphony_replicated::InvalidField;
use symphony_replicated::fields::{count, invalid};
use symphony_types::VersionedName;

use crate::limits::{TRAFFIC_VERSIONS_MAX, TRAFFIC_WEIGHT_MAX};

/// How the requests for a model or pipeline that name no version are split among its versions. Without one the latest
/// version that is ready gets all.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Weights by version; those that are not ready get nothing.
    pub weights: BTreeMap<u64, u32>,
    /// The version that gets copies of requests; their answers are dropped. Of models only.
    pub shadow: Option<Shadow>,
}

/// Copies of requests for a version on trial.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// The version on trial, which answers no client.
    pub version: u64,
    /// How many of a hundred requests are copied.
    pub percent: u32,
}

impl Traffic {
    /// The versions that it names.
    pub fn versions(&self) -> impl Iterator<Item = u64> {
        self.weights.keys().copied().chain(self.shadow.map(|shadow| shadow.version))
    }

    /// Whether it has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty() && self.shadow.is_none()
    }

    pub(crate) fn validate(&self) -> Result<(), InvalidField> {
        count("traffic.weights", self.weights.len(), 0..=TRAFFIC_VERSIONS_MAX)?;
        if let Some((version, weight)) =
            self.weights.iter().find(|(_, weight)| !(1..=TRAFFIC_WEIGHT_MAX).contains(*weight))
        {
            let reason = format!("version {version} has {weight}; expected 1 to {TRAFFIC_WEIGHT_MAX}");
            return Err(invalid("traffic.weights", &reason));
        }
        match self.shadow {
            Some(Shadow { version, .. }) if self.weights.contains_key(&version) => {
                let reason = format!("{version}, which has a weight; expected another version, or no weight for it");
                Err(invalid("traffic.shadow.version", &reason))
            }
            Some(Shadow { percent, .. }) if !(1..=100).contains(&percent) => {
                Err(invalid("traffic.shadow.percent", &format!("{percent}; expected 1 to 100")))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.weights.is_empty() {
            f.write_str("all to the latest version")?;
        }
        let total: u64 = self.weights.values().map(|&weight| u64::from(weight)).sum();
        for (place, (version, &weight)) in self.weights.iter().enumerate() {
            let percent = f64::from(weight) * 100.0 / total as f64;
            write!(f, "{}{:.4} % to version {version}", if place == 0 { "" } else { ", " }, Short(percent))?;
        }
        match self.shadow {
            Some(Shadow { version, percent }) => write!(f, ", copies of {percent} % to version {version}"),
            None => Ok(()),
        }
    }
}

/// A number without zeros at its end.
struct Short(f64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.*}", f.precision().unwrap_or(0), self.0);
        f.write_str(if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text })
    }
}

/// Whether the model that is loaded under this name is that version of `model`.
pub(crate) fn is_version(loaded_as: &str, model: &str, version: u64) -> bool {
    VersionedName::parse(loaded_as) == VersionedName { name: model, version }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_as_operators_think_of_it() {
        let shown =
            |weights: &[(u64, u32)], shadow| Traffic { weights: weights.iter().copied().collect(), shadow }.to_string();
        assert_eq!(shown(&[], None), "all to the latest version");
        assert_eq!(shown(&[(1, 19), (2, 1)], None), "95 % to version 1, 5 % to version 2");
        assert_eq!(shown(&[(1, 2), (2, 1)], None), "66.6667 % to version 1, 33.3333 % to version 2");
        let shadow = Some(Shadow { version: 3, percent: 10 });
        assert_eq!(shown(&[(2, 7)], shadow), "100 % to version 2, copies of 10 % to version 3");
    }
}
