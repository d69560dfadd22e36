//! The limit on open files of this process: each connection is one, and shells and service managers often set 1024.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Fewer do not suffice for a process of a large cluster, which may have a connection to each of 4096 backends.
const OPEN_FILES_FEW: u64 = 8192;

/// Raises the limit as far as possible without privileges. Returns the new limit; `None` if it is unknown.
pub(super) fn allow_all() -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    if soft >= hard || setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_err() {
        return Some(soft);
    }
    Some(hard)
}

/// Raises the limit as far as possible, and warns if it may not suffice.
pub(super) fn allow_all_or_warn() {
    if let Some(allowed) = allow_all().filter(|&allowed| allowed < OPEN_FILES_FEW) {
        tracing::warn!(
            allowed,
            "few files may be open at a time, and each connection is one; a large cluster needs {OPEN_FILES_FEW} \
             (hard limit of open files: LimitNOFILE of systemd, ulimit -Hn)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_gives_is_raised_to_what_the_system_allows() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 256.min(hard), hard).unwrap();
        assert_eq!(allow_all(), Some(hard));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
        assert_eq!(allow_all(), Some(hard), "again");
    }
}
