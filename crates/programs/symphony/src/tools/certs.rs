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
            if let Some(file) = ["ca.key", "ca.pem"].map(|file| dir.join(file)).into_iter().find(|file| file.exists()) {
                return Err(bad_input(format!(
                    "{} is there: under a new authority all certificates of the old one would be good for nothing. `symphony certs issue` \
                     makes more under it; give another folder for another authority",
                    file.display()
                )));
            }
            Authority::create(&dir, &cluster).map_err(bad_input)?;
            println!("{}: give it to every process", dir.join("ca.pem").display());
            println!("{}: keep it secret; anything that has it can join the cluster", dir.join("ca.key").display());
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
    let renewed = if issued.is_renewed { "renewed, " } else { "" };
    println!("{identity}, {renewed}valid for {} days", args.days);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_not_made_over_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let authority = || CertsCommand::Authority { dir: dir.path().into(), cluster: "blue".into() };
        run(authority()).unwrap();
        let message = run(authority()).unwrap_err().to_string();
        assert!(message.contains("ca.key is there") && message.contains("certs issue"), "{message}");
        std::fs::remove_file(dir.path().join("ca.key")).unwrap();
        assert!(run(authority()).unwrap_err().to_string().contains("ca.pem is there"));
        assert!(!dir.path().join("ca.key").exists(), "no key without its certificate");
    }
}
