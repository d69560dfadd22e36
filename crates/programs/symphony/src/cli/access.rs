//! Where a cluster or a federation is, who asks, and which command it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use symphony_net::{CredentialFiles, Credentials, Net, Role};
use symphony_transport::ControlClient;
use symphony_types::OperationId;

use crate::exit::bad_input;

/// The operator that `symphony up` makes a certificate for, and that tools are if nothing else is said.
pub(crate) const OPERATOR: (Role, &str) = (Role::Operator, "admin");

/// The frontend that `symphony up` makes a certificate for, and that a load generator is if nothing else is said.
pub(crate) const LOAD_FRONTEND: (Role, &str) = (Role::Frontend, "load");

/// Where `symphony up` keeps certificates if nothing else is said.
pub(crate) const PKI_OF_UP: &str = "symphony-up/pki";

/// Where the replicas of `symphony up` are if nothing else is said.
pub(crate) const CLUSTER_OF_UP: &str = "127.0.0.1:7001,127.0.0.1:7011,127.0.0.1:7021";

/// Where the cluster is, and who asks.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Control addresses of the scheduler replicas; any that answers will do.
    #[arg(
        long = "cluster",
        env = "SYMPHONY_CLUSTER",
        value_name = "HOST:PORT,…",
        value_delimiter = ',',
        default_value = CLUSTER_OF_UP
    )]
    pub(crate) cluster: Vec<String>,
    /// Folder with ca.pem and the caller's certificate; symphony-up/pki, where `symphony up` makes them, if it is
    /// there.
    #[arg(long, env = "SYMPHONY_PKI", value_name = "DIR")]
    pub(crate) pki: Option<PathBuf>,
    /// Who asks: the name of the certificate's file, without .pem. By default operator-admin; of `load --protocol
    /// native` frontend-load.
    #[arg(long, env = "SYMPHONY_IDENTITY", value_name = "ROLE-NAME")]
    pub(crate) identity: Option<String>,
    /// Talk plaintext, to a cluster that does.
    #[arg(long, env = "SYMPHONY_INSECURE_DEV", conflicts_with = "pki")]
    pub(crate) insecure_dev: bool,
}

impl ClusterArgs {
    /// Where certificates are; none in plaintext.
    pub(crate) fn pki_dir(&self) -> anyhow::Result<Option<PathBuf>> {
        if self.insecure_dev {
            return Ok(None);
        }
        let up = Path::new(PKI_OF_UP);
        let dir = self.pki.as_deref().or_else(|| up.is_dir().then_some(up)).ok_or_else(|| {
            bad_input(
                "no certificates: give their folder with --pki or SYMPHONY_PKI (`symphony up` prints it, `symphony certs` \
                 makes them), or --insecure-dev for a cluster without any",
            )
        })?;
        Ok(Some(dir.to_owned()))
    }

    /// How to talk to the cluster.
    pub(crate) fn net(&self) -> anyhow::Result<Net> {
        self.net_as(OPERATOR)
    }

    /// How to talk to the cluster, as this role and name unless an identity is given.
    pub(crate) fn net_as(&self, (role, name): (Role, &str)) -> anyhow::Result<Net> {
        let Some(dir) = self.pki_dir()? else { return Ok(Net::plaintext()) };
        let identity = self.identity.clone().unwrap_or_else(|| format!("{role}-{name}"));
        let file = |extension: &str| dir.join(format!("{identity}.{extension}"));
        let files = CredentialFiles { ca: dir.join("ca.pem"), cert: file("pem"), key: file("key") };
        Ok(Net::secured(Arc::new(Credentials::load(files).map_err(bad_input)?)))
    }

    /// The cluster's control surface.
    pub(crate) fn control(&self) -> anyhow::Result<ControlClient> {
        ControlClient::new(&self.net()?, &self.cluster).map_err(bad_input)
    }
}

/// Where the federation of `symphony up --clusters` is.
pub(crate) const FEDERATION_OF_UP: &str = "127.0.0.1:7501,127.0.0.1:7511,127.0.0.1:7521";

/// Whether a federation is asked instead of one cluster.
#[derive(Debug, Args)]
pub(crate) struct FederationArgs {
    /// Ask the federation, at these addresses of its replicas; alone: where `symphony up --clusters` has it. The
    /// certificates in --pki are then those of the federation.
    #[arg(long, value_name = "HOST:PORT,…", num_args = 0..=1, require_equals = true,
          default_missing_value = FEDERATION_OF_UP)]
    pub(crate) federation: Option<String>,
}

/// Which command it is.
#[derive(Debug, Args)]
pub(crate) struct OperationArgs {
    /// Id of a command that was given before and had no answer: it is done once, if fewer than 1024 operations came
    /// since; 32 hexadecimal digits, a fresh one if not given.
    #[arg(long, value_name = "ID")]
    pub(crate) operation_id: Option<OperationId>,
}
