//! The defaults.

use toml::Table;

/// Every key with its default: the only place for defaults, and the schema of all layers.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// The defaults as a table.
pub(crate) fn defaults() -> Table {
    DEFAULTS.parse().expect("the defaults are checked by a test")
}
