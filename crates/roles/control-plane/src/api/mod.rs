//! The control port: authorization, `symphony.v1.Control` as any replica serves it, and the published view.

pub(crate) mod authorize;
pub(crate) mod backup;
pub(crate) mod convert;
pub(crate) mod explain;
pub(crate) mod operations;
pub(crate) mod publish;
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod status;
pub(crate) mod view;
pub(crate) mod watches;
