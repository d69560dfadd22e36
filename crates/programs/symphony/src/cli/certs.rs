//! `symphony certs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use symphony_net::{HostName, Role};

#[derive(Debug, Subcommand)]
pub(crate) enum CertsCommand {
    /// Make a certificate authority: ca.pem and ca.key.
    Authority {
        /// Folder to write to; made if it is not there.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// The cluster's name, as in cluster.name.
        #[arg(long = "cluster-name", value_name = "NAME", default_value = "symphony")]
        cluster: String,
    },
    /// Make a key and a certificate: ROLE-NAME.key and ROLE-NAME.pem beside the authority's.
    Issue(CertsIssueArgs),
    /// Show the owner and expiry of a certificate, and check that the key belongs to it.
    Show {
        /// The certificate.
        #[arg(value_name = "CERT")]
        cert: PathBuf,
        /// Its key.
        #[arg(value_name = "KEY")]
        key: PathBuf,
        /// The authority's certificate.
        #[arg(value_name = "CA")]
        ca: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CertsIssueArgs {
    /// Folder of the authority.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The cluster's name, as in cluster.name.
    #[arg(long, value_name = "NAME", default_value = "symphony")]
    pub(crate) cluster_name: String,
    /// scheduler, backend or frontend for a node; operator or viewer for people and their programs; federation for the
    /// cluster's federation, under its name.
    #[arg(long)]
    pub(crate) role: Role,
    /// The node's name; a scheduler's is its id, as in scheduler.id.
    #[arg(long)]
    pub(crate) name: String,
    /// Host name or IP address to put into the certificate, for clients that check it, such as KEDA at a scheduler's
    /// control port; repeatable. The cluster's own processes and tools check role and name.
    #[arg(long = "host", value_name = "HOST")]
    pub(crate) hosts: Vec<HostName>,
    /// Days until it expires.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) days: u32,
}
