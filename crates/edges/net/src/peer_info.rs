//! Who is at the other end of a connection.

use std::net::SocketAddr;

use crate::identity::{Identity, Role};

/// The peer of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its address.
    pub addr: SocketAddr,
    /// The identity in its certificate; none on a plaintext connection.
    pub identity: Option<Identity>,
}

impl PeerInfo {
    /// The caller of a gRPC request.
    ///
    /// # Errors
    /// If the server does not use [`Incoming`](crate::Incoming) connections: then callers are unknown, and all are
    /// refused.
    pub fn of<T>(request: &tonic::Request<T>) -> Result<Self, tonic::Status> {
        let peer = request.extensions().get::<Self>().cloned();
        peer.ok_or_else(|| tonic::Status::unauthenticated("the caller was not identified"))
    }

    /// Whether this peer may act as `name` in `role`. On plaintext connections all may.
    #[must_use]
    pub fn may_be(&self, role: Role, name: &str) -> bool {
        self.identity.as_ref().is_none_or(|identity| identity.role == role && identity.name == name)
    }

    /// Whether this peer has one of the roles. On plaintext connections all have.
    #[must_use]
    pub fn has_role(&self, roles: &[Role]) -> bool {
        self.identity.as_ref().is_none_or(|identity| roles.contains(&identity.role))
    }
}

impl std::fmt::Display for PeerInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.identity {
            Some(identity) => write!(f, "{} {} at {}", identity.role, identity.name, self.addr),
            None => self.addr.fmt(f),
        }
    }
}
