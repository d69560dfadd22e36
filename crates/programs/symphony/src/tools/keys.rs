//! `symphony keys`: keys of tenants.

use std::path::Path;

use sha2::{Digest as _, Sha256};
use symphony_config::{KeyHash, Right, TenantsFile};
use symphony_types::is_name;

use crate::cli::KeysCommand;
use crate::exit::bad_input;

/// What a key begins with, so that tools which look for secrets find it.
const KEY_PREFIX: &str = "symphony_";

pub(crate) fn run(command: KeysCommand) -> anyhow::Result<()> {
    match command {
        KeysCommand::Make { tenant } => make(&tenant),
        KeysCommand::Check { file } => check(&file),
    }
}

fn make(tenant: &str) -> anyhow::Result<()> {
    if !is_name(tenant) {
        return Err(bad_input(format!("--tenant `{tenant}`: expected 1 to 63 of a–z, 0–9 and -, no leading -")));
    }
    let key = fresh();
    println!("key: {key}");
    println!("\n[[tenant]]\nname = \"{tenant}\"\nkeys = [\"{}\"]", hash(&key));
    Ok(())
}

/// 256 random bits.
fn fresh() -> String {
    let bits: [u8; 32] = rand::random();
    bits.iter().fold(KEY_PREFIX.to_owned(), |key, byte| format!("{key}{byte:02x}"))
}

fn hash(key: &str) -> KeyHash {
    KeyHash(Sha256::digest(key.as_bytes()).into())
}

fn check(path: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).map_err(|error| bad_input(format!("{}: {error}", path.display())))?;
    let file = TenantsFile::parse(&text).map_err(|error| bad_input(format!("{}: {error}", path.display())))?;
    for tenant in &file.tenants {
        let rights: Vec<_> =
            Right::ALL.into_iter().filter(|&right| tenant.rights.has(right)).map(Right::label).collect();
        let quota = |quota: Option<f64>| quota.map_or_else(|| "no limit".to_owned(), |quota| quota.to_string());
        println!(
            "{}: {}, {}; {}; items/s: {}; GPU s/s: {}; weight {}",
            tenant.name,
            counted(tenant.keys.len(), "key"),
            counted(tenant.certificates.len(), "certificate"),
            rights.join(", "),
            quota(tenant.items_per_s),
            quota(tenant.gpu_seconds_per_s),
            tenant.weight()
        );
    }
    Ok(())
}

/// As `1 key`, `2 keys`.
fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "key")), ["0 keys", "1 key", "2 keys"]);
    }

    #[test]
    fn keys_are_random_and_their_hashes_are_what_the_file_takes() {
        let (one, other) = (fresh(), fresh());
        assert_eq!((one.len(), one == other), (KEY_PREFIX.len() + 64, false));
        // sha256sum of "key".
        let known = "sha256:2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683";
        assert_eq!(hash("key").to_string(), known);
        let text = format!("[[tenant]]\nname = \"a\"\nkeys = [\"{}\"]", hash(&one));
        assert_eq!(TenantsFile::parse(&text).unwrap().tenants[0].keys, [hash(&one)]);
    }
}
