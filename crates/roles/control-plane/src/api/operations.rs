//! Turns operators' calls into operations: action, actor, id and time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use symphony_cluster_state::{Action, Command, Operation};
use symphony_net::PeerInfo;
use symphony_types::{BootId, OperationId};
use tonic::Status;

use crate::config::WallClock;

/// The actor on a port that requires no certificates.
const INSECURE: &str = "insecure";

/// Replaces the actor of a forwarded command if its sender has no certificate: then the actor is unknown.
pub(crate) fn set_insecure_actor(peer: &PeerInfo, command: &mut Command) {
    if let (None, Command::Operate(operation)) = (&peer.identity, command) {
        INSECURE.clone_into(&mut operation.actor);
    }
}

/// The origin of an operation: the actor, the time and the id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperationOrigin {
    pub(crate) id: OperationId,
    /// As [`Operation::actor`].
    pub(crate) actor: String,
    pub(crate) at_unix_ms: u64,
}

/// Makes operations. Clones make different ones.
#[derive(Clone, Debug)]
pub(crate) struct Operations {
    boot: BootId,
    made: Arc<AtomicU64>,
    wall_clock: WallClock,
}

impl Operations {
    pub(crate) fn new(boot: BootId, wall_clock: WallClock) -> Self {
        Self { boot, made: Arc::default(), wall_clock }
    }

    /// An operation that a client asks this replica for. The actor comes from the certificate of the connection, never
    /// from the message.
    ///
    /// # Errors
    /// If the id is malformed. For an empty id this replica makes one.
    pub(crate) fn client_operation(&self, peer: &PeerInfo, id: &str, action: Action) -> Result<Operation, Status> {
        let OperationOrigin { id, actor, at_unix_ms } = self.origin(peer, id)?;
        Ok(Operation { id, actor, at_unix_ms, avoid: None, action })
    }

    /// The actor, by the certificate of the connection.
    ///
    /// # Errors
    /// As [`client_operation`](Self::client_operation).
    pub(crate) fn origin(&self, peer: &PeerInfo, id: &str) -> Result<OperationOrigin, Status> {
        let id = match id {
            "" => self.fresh_id(),
            id => id.parse().map_err(|error| Status::invalid_argument(format!("operation_id: {error}")))?,
        };
        let actor = match &peer.identity {
            Some(identity) => format!("{}/{}", identity.role, identity.name),
            None => INSECURE.to_owned(),
        };
        Ok(OperationOrigin { id, actor, at_unix_ms: (self.wall_clock)() })
    }

    /// The actor that another replica names. Only replicas may do so; without certificates the actor is unknown.
    ///
    /// # Errors
    /// As [`client_operation`](Self::client_operation).
    pub(crate) fn carried(&self, peer: &PeerInfo, id: &str, actor: &str) -> Result<OperationOrigin, Status> {
        let origin = self.origin(peer, id)?;
        match peer.identity {
            Some(_) => Ok(OperationOrigin { actor: actor.to_owned(), ..origin }),
            None => Ok(origin),
        }
    }

    /// One step of an operation, under the same actor.
    pub(crate) fn step(&self, of: &Operation, action: Action) -> Operation {
        let (actor, at_unix_ms) = (of.actor.clone(), (self.wall_clock)());
        Operation { id: self.fresh_id(), actor, at_unix_ms, avoid: None, action }
    }

    /// The random number of this boot, and a count: as unique as 128 random bits, and deterministic in a simulation.
    fn fresh_id(&self) -> OperationId {
        let count = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        OperationId::new(u128::from(self.boot.get()) << 64 | u128::from(count))
    }
}

#[cfg(test)]
mod tests {
    use symphony_net::{Identity, Role};

    use super::*;

    fn unload() -> Action {
        Action::UnloadModel { name: "m".into() }
    }

    #[test]
    fn the_certificate_says_who_asks_and_the_caller_or_else_the_replica_which_operation_it_is() {
        let operations = Operations::new(BootId::new(7), || 42);
        let identity = Identity::new("blue", Role::Operator, "ann").ok();
        let ann = PeerInfo { addr: ([127, 0, 0, 1], 1).into(), identity };
        let nobody = PeerInfo { identity: None, ..ann };

        let named = operations.client_operation(&ann, &"ab".repeat(16), unload()).unwrap();
        assert_eq!(named.id.to_string(), "ab".repeat(16));
        assert_eq!((named.actor.as_str(), named.at_unix_ms), ("operator/ann", 42));

        let one = operations.client_operation(&nobody, "", unload()).unwrap();
        let other = operations.client_operation(&nobody, "", unload()).unwrap();
        assert_eq!(one.actor, "insecure");
        assert_eq!((one.id.get(), other.id.get()), (7 << 64 | 1, 7 << 64 | 2));

        let step = operations.step(&named, unload());
        assert_eq!((step.actor.as_str(), step.id.get()), ("operator/ann", 7 << 64 | 3));

        let mut carried = Command::Operate(named.clone());
        set_insecure_actor(&ann, &mut carried);
        assert_eq!(carried, Command::Operate(named.clone()));
        set_insecure_actor(&nobody, &mut carried);
        assert_eq!(carried, Command::Operate(Operation { actor: "insecure".into(), ..named }));

        let status = operations.client_operation(&ann, "latest", unload()).unwrap_err();
        assert!(status.message().starts_with("operation_id: `latest` is no operation id"), "{status}");
    }
}
