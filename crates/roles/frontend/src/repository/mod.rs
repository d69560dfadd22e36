//! The model repository, as clients list it and have its models loaded.

pub(crate) mod repository_listing;
pub(crate) mod repository_service;
