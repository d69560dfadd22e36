//! What a run costs this process: memory and the calling thread's CPU time.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Bytes of this process that are in physical memory now; zero where the system does not report it.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_resident(&status).unwrap_or(0)
}

fn parse_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// CPU time of the calling thread; zero where the system does not report it.
pub(crate) fn thread_cpu_time() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    if let Ok(time) = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID) {
        return time.into();
    }
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        assert_eq!(parse_resident("VmPeak:\t 9 kB\nVmRSS:\t   1234 kB\n"), Some(1234 * 1024));
        assert_eq!(parse_resident("VmRSS:\t 12 pages\n"), None);
        assert!(resident_bytes() > 100_000);
    }

    #[test]
    fn cpu_time_passes_while_working() {
        let before = thread_cpu_time();
        while thread_cpu_time() == before {
            std::hint::black_box(before);
        }
        assert!(thread_cpu_time() > before);
    }
}
