//! `symphony context`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// List the contexts; the current one is marked.
    List {
        /// For people or for programs.
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Make a context the current one: the default of all tools.
    Use {
        /// The context.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Show a context; by default the current one.
    Show {
        /// The context.
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// For people or for programs.
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Create a context, or change the given settings of an existing one. The first one becomes the current one.
    Set(Box<ContextSetArgs>),
    /// Delete a context.
    Delete {
        /// The context.
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ContextSetArgs {
    /// The context: 1 to 63 of a–z, 0–9 and -.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The cluster's name; certificates of other clusters are refused.
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,
    /// Control addresses of the scheduler replicas, as --cluster has them.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub(crate) schedulers: Vec<String>,
    /// Control addresses of the replicas of a federation.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',')]
    pub(crate) federation: Vec<String>,
    /// The gRPC port of a frontend, or of what stands before the frontends; for `load`.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) frontend_grpc: Option<String>,
    /// The REST port of a frontend, or of what stands before the frontends; for `load`.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) frontend_rest: Option<String>,
    /// Folder with ca.pem and the caller's certificate and key.
    #[arg(long, value_name = "DIR")]
    pub(crate) pki: Option<PathBuf>,
    /// Identity of the caller, such as operator-ann.
    #[arg(long, value_name = "ROLE-NAME")]
    pub(crate) identity: Option<String>,
    /// The cluster uses plaintext.
    #[arg(long, conflicts_with = "pki")]
    pub(crate) insecure_dev: bool,
    /// File with the key of a tenant. The context has its path, not the key.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// File with the authority of the frontends' public certificates.
    #[arg(long, value_name = "FILE")]
    pub(crate) public_ca: Option<PathBuf>,
    /// Remove this setting from the context; repeatable.
    #[arg(long, value_enum, value_name = "KEY")]
    pub(crate) unset: Vec<ContextKey>,
    /// Make it the current one, too.
    #[arg(long = "use")]
    pub(crate) is_current: bool,
}

/// A key of a context, as its file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum ContextKey {
    Cluster,
    Schedulers,
    Federation,
    FrontendGrpc,
    FrontendRest,
    Pki,
    Identity,
    InsecureDev,
    KeyFile,
    PublicCa,
}
