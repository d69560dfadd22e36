//! `symphony keys`.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key for a tenant: print it, and the line for the file of tenants (frontend.tenants). The key is shown
    /// only once; the file has its hash.
    Make {
        /// The tenant's name: 1 to 63 of a–z, 0–9 and -.
        #[arg(long, value_name = "NAME")]
        tenant: String,
    },
    /// Check a file of tenants, as frontends do, and list its tenants.
    Check {
        /// The file.
        #[arg(value_name = "FILE")]
        file: std::path::PathBuf,
    },
}
