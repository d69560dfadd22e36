//! The links that feed the workers: frontends on one side, backends on the other.

pub(crate) mod backend;
pub(crate) mod frontend;
