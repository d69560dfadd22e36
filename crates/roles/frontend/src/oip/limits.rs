//! Limits of the public surface. Together they bound the memory that clients can make a frontend hold.

use std::time::Duration;

use symphony_config::{FrontendConfig, ImagesConfig};
use symphony_images::{IMAGE_BYTES_MAX, ImageLimits};

/// Most requests at once on one gRPC connection.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 1024;
/// Most requests of one `ModelStreamInfer` that run at once; the stream is not read further until one has ended.
pub const STREAM_PIPELINE_MAX: usize = 16;
/// Most bytes of a request's headers: as much as gRPC clients send by default.
pub const HEADER_BYTES_MAX: u32 = 16 << 10;
/// Most bytes of a gRPC message without tensors, such as one that asks for a model's metadata, or has it loaded.
pub const PLAIN_MESSAGE_BYTES_MAX: usize = 64 << 10;
/// The same of calls that every caller may make, with or without a key: they name a service at most.
pub const OPEN_MESSAGE_BYTES_MAX: usize = 4 << 10;
/// Most bytes of a compressed gRPC message with tensors, as it travels and as it becomes. The transport unpacks it on a
/// thread that serves connections, which must not stand still for longer than some milliseconds; REST unpacks larger
/// ones on threads for such work.
pub const PACKED_MESSAGE_BYTES_MAX: usize = 4 << 20;
/// A gRPC answer of more bytes is not compressed, for the same reason.
pub const PACKED_ANSWER_BYTES_MAX: usize = 128 << 10;
/// Unpacked requests over REST in flight take no more memory than this many of the largest requests; those of a tenant
/// half of it.
pub const UNPACKED_REQUESTS_MAX: usize = 16;
/// A call of reflection ends after this time, whatever it still asks.
pub const REFLECTION_MAX: Duration = Duration::from_secs(30);
/// A client must send the head of a request within this time of the previous one; also closes idle REST connections.
/// For the first one [`OPENING_TIMEOUT`](symphony_net::OPENING_TIMEOUT) is shorter.
pub const HEADER_READ_MAX: Duration = Duration::from_secs(75);
/// A client must send the body of a request within this time.
pub const BODY_READ_MAX: Duration = Duration::from_secs(30);
/// The wait that a refusal names before the client tries again.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The limits that a deployment can choose. The configuration's defaults apply where it chooses none.
///
/// [`InferenceService::begin_request`](super::InferenceService::begin_request) limits the requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of one request.
    pub request_bytes_max: usize,
    /// Most connections at once, over gRPC and over REST each; further ones are closed, so that their clients try
    /// another frontend.
    pub connections_max: usize,
    /// Of these from one address.
    pub connections_per_address_max: usize,
    /// What a picture may cost.
    pub images: ImageLimits,
}

impl Limits {
    /// The limits of a configuration.
    #[must_use]
    pub fn of(config: &FrontendConfig) -> Self {
        Self {
            request_bytes_max: usize::try_from(config.request_bytes_max).unwrap_or(usize::MAX),
            connections_max: config.connections_max as usize,
            connections_per_address_max: config.connections_per_address_max as usize,
            images: image_limits(&config.images),
        }
    }
}

impl Default for Limits {
    /// The configuration's defaults.
    fn default() -> Self {
        Self::of(&FrontendConfig::default())
    }
}

/// What a picture may cost here.
pub(crate) fn image_limits(config: &ImagesConfig) -> ImageLimits {
    ImageLimits { bytes_max: IMAGE_BYTES_MAX, pixels_max: config.pixels_max }
}
