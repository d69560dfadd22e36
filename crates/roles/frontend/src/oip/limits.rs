//! Limits of the public surface. Together they bound the memory that clients can make a frontend hold.

use std::time::Duration;

use symphony_images::ImageLimits;

/// Most bytes of one request: a batch of 32 images of 3×512×512 in FP32 is 96 MiB and must be split, a batch of
/// 32 of 3×224×224 is 18.4 MiB and passes. Below the 64 MiB that a frame to a backend may hold.
pub const REQUEST_BYTES_MAX: usize = 32 << 20;
/// Most requests that are read, checked or waited for at once, over gRPC and over REST each. A frontend of
/// 20 000 requests a second and an SLO of 100 ms holds 2 000; beyond four times that it has lost its schedulers.
pub const REQUESTS_IN_FLIGHT_MAX: usize = 8192;
/// Most connections at once, over gRPC and over REST each; further ones are closed, so that their clients try another frontend.
pub const CONNECTIONS_MAX: usize = 4096;
/// Of these so many from one address: half, so that one host cannot take them all. A client over REST may have one for each request in
/// flight, and a proxy may be the address of all clients.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = CONNECTIONS_MAX / 2;
/// Most requests at once on one gRPC connection.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 1024;
/// Most requests of one `ModelStreamInfer` that run at once; the stream is not read further until one has ended.
pub const STREAM_PIPELINE_MAX: usize = 16;
/// Most bytes of a request's headers: as much as gRPC clients send by default.
pub const HEADER_BYTES_MAX: u32 = 16 << 10;
/// A client must send the head of a request within this time of the one before; also closes idle REST connections. For the first one
/// [`FIRST_WORDS_WITHIN`](symphony_net::FIRST_WORDS_WITHIN) is shorter.
pub const HEADER_READ_MAX: Duration = Duration::from_secs(75);
/// A client must send the body of a request within this time.
pub const BODY_READ_MAX: Duration = Duration::from_secs(30);
/// What a refused client is told to wait before it tries again.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The limits that a deployment can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of one request; see [`REQUEST_BYTES_MAX`].
    pub request_bytes_max: usize,
    /// Most requests at once; see [`REQUESTS_IN_FLIGHT_MAX`].
    pub requests_in_flight_max: usize,
    /// Most connections at once; see [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Of these from one address; see [`CONNECTIONS_PER_ADDRESS_MAX`].
    pub connections_per_address_max: usize,
    /// What a picture may cost.
    pub images: ImageLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_bytes_max: REQUEST_BYTES_MAX,
            requests_in_flight_max: REQUESTS_IN_FLIGHT_MAX,
            connections_max: CONNECTIONS_MAX,
            connections_per_address_max: CONNECTIONS_PER_ADDRESS_MAX,
            images: ImageLimits::default(),
        }
    }
}
