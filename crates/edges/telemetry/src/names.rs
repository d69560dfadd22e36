//! The metrics that every process has.

use crate::{Kind, MetricName, Unit};

/// Broken invariants; any value above 0 is a bug.
pub const INVARIANT_VIOLATIONS: MetricName = MetricName {
    name: "symphony_invariant_violations_total",
    help: "Violations of a named invariant; above 0 is a bug",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["invariant"],
};

/// Version and role.
pub const BUILD: MetricName = MetricName {
    name: "symphony_build_info",
    help: "Version and role of this process",
    kind: Kind::Info,
    unit: Unit::None,
    labels: &["version", "role"],
};

/// When the process began.
pub const PROCESS_START: MetricName = MetricName {
    name: "symphony_process_start_time_seconds",
    help: "When this process began to serve metrics, in seconds since 1970",
    kind: Kind::Gauge,
    unit: Unit::Seconds,
    labels: &[],
};

/// Processor time.
pub const PROCESS_CPU: MetricName = MetricName {
    name: "symphony_process_cpu_seconds_total",
    help: "Processor time used, user and system",
    kind: Kind::Counter,
    unit: Unit::Seconds,
    labels: &[],
};

/// Resident memory of the process, as the kernel counts it.
pub const PROCESS_MEMORY: MetricName = MetricName {
    name: "symphony_process_resident_memory_bytes",
    help: "Memory resident now",
    kind: Kind::Gauge,
    unit: Unit::Bytes,
    labels: &[],
};

/// Threads of the process, as the kernel counts them.
pub const PROCESS_THREADS: MetricName = MetricName {
    name: "symphony_process_threads",
    help: "Threads now",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &[],
};

/// File descriptors.
pub const PROCESS_FILES: MetricName = MetricName {
    name: "symphony_process_open_files",
    help: "File descriptors open now, sockets included",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &[],
};

/// Callers that were turned away.
pub const CONNECTIONS_REFUSED: MetricName = MetricName {
    name: "symphony_connections_refused_total",
    help: "Connections that were turned away or ended, by port: too many of them, silent callers, strangers",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["port", "reason"],
};

/// Every metric of this file.
pub const ALL: [MetricName; 8] = [
    INVARIANT_VIOLATIONS,
    BUILD,
    PROCESS_START,
    PROCESS_CPU,
    PROCESS_MEMORY,
    PROCESS_THREADS,
    PROCESS_FILES,
    CONNECTIONS_REFUSED,
];
