//! How a node authenticates to others: with the certificate of its identity, or in plaintext if configured.

use std::sync::Arc;

use symphony_config::{FederatedClusterConfig, NodeConfig, RepositoryConfig, TlsConfig};
use symphony_net::{ClusterLevel, CredentialFiles, Credentials, Identity, Net, PublicTls, PublicTlsFiles, Role};
use symphony_types::Level;

use super::certificates::Certificates;
use crate::exit::bad_input;

/// The newest level that a process of a debug build knows: tests have clusters of two releases by it.
const TEST_LEVEL: &str = "SYMPHONY_TEST_LEVEL";

/// What this process knows about a cluster's levels: all that its release does.
fn level() -> ClusterLevel {
    let test_level = cfg!(debug_assertions).then(|| std::env::var(TEST_LEVEL).ok()).flatten();
    let newest = test_level.and_then(|number| number.parse().ok()).map_or(Level::NEWEST, Level::new);
    ClusterLevel::up_to(newest.min(Level::NEWEST))
}

/// The node's credentials for the cluster; its certificate is renewed while the process runs.
pub(super) fn net(config: &NodeConfig, role: Role, name: &str, certificates: &Certificates) -> anyhow::Result<Net> {
    let security = &config.security;
    let routes = config.network.routes.iter().map(|route| (route.to.to_string(), route.via.to_string())).collect();
    let (Some(ca), Some(cert), Some(key)) = (&security.ca, &security.cert, &security.key) else {
        tracing::warn!("security.insecure_dev: connections are neither encrypted nor authenticated");
        return Ok(Net::plaintext().routed(routes).levelled(level()));
    };
    let me = Identity::new(&config.cluster.name, role, name).map_err(bad_input)?;
    let credentials = credentials(&me, CredentialFiles { ca: ca.clone(), cert: cert.clone(), key: key.clone() })?;
    shown(certificates, "node", &credentials);
    Ok(Net::secured(credentials).routed(routes).levelled(level()))
}

/// The node's credentials for one of the clusters of its federation, under this name and role.
pub(super) fn net_in(
    config: &NodeConfig,
    cluster: &FederatedClusterConfig,
    role: Role,
    name: &str,
    certificates: &Certificates,
) -> anyhow::Result<Net> {
    let routes = config.network.routes.iter().map(|route| (route.to.to_string(), route.via.to_string())).collect();
    let (Some(ca), Some(cert), Some(key)) = (&cluster.ca, &cluster.cert, &cluster.key) else {
        return Ok(Net::plaintext().routed(routes).levelled(level()));
    };
    let me = Identity::new(&cluster.name, role, name).map_err(bad_input)?;
    let credentials = credentials(&me, CredentialFiles { ca: ca.clone(), cert: cert.clone(), key: key.clone() })?;
    shown(certificates, format!("cluster {}", cluster.name), &credentials);
    Ok(Net::secured(credentials).routed(routes).levelled(level()))
}

/// The node's credentials as an operator, to load and unload models for authorised clients.
pub(super) fn net_as_operator(
    config: &NodeConfig,
    repository: &RepositoryConfig,
    certificates: &Certificates,
) -> anyhow::Result<Net> {
    let routes = config.network.routes.iter().map(|route| (route.to.to_string(), route.via.to_string())).collect();
    let (Some(ca), Some(cert), Some(key)) = (&config.security.ca, &repository.cert, &repository.key) else {
        return Ok(Net::plaintext().routed(routes));
    };
    let files = CredentialFiles { ca: ca.clone(), cert: cert.clone(), key: key.clone() };
    let credentials = Arc::new(Credentials::load(files).map_err(bad_input)?);
    let identity = credentials.facts().identity;
    if (identity.role, &identity.cluster) != (Role::Operator, &config.cluster.name) {
        let (cert, cluster) = (cert.display(), &config.cluster.name);
        return Err(bad_input(format!(
            "frontend.repository.cert {cert} is of {identity}; expected an operator of cluster {cluster}"
        )));
    }
    tokio::spawn(Arc::clone(&credentials).keep_fresh());
    shown(certificates, "repository", &credentials);
    Ok(Net::secured(credentials).routed(routes))
}

/// TLS at the public ports of a frontend, if it is configured; its certificate is renewed while the process runs.
pub(super) fn public_tls(tls: &TlsConfig, certificates: &Certificates) -> anyhow::Result<Option<Arc<PublicTls>>> {
    let Some((cert, key)) = tls.pair() else { return Ok(None) };
    let files = PublicTlsFiles { cert: cert.clone(), key: key.clone(), client_ca: tls.client_ca.clone() };
    let tls = Arc::new(PublicTls::load(files).map_err(|error| bad_input(format!("frontend.tls: {error}")))?);
    tokio::spawn(Arc::clone(&tls).keep_fresh());
    let shown = Arc::clone(&tls);
    certificates.add("public", move || shown.expires());
    Ok(Some(tls))
}

fn shown(certificates: &Certificates, what: impl Into<String>, credentials: &Arc<Credentials>) {
    let credentials = Arc::clone(credentials);
    certificates.add(what, move || Some(credentials.facts().expires));
}

/// Certificates that are renewed while the process runs.
fn credentials(me: &Identity, files: CredentialFiles) -> anyhow::Result<Arc<Credentials>> {
    let credentials = Arc::new(Credentials::load_for(files, me).map_err(bad_input)?);
    tracing::info!(identity = %me, "connections are secured");
    tokio::spawn(Arc::clone(&credentials).keep_fresh());
    Ok(credentials)
}
