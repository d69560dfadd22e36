//! `symphony certs`: a cluster's own authority, and certificates for its processes and people.

use std::path::Path;
use std::time::SystemTime;

use symphony_net::{Authority, CertificateFacts, CredentialFiles, Credentials, Identity};

use crate::cli::{CertsCommand, CertsIssueArgs};
use crate::exit::bad_input;

pub(crate) fn run(command: CertsCommand) -> anyhow::Result<()> {
    match command {
        CertsCommand::Authority { dir, cluster } => {
            // The name is checked here, not when the first certificate is made with it.
            Identity::new(&cluster, symphony_net::Role::Operator, "admin").map_err(bad_input)?;
            Authority::create(&dir, &cluster).map_err(bad_input)?;
            println!("{}: give it to every process", dir.join("ca.pem").display());
            println!("{}: keep it; whoever has it can join the cluster", dir.join("ca.key").display());
            Ok(())
        }
        CertsCommand::Issue(args) => issue(&args),
        CertsCommand::Show { cert, key, ca } => show(&cert, &key, &ca),
    }
}

fn issue(args: &CertsIssueArgs) -> anyhow::Result<()> {
    let identity = Identity::new(&args.cluster_name, args.role, &args.name).map_err(bad_input)?;
    let issued = Authority::open(&args.dir)
        .and_then(|authority| authority.issue_at(&identity, &args.hosts, args.days))
        .map_err(bad_input)?;
    let CredentialFiles { cert, key, .. } = issued.files;
    println!("{identity}, valid for {} days", args.days);
    println!("  {}\n  {}", cert.display(), key.display());
    Ok(())
}

fn show(cert: &Path, key: &Path, ca: &Path) -> anyhow::Result<()> {
    let files = CredentialFiles { ca: ca.to_owned(), cert: cert.to_owned(), key: key.to_owned() };
    let CertificateFacts { identity, expires } = Credentials::load(files).map_err(bad_input)?.facts();
    match expires.duration_since(SystemTime::now()) {
        Ok(left) => println!("{identity}, expires in {} days", left.as_secs() / 86_400),
        Err(ago) => println!("{identity}, expired {} days ago", ago.duration().as_secs() / 86_400),
    }
    Ok(())
}
