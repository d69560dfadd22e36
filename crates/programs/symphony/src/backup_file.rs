//! A backup as a file: how it is read, and what is in it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use symphony_control_plane::{BACKUP_BYTES_MAX, Backup, ClusterState};
use symphony_federation::FederationState;

use crate::exit::bad_input;
use crate::inspect::events::utc;

/// Standard output, where a file is written, and standard input, where one is read.
pub(crate) const STANDARD: &str = "-";

/// The state in a backup.
#[derive(Debug)]
pub(crate) enum Content {
    Cluster(ClusterState),
    Federation(FederationState),
}

impl Content {
    /// What is in a backup, whose checksum is right.
    pub(crate) fn open(backup: &Backup) -> anyhow::Result<Self> {
        Ok(match FederationState::is_snapshot(&backup.state) {
            true => Self::Federation(symphony_federation::open(backup)?),
            false => Self::Cluster(backup.open()?),
        })
    }
}

/// Reads a backup and everything in it.
pub(crate) fn read(file: &Path) -> anyhow::Result<(Backup, Content)> {
    let named = |error: &dyn std::fmt::Display| bad_input(format!("{}: {error}", file.display()));
    let bytes = match file.as_os_str() == STANDARD {
        true => read_bounded(io::stdin().lock()),
        false => File::open(file).and_then(read_bounded),
    };
    let bytes = bytes.map_err(|error| named(&error))?;
    if bytes.len() > BACKUP_BYTES_MAX {
        return Err(named(&format!("more than {BACKUP_BYTES_MAX} bytes, which no backup has")));
    }
    let backup = Backup::decode(&bytes).map_err(|error| named(&error))?;
    let content = Content::open(&backup).map_err(|error| named(&error))?;
    Ok((backup, content))
}

/// Everything, or one byte more than a backup may have: the length of a device or a pipe is not known before.
fn read_bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(BACKUP_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What is in it, on some lines.
pub(crate) fn in_words(backup: &Backup, content: &Content) -> String {
    let Backup { cluster, release, node, index, term, .. } = backup;
    let confirmed = match backup.confirmed {
        true => "confirmed by a quorum",
        false => "NOT confirmed by a quorum: the others may have agreed on more by then",
    };
    let (whose, counts) = match content {
        Content::Cluster(state) => (
            "cluster",
            vec![
                (state.models().len(), "models"),
                (state.subclusters().len(), "sub-clusters"),
                (state.backends().len(), "backends"),
                (state.frontends().len(), "frontends"),
                (state.nodes().len(), "schedulers"),
                (state.operations().len(), "operations"),
            ],
        ),
        Content::Federation(state) => (
            "federation",
            vec![
                (state.models().len(), "models"),
                (state.clusters().len(), "clusters"),
                (state.replicas().len(), "replicas"),
                (state.operations().len(), "operations"),
            ],
        ),
    };
    let counts: Vec<_> = counts.iter().map(|(count, what)| format!("{count} {what}")).collect();
    format!(
        "{whose} {cluster}, taken by {node} at {} by its clock, release {release}\n  log index {index}, term {term}, {confirmed}\n  {}",
        utc(backup.taken_at_unix_ms),
        counts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_than_a_backup_is_not_read_to_its_end() {
        let refused = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(refused.contains("/dev/zero: more than"), "{refused}");
        assert_eq!(read_bounded(io::repeat(7)).unwrap().len(), BACKUP_BYTES_MAX + 1);
    }
}
