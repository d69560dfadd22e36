//! Connections between a cluster's processes: dialling, accepting, and authentication.
//!
//! Every internal port uses TLS 1.3 with certificates on both sides. A certificate names a cluster, a role and a name;
//! the caller states the role that must answer, and the listener the roles that may call. Without certificates
//! connections are plaintext, which the configuration allows on loopback only.
//!
//! Two connected processes of one host may add [rings](Rings) in shared memory.

mod authority;
mod callers;
mod carriers;
mod certificate;
mod cluster_level;
mod connection;
mod credential_files;
mod credentials;
pub mod descriptor_exchange;
mod dial_turns;
mod error;
mod fabric;
mod grpc_connection;
mod host_name;
mod http_version;
mod identity;
mod incoming;
mod net;
mod peer_info;
mod public_port;
mod public_stream;
mod public_tls;
mod refusals;
mod rings;
pub mod sockets;
mod until;

pub use authority::{Authority, Issued};
pub use callers::{CallerLimits, CallerPlace, Callers, HANDSHAKES_MAX, HANDSHAKES_PER_PEER_MAX, Refusal};
pub use carriers::{Carrier, CarrierPreference, Carriers, LinkPlace, LinkRow};
pub use certificate::CertificateFacts;
pub use cluster_level::ClusterLevel;
pub use connection::{Connection, Line, ReadHalf, WriteHalf};
pub use credential_files::{CredentialFiles, FileStamp};
pub use credentials::{Credentials, RELOAD_EVERY};
pub use dial_turns::{DIALS_AT_ONCE, DialTurn, DialTurns};
pub use error::CredentialError;
pub use fabric::{Fabric, FabricEnd, FabricReader, FabricStreams, FabricWriter, RDMA_NOT_BUILT, rdma_fabric};
pub use grpc_connection::GrpcConnection;
pub use host_name::{HostName, HostNameError};
pub use http_version::{HttpVersion, OPENING_TIMEOUT};
pub use identity::{Expected, Identity, IdentityError, Role};
pub use incoming::{Incoming, Port};
pub use net::{HANDSHAKE_TIMEOUT, Net};
pub use peer_info::PeerInfo;
pub use public_port::{PublicConnection, PublicListener, PublicPort};
pub use public_stream::CertificateNames;
pub use public_tls::{PublicTls, PublicTlsFiles};
pub use refusals::{refusals, refused};
pub use rings::{
    HANDOVER_TIMEOUT, PendingRings, RING_BYTES, RINGS_MAX, RingOffer, RingReader, RingStreams, RingWriter, Rings,
};
pub use symphony_rdma::Endpoint;

#[cfg(test)]
mod tests;
