//! Limits of the gRPC ports of control surfaces: a cluster's and a federation's.

/// Concurrent calls on one connection; a process needs a handful.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 256;

/// Bytes of a call's headers.
pub const HEADER_BYTES_MAX: u32 = 16 << 10;
