//! The model repository, as clients list it and have its models loaded.

pub(crate) mod repository_desk;
pub(crate) mod repository_listing;
