//! `grpc.reflection`: what is served here, for clients without our protocol files, such as grpcurl.

use symphony_protocol::inference::FILE_DESCRIPTOR_SET;
use tonic::codec::CompressionEncoding::{Deflate, Gzip};
use tonic::service::Routes;
use tonic_reflection::pb::{v1, v1alpha};
use tonic_reflection::server::{Builder, Error};

use crate::oip::limits::OPEN_MESSAGE_BYTES_MAX;

/// Both versions: clients ask for the newer one and fall back on the older one.
pub(crate) const SERVICE_NAMES: [&str; 2] =
    [v1::server_reflection_server::SERVICE_NAME, v1alpha::server_reflection_server::SERVICE_NAME];

/// The services that show the public surface; nothing of it changes while the process runs.
pub(crate) fn services() -> Routes {
    let refused = |error: &Error| tracing::error!(%error, "what is served cannot be shown by reflection");
    build().inspect_err(refused).unwrap_or_default()
}

fn build() -> Result<Routes, Error> {
    let shown = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let newer = shown().build_v1()?.max_decoding_message_size(OPEN_MESSAGE_BYTES_MAX);
    let older = shown().build_v1alpha()?.max_decoding_message_size(OPEN_MESSAGE_BYTES_MAX);
    let newer = newer.accept_compressed(Gzip).accept_compressed(Deflate);
    let older = older.accept_compressed(Gzip).accept_compressed(Deflate);
    Ok(Routes::new(newer).add_service(older).prepare())
}
