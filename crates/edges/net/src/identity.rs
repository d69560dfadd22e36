//! The identity of a process.

use std::fmt;
use std::str::FromStr;

use symphony_types::{is_name, looks_like_an_id};

/// The role of a process in a cluster; it determines which ports the process may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A scheduler replica; its name is its node id.
    Scheduler,
    /// A backend, under its configured name.
    Backend,
    /// A frontend, under its configured name.
    Frontend,
    /// A person or program that may change the cluster.
    Operator,
    /// A person or program that may only read.
    Viewer,
    /// The federation of the cluster: it reads, and loads and unloads models.
    Federation,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 6] =
        [Self::Scheduler, Self::Backend, Self::Frontend, Self::Operator, Self::Viewer, Self::Federation];

    /// Its word in certificates, file names and messages.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Backend => "backend",
            Self::Frontend => "frontend",
            Self::Operator => "operator",
            Self::Viewer => "viewer",
            Self::Federation => "federation",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl FromStr for Role {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        Self::ALL.into_iter().find(|role| role.label() == text).ok_or_else(|| IdentityError::Role(text.to_owned()))
    }
}

/// Why a text is not an identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// It is malformed.
    #[error("`{0}` is no identity; expected spiffe://CLUSTER/ROLE/NAME")]
    Form(String),
    /// The role does not exist.
    #[error("`{0}` is no role; expected scheduler, backend, frontend, operator, viewer or federation")]
    Role(String),
    /// A name contains invalid characters.
    #[error("`{0}` is no name; expected 1 to 63 of a-z, 0-9 and -, beginning with a letter or digit")]
    Name(String),
    /// A backend or frontend is named like an id, which commands would take for that of another process.
    #[error("`{0}` looks like the id of a process; expected a name that is not one of n, b, f and a number")]
    LooksLikeAnId(String),
}

/// The identity in a certificate: the URI `spiffe://CLUSTER/ROLE/NAME` among its alternative names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The cluster's name.
    pub cluster: String,
    /// Its role there.
    pub role: Role,
    /// Its name; a scheduler replica's is its node id.
    pub name: String,
}

impl Identity {
    /// An identity with checked names.
    ///
    /// # Errors
    /// If one of the names has characters that names do not have, or a backend or frontend is named like an id.
    pub fn new(cluster: &str, role: Role, name: &str) -> Result<Self, IdentityError> {
        for text in [cluster, name] {
            if !is_name(text) {
                return Err(IdentityError::Name(text.to_owned()));
            }
        }
        if matches!(role, Role::Backend | Role::Frontend) && looks_like_an_id(name) {
            return Err(IdentityError::LooksLikeAnId(name.to_owned()));
        }
        Ok(Self { cluster: cluster.to_owned(), role, name: name.to_owned() })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "spiffe://{}/{}/{}", self.cluster, self.role, self.name)
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let form = || IdentityError::Form(text.chars().take(256).collect());
        let parts: Vec<_> = text.strip_prefix("spiffe://").ok_or_else(form)?.splitn(4, '/').collect();
        let [cluster, role, name] = parts[..] else { return Err(form()) };
        Self::new(cluster, role.parse()?, name)
    }
}

/// The expected peer of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expected {
    /// The role that its certificate must name.
    pub role: Role,
    /// Its name, if only one process is accepted.
    pub name: Option<String>,
}

impl Expected {
    /// One process.
    #[must_use]
    pub fn named(role: Role, name: impl Into<String>) -> Self {
        Self { role, name: Some(name.into()) }
    }

    pub(crate) fn is(&self, identity: &Identity) -> bool {
        self.role == identity.role && self.name.as_ref().is_none_or(|name| *name == identity.name)
    }
}

impl From<Role> for Expected {
    fn from(role: Role) -> Self {
        Self { role, name: None }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} {name}", self.role),
            None => write!(f, "a {}", self.role),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_written_and_read() {
        let identity = Identity::new("blue", Role::Backend, "b-1").unwrap();
        assert_eq!(identity.to_string(), "spiffe://blue/backend/b-1");
        assert_eq!("spiffe://blue/backend/b-1".parse(), Ok(identity));
    }

    #[test]
    fn what_is_no_identity_is_refused() {
        for text in ["", "https://blue/backend/b", "spiffe://blue/backend", "spiffe://blue/backend/b/c"] {
            assert!(matches!(text.parse::<Identity>(), Err(IdentityError::Form(_))), "{text}");
        }
        assert_eq!("spiffe://blue/king/b".parse::<Identity>(), Err(IdentityError::Role("king".into())));
        for text in
            ["spiffe:///backend/b", "spiffe://blue/backend/", "spiffe://Blue/backend/b", "spiffe://b/backend/.."]
        {
            assert!(matches!(text.parse::<Identity>(), Err(IdentityError::Name(_))), "{text}");
        }
    }

    #[test]
    fn no_backend_or_frontend_is_named_like_the_id_of_another_process() {
        for text in ["spiffe://blue/backend/b1", "spiffe://blue/frontend/b1", "spiffe://blue/frontend/n12"] {
            assert!(matches!(text.parse::<Identity>(), Err(IdentityError::LooksLikeAnId(_))), "{text}");
        }
        for text in ["spiffe://b1/backend/b-1", "spiffe://blue/scheduler/1", "spiffe://blue/operator/b1"] {
            assert!(text.parse::<Identity>().is_ok(), "{text}");
        }
    }
}
