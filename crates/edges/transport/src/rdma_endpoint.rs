//! One end of an RDMA connection, as devices know it and as it is told.

use symphony_net::Endpoint;
use symphony_protocol::data::RdmaEndpoint;

/// As it is told to the other end.
pub(crate) const fn said(Endpoint { queue_pair, first_packet, mtu, lid, gid }: Endpoint) -> RdmaEndpoint {
    RdmaEndpoint { queue_pair, first_packet, mtu, lid, gid }
}

/// As a device takes it.
pub(crate) const fn heard(RdmaEndpoint { queue_pair, first_packet, mtu, lid, gid }: RdmaEndpoint) -> Endpoint {
    Endpoint { queue_pair, first_packet, mtu, lid, gid }
}
