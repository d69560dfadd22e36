//! Releases that work together, and what a cluster writes while they do.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};

/// The feature level of a cluster: which formats its processes write. A process reads those of all its levels, and
/// writes those of its cluster's, which one command raises when every process knows the next one
/// (docs/adr/0041-neighbouring-releases.md).
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u16);

/// What is written at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    /// The first release that knows the level.
    pub since: &'static str,
    /// Version of frames.
    pub frames: u16,
    /// Version of commands, log entries, answers and snapshots of a cluster's state. Each level has its own: the first
    /// entry of a log tells the level at which the cluster was founded.
    pub state: u16,
}

/// By level, from [`Level::OLDEST_READ`] on.
const FORMATS: [Formats; 3] = [
    Formats { since: "0.1.0", frames: 12, state: 9 },
    Formats { since: "0.2.0", frames: 13, state: 10 },
    Formats { since: "0.3.0", frames: 13, state: 11 },
];

impl Level {
    /// The oldest level whose logs and snapshots are read: a log holds what is older than the last raise until it is
    /// compacted.
    pub const OLDEST_READ: Self = Self(1);
    /// The newest level that this release knows: its own.
    pub const NEWEST: Self = Self(Self::OLDEST_READ.0 + FORMATS.len() as u16 - 1);
    /// The oldest level of a cluster in which this release takes part: that of the release before.
    pub const OLDEST: Self = Self(Self::NEWEST.0 - 1);

    /// The first level at which the state has policies of sub-clusters.
    pub const WITH_POLICIES: Self = Self(3);
    /// The first level at which the state has pipelines.
    pub const WITH_PIPELINES: Self = Self(3);

    /// The first level at which the state has cut points of models, and families of those that share a trunk.
    pub const WITH_FAMILIES: Self = Self(3);

    /// The level of that number.
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The level in a message. Releases from before there were levels sent none, which reads as 0.
    #[must_use]
    pub fn from_message(number: u32) -> Self {
        Self(u16::try_from(number).unwrap_or(u16::MAX).max(1))
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Whether this release takes part in a cluster at it.
    #[must_use]
    pub fn is_known(self) -> bool {
        (Self::OLDEST..=Self::NEWEST).contains(&self)
    }

    /// Whether this release reads a state at it.
    #[must_use]
    pub fn is_read(self) -> bool {
        (Self::OLDEST_READ..=Self::NEWEST).contains(&self)
    }

    /// What is written at it; of a level that this release does not read, at the nearest that it does.
    #[must_use]
    pub const fn formats(self) -> Formats {
        let newest = FORMATS.len() - 1;
        let at = self.0.saturating_sub(Self::OLDEST_READ.0) as usize;
        FORMATS[if at < newest { at } else { newest }]
    }

    /// The level at which commands have that version; none if this release knows none.
    #[must_use]
    pub fn of_state(version: u16) -> Option<Self> {
        let at = FORMATS.iter().position(|formats| formats.state == version)?;
        Some(Self(Self::OLDEST_READ.0 + at as u16))
    }
}

/// The oldest: no process writes a newer one before the cluster has raised its level.
impl Default for Level {
    fn default() -> Self {
        Self::OLDEST
    }
}

impl fmt::Display for Level {
    /// With the first release that knows it, if this one does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_known() {
            true => write!(f, "{} (release {})", self.0, self.formats().since),
            false => self.0.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_release_knows_its_own_level_and_the_one_before() {
        assert_eq!(Level::NEWEST.get() - Level::OLDEST.get(), 1, "a release works one level back");
        assert!(Level::OLDEST_READ <= Level::OLDEST && Level::OLDEST_READ.is_read(), "it reads at least as far back");
        assert_eq!(Level::OLDEST_READ.formats(), FORMATS[0]);
        assert_eq!(Level::NEWEST.formats(), FORMATS[FORMATS.len() - 1]);
        let (major_minor, _) = env!("CARGO_PKG_VERSION").rsplit_once('.').unwrap();
        let (since, _) = Level::NEWEST.formats().since.rsplit_once('.').unwrap();
        assert_eq!(since, major_minor, "each minor release has its level: see the ADR for what to add");
    }

    #[test]
    fn every_level_has_a_version_of_the_log_of_its_own() {
        for pair in FORMATS.windows(2) {
            assert!(pair[0].state < pair[1].state && pair[0].frames <= pair[1].frames, "{pair:?}");
        }
        for level in [Level::OLDEST_READ, Level::OLDEST, Level::NEWEST] {
            assert_eq!(Level::of_state(level.formats().state), Some(level));
        }
        assert_eq!(Level::of_state(Level::NEWEST.formats().state + 1), None);
    }

    #[test]
    fn who_tells_no_level_is_of_the_first_and_what_is_unknown_has_no_release() {
        assert_eq!(
            [Level::from_message(0), Level::from_message(1), Level::from_message(1 << 20)].map(Level::get),
            [1, 1, u16::MAX]
        );
        let next = Level::new(Level::NEWEST.get() + 1);
        assert!(!next.is_known() && Level::NEWEST.is_known());
        assert_eq!(next.formats(), Level::NEWEST.formats());
        assert_eq!((next.to_string(), Level::new(2).to_string()), ("4".to_owned(), "2 (release 0.2.0)".to_owned()));
    }
}
