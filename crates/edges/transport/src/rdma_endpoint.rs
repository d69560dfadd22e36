//! One end of an RDMA connection: the device's form and the form on the wire.

use symphony_net::Endpoint;
use symphony_protocol::data::RdmaEndpoint;

/// The form on the wire.
pub(crate) const fn to_wire(Endpoint { queue_pair, first_packet, mtu, lid, gid }: Endpoint) -> RdmaEndpoint {
    RdmaEndpoint { queue_pair, first_packet, mtu, lid, gid }
}

/// The device's form.
pub(crate) const fn from_wire(RdmaEndpoint { queue_pair, first_packet, mtu, lid, gid }: RdmaEndpoint) -> Endpoint {
    Endpoint { queue_pair, first_packet, mtu, lid, gid }
}
