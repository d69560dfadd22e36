//! The operating system's data on this process, read at each scrape.

use std::fmt;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::{MetricName, names};

/// The unit of times in `/proc/PID/stat`: 100 per second for programs, whatever the kernel's own tick is.
const USER_TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug)]
pub(crate) struct ProcessCollector {
    started_s: f64,
}

/// What one reading gave; on systems without `/proc` nothing, and then nothing is exported.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    cpu_s: f64,
    threads: u64,
    resident_bytes: u64,
}

impl ProcessCollector {
    pub(crate) fn new() -> Self {
        Self { started_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64()) }
    }
}

impl Reading {
    /// Reads `/proc/PID/stat` and `/proc/PID/status` of the process itself.
    fn of(stat: &str, status: &str) -> Option<Self> {
        // The second field is the program's name in brackets, which may hold spaces and brackets itself.
        let fields: Vec<_> = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
        // Counted from the third field, `state`: utime is the 14th of all, stime the 15th, num_threads the 20th.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let resident_kib: u64 = kib.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(Self {
            cpu_s: (number(14)? + number(15)?) as f64 / USER_TICKS_PER_SECOND,
            threads: number(20)?,
            resident_bytes: resident_kib * 1024,
        })
    }

    fn now() -> Option<Self> {
        let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).ok();
        Self::of(&read("stat")?, &read("status")?)
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        fn put(encoder: &mut DescriptorEncoder<'_>, name: &MetricName, metric: &impl EncodeMetric) -> fmt::Result {
            let family = encoder.encode_descriptor(name.bare(), name.help, None, metric.metric_type())?;
            metric.encode(family)
        }
        put(&mut encoder, &names::PROCESS_START, &ConstGauge::new(self.started_s))?;
        if let Some(reading) = Reading::now() {
            put(&mut encoder, &names::PROCESS_CPU, &ConstCounter::new(reading.cpu_s))?;
            put(&mut encoder, &names::PROCESS_MEMORY, &ConstGauge::new(reading.resident_bytes as i64))?;
            put(&mut encoder, &names::PROCESS_THREADS, &ConstGauge::new(reading.threads as i64))?;
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            put(&mut encoder, &names::PROCESS_FILES, &ConstGauge::new(files.count() as i64))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_strange_name_is_read_right_and_rubbish_is_nothing() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 1 2 3 4 250 50 0 0 20 0 7 0 100 1 2 3";
        let status = "Name:\ta\nVmRSS:\t  2048 kB\nThreads:\t7\n";
        let reading = Reading::of(stat, status).unwrap();
        assert_eq!(reading, Reading { cpu_s: 3.0, threads: 7, resident_bytes: 2 << 20 });
        assert_eq!(Reading::of("42 (a", status), None);
        assert_eq!(Reading::of(stat, "VmRSS: many kB"), None);
        assert_eq!(Reading::of("42 (a) S 1", status), None);
    }
}
