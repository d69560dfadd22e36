//! What a process uses, by the kernel's word.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// The unit of processor time in `/proc`, on every Linux that Symphony runs on.
const TICK: Duration = Duration::from_millis(10);

/// A process's use of the machine up to a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    at: Instant,
    cpu: Duration,
    pub(super) rss_mib: u64,
}

impl Usage {
    pub(super) fn of(pid: u32) -> Result<Self> {
        let read = |what: &str| {
            let path = format!("/proc/{pid}/{what}");
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let cpu = cpu_of(&read("stat")?).context("/proc/PID/stat has no times")?;
        let rss_mib = rss_mib_of(&read("status")?).context("/proc/PID/status has no VmRSS")?;
        Ok(Self { at: Instant::now(), cpu, rss_mib })
    }

    /// The share of one core since `before`, in per cent.
    pub(super) fn cpu_percent_since(&self, before: &Self) -> f64 {
        let took = (self.at - before.at).as_secs_f64();
        100.0 * (self.cpu.saturating_sub(before.cpu)).as_secs_f64() / took
    }
}

/// utime and stime, the 14th and 15th field; the second one is a name in parentheses that may hold anything.
fn cpu_of(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut times = rest.split_whitespace().skip(11).map_while(|ticks| ticks.parse::<u32>().ok());
    Some(TICK * (times.next()? + times.next()?))
}

fn rss_mib_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "71 (a) b (c)) S 1 71 71 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 12345 1000 200";
        assert_eq!(cpu_of(stat), Some(Duration::from_secs(3)));
        assert_eq!(cpu_of("71 (a) S 1 71"), None);
        assert_eq!(rss_mib_of("Name:\ta\nVmRSS:\t  204800 kB\n"), Some(200));
        assert_eq!(rss_mib_of("Name:\ta\n"), None);
    }

    #[test]
    fn a_process_that_works_uses_more_than_one_that_sleeps() {
        let begun = Usage::of(std::process::id()).unwrap();
        let until = Instant::now() + Duration::from_millis(200);
        while Instant::now() < until {
            std::hint::black_box(until);
        }
        let now = Usage::of(std::process::id()).unwrap();
        assert!(now.cpu > begun.cpu && now.cpu_percent_since(&begun) > 0.0 && now.rss_mib > 0);
    }
}
