//! The file of tenants: who may call the public ports, how much each may ask for, and what its requests are worth.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use symphony_types::{RequestValue, TENANTS_MAX, is_name};

/// Keys of one tenant: the one in use, the next one, and some for its programs.
const KEYS_MAX: usize = 64;
/// Characters of what is no name that are shown.
const NAME_SHOWN: usize = 9;
/// Bytes of a name in a certificate: the longest DNS name.
const CERTIFICATE_NAME_BYTES_MAX: usize = 255;
/// The largest quota: items, or seconds of GPU time, in a second.
const QUOTA_MAX: f64 = 1e9;
/// What a key's hash begins with in the file.
pub const KEY_HASH_PREFIX: &str = "sha256:";

/// The SHA-256 of a key. Keys are 256 random bits, so nothing slower is needed against guessing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct KeyHash(pub [u8; 32]);

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(KEY_HASH_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for KeyHash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let digits = text.strip_prefix(KEY_HASH_PREFIX)?.as_bytes();
            let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
            let mut hash = [0; 32];
            if digits.len() != 2 * hash.len() {
                return None;
            }
            for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
                *byte = digit(pair[0])? << 4 | digit(pair[1])?;
            }
            Some(Self(hash))
        };
        // A key that was written in place of its hash must not get into a log.
        parse().ok_or_else(|| {
            format!(
                "a text of {} bytes is no hash of a key; expected {KEY_HASH_PREFIX} and 64 hexadecimal digits",
                text.len()
            )
        })
    }
}

impl TryFrom<String> for KeyHash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Ask models, and read what is needed for that.
    Infer,
    /// See statistics, the repository's index and the status pages.
    Status,
    /// Load and unload models of the repository.
    Repository,
    /// See the console: the whole cluster, and what became of single requests of all tenants.
    Console,
}

impl Right {
    /// Every right.
    pub const ALL: [Self; 4] = [Self::Infer, Self::Status, Self::Repository, Self::Console];

    /// Its word in the file and in messages.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Infer => "infer",
            Self::Status => "status",
            Self::Repository => "repository",
            Self::Console => "console",
        }
    }
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(from = "Vec<Right>")]
pub struct Rights(u8);

impl Rights {
    /// These rights and no others.
    #[must_use]
    pub fn of(rights: &[Right]) -> Self {
        Self(rights.iter().fold(0, |bits, &right| bits | 1 << right as u8))
    }

    /// Whether the right is among them.
    #[must_use]
    pub const fn has(self, right: Right) -> bool {
        self.0 & (1 << right as u8) != 0
    }
}

impl From<Vec<Right>> for Rights {
    fn from(rights: Vec<Right>) -> Self {
        Self::of(&rights)
    }
}

/// `[[tenant]]`: who it is, what it may do, and how much.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// Its name, in logs, metrics and answers.
    pub name: String,
    /// Hashes of its keys.
    #[serde(default)]
    pub keys: Vec<KeyHash>,
    /// Names of its certificates: a common name or an alternative name, whole.
    #[serde(default)]
    pub certificates: Vec<String>,
    /// Items that it may ask for in a second, over all frontends; no limit if it is left out.
    #[serde(default)]
    pub items_per_s: Option<f64>,
    /// GPU time that these may take in a second, in seconds; no limit if it is left out.
    #[serde(default)]
    pub gpu_seconds_per_s: Option<f64>,
    /// What its requests are worth when some must be shed.
    #[serde(default = "one")]
    weight: f64,
    /// Requests that it may have in flight at one frontend; half of what the frontend takes if it is left out.
    #[serde(default)]
    pub requests_in_flight_max: Option<u32>,
    /// What it may do.
    #[serde(default = "infer_only")]
    pub rights: Rights,
}

impl TenantConfig {
    /// What its requests are worth; a file with another number was refused.
    #[must_use]
    pub fn weight(&self) -> RequestValue {
        RequestValue::from_number(self.weight).unwrap_or_default()
    }
}

const fn one() -> f64 {
    1.0
}

fn infer_only() -> Rights {
    Rights::of(&[Right::Infer])
}

/// Why a file of tenants is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantsError {
    /// The file is longer than a configuration may be.
    #[error("it has {0} bytes; expected at most {max}", max = crate::CONFIG_BYTES_MAX)]
    TooLong(usize),
    /// It is not TOML, or has other keys or types.
    #[error("{0}")]
    Syntax(String),
    /// A value makes no sense.
    #[error("tenant `{tenant}`: {words}")]
    Tenant {
        /// Name of the tenant.
        tenant: String,
        /// What is wrong, and what was expected.
        words: String,
    },
    /// There are none, or too many.
    #[error("{0} tenants; expected 1 to {TENANTS_MAX}")]
    Count(usize),
}

/// The contents of a file of tenants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantsFile {
    /// In the order of the file; names, keys and certificates are unique.
    pub tenants: Vec<TenantConfig>,
}

impl TenantsFile {
    /// Reads a file's text.
    ///
    /// # Errors
    /// If it is not what was expected, or two tenants have something in common.
    pub fn parse(text: &str) -> Result<Self, TenantsError> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Raw {
            #[serde(default)]
            tenant: Vec<TenantConfig>,
        }
        if text.len() as u64 > crate::CONFIG_BYTES_MAX {
            return Err(TenantsError::TooLong(text.len()));
        }
        // The parser's message quotes the line, which may hold a key that was written in place of its hash.
        let parsed: Raw = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
            let place = line.map_or_else(String::new, |line| format!("line {line}: "));
            TenantsError::Syntax(format!("{place}{}", without_values(error.message())))
        })?;
        let tenants = parsed.tenant;
        if tenants.is_empty() || tenants.len() > TENANTS_MAX {
            return Err(TenantsError::Count(tenants.len()));
        }
        let (mut names, mut keys, mut certificates) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for tenant in &tenants {
            check(tenant)?;
            let say = |words| Err(TenantsError::Tenant { tenant: tenant.name.clone(), words });
            if names.insert(&tenant.name, ()).is_some() {
                return say("is there twice; names are unique".into());
            }
            for key in &tenant.keys {
                if let Some(other) = keys.insert(key, &tenant.name) {
                    return say(format!("the key {key} is that of tenant `{other}`, too"));
                }
            }
            for certificate in &tenant.certificates {
                if let Some(other) = certificates.insert(certificate, &tenant.name) {
                    return say(format!("the certificate `{certificate}` is that of tenant `{other}`, too"));
                }
            }
        }
        Ok(Self { tenants })
    }
}

/// What the file may have; the parser's words may quote these.
const KEYS: [&str; 9] = [
    "tenant",
    "name",
    "keys",
    "certificates",
    "items_per_s",
    "gpu_seconds_per_s",
    "weight",
    "requests_in_flight_max",
    "rights",
];

/// The parser's words without what they quote from the file: wherever a value is wrong, it may be a key. What was
/// expected follows in words of ours.
fn without_values(words: &str) -> String {
    const QUOTES: [char; 2] = ['"', '`'];
    let (found, expected) = words.split_at(words.rfind(", expected ").unwrap_or(words.len()));
    let (Some(begin), Some(end)) = (found.find(QUOTES), found.rfind(QUOTES)) else { return words.to_owned() };
    if found.get(begin + 1..end).is_some_and(|quoted| KEYS.contains(&quoted)) {
        return words.to_owned();
    }
    format!("{}…{expected}", &found[..begin])
}

fn check(tenant: &TenantConfig) -> Result<(), TenantsError> {
    let say = |words| Err(TenantsError::Tenant { tenant: tenant.name.clone(), words });
    if !is_name(&tenant.name) {
        let max = symphony_types::NAME_BYTES_MAX;
        // Enough to find it, and of a key nothing but how all begin.
        let tenant = tenant.name.chars().take(NAME_SHOWN).collect();
        let say = |words| Err(TenantsError::Tenant { tenant, words });
        return say(format!("is no name; expected 1 to {max} of a–z, 0–9 and -, no leading -"));
    }
    if tenant.keys.is_empty() && tenant.certificates.is_empty() {
        return say(format!(
            "has neither keys nor certificates; `symphony keys make --tenant {}` makes one",
            tenant.name
        ));
    }
    if tenant.keys.len() > KEYS_MAX || tenant.certificates.len() > KEYS_MAX {
        let (keys, certificates) = (tenant.keys.len(), tenant.certificates.len());
        return say(format!("{keys} keys and {certificates} certificates; expected at most {KEYS_MAX} of each"));
    }
    if tenant.certificates.iter().any(|name| name.is_empty() || name.len() > CERTIFICATE_NAME_BYTES_MAX) {
        return say(format!("a certificate's name has 1 to {CERTIFICATE_NAME_BYTES_MAX} bytes"));
    }
    for (key, quota) in [("items_per_s", tenant.items_per_s), ("gpu_seconds_per_s", tenant.gpu_seconds_per_s)] {
        if let Some(quota) = quota.filter(|quota| !(*quota > 0.0 && *quota <= QUOTA_MAX)) {
            return say(format!("{key} is {quota}; expected a number above 0, at most {QUOTA_MAX}"));
        }
    }
    if RequestValue::from_number(tenant.weight).is_none() {
        return say(format!("weight is {}; expected 0.001 to 1000", tenant.weight));
    }
    if tenant.requests_in_flight_max == Some(0) {
        return say("requests_in_flight_max is 0; expected a number from 1".into());
    }
    if tenant.rights == Rights::default() {
        return say(r#"rights are empty; expected some of "infer", "status", "repository", "console""#.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    #[test]
    fn a_tenant_has_what_the_file_says_and_defaults() {
        let text = format!(
            "[[tenant]]\nname = \"search\"\nkeys = [\"{HASH}\"]\n\
             [[tenant]]\nname = \"batch\"\ncertificates = [\"batch.example\"]\nitems_per_s = 20\ngpu_seconds_per_s = 0.5\n\
             weight = 0.25\nrequests_in_flight_max = 9\nrights = [\"infer\", \"status\", \"console\"]\n"
        );
        let tenants = TenantsFile::parse(&text).unwrap().tenants;
        let [search, batch] = tenants.as_slice() else { panic!("{tenants:?}") };
        assert_eq!(
            (search.keys[0].to_string().as_str(), search.items_per_s, search.weight()),
            (HASH, None, RequestValue::ONE)
        );
        assert_eq!(Right::ALL.map(|right| search.rights.has(right)), [true, false, false, false]);
        assert_eq!((batch.items_per_s, batch.gpu_seconds_per_s), (Some(20.0), Some(0.5)));
        assert_eq!((batch.weight(), batch.requests_in_flight_max), (RequestValue::from_number(0.25).unwrap(), Some(9)));
        assert_eq!(Right::ALL.map(|right| batch.rights.has(right)), [true, true, false, true]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words_that_quote_no_key() {
        let with = |line: &str| format!("[[tenant]]\nname = \"a\"\nkeys = [\"{HASH}\"]\n{line}\n");
        let twice = format!("{0}[[tenant]]\nname = \"b\"\nkeys = [\"{HASH}\"]\n", with(""));
        for (text, expected) in [
            (String::new(), "0 tenants; expected 1 to 1024"),
            ("[[tenant]]".into(), "missing field `name`"),
            (
                "[[tenant]]\nname = \"a\"".into(),
                "tenant `a`: has neither keys nor certificates; `symphony keys make --tenant a`",
            ),
            ("[[tenant]]\nname = \"A b\"".into(), "tenant `A b`: is no name"),
            (with("items_per_s = 0"), "items_per_s is 0; expected a number above 0"),
            (with("items_per_s = nan"), "items_per_s is NaN"),
            (with("gpu_seconds_per_s = -1"), "gpu_seconds_per_s is -1"),
            (with("weight = 1001"), "weight is 1001; expected 0.001 to 1000"),
            (with("rights = []"), "rights are empty"),
            (with("rights = [\"all\"]"), "line 4: unknown variant …, expected one of `infer`"),
            (with("requests_in_flight_max = 0"), "requests_in_flight_max is 0"),
            (with("colour = 1"), "line 4: unknown field …, expected one of `name`"),
            (with("certificates = [\"\"]"), "a certificate's name has 1 to 255 bytes"),
            (twice, "is that of tenant `a`, too"),
            (format!("{0}{0}", with("")), "tenant `a`: is there twice"),
        ] {
            let refused = TenantsFile::parse(&text).unwrap_err().to_string();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
        for secret in ["Zm9yZ290dGVuIHRvIGhhc2g", &HASH[..70]] {
            let text = format!("[[tenant]]\nname = \"a\"\nkeys = [\"{secret}\"]");
            let refused = TenantsFile::parse(&text).unwrap_err().to_string();
            assert!(
                refused.contains("is no hash of a key; expected sha256:") && !refused.contains(secret),
                "{refused}"
            );
        }
        // Not where a hash was expected, either.
        let secret = "symphony_Zm9yZ290dGVuIHRvIGhhc2g";
        let with = |line: &str| format!("[[tenant]]\nname = \"a\"\n{line}\n");
        for (text, expected) in [
            (with(&format!("keys = \"{secret}\"")), "line 3: invalid type: string …, expected a sequence"),
            (with(&format!("keys = '`{secret}\"'")), "line 3: invalid type: string …, expected a sequence"),
            (with(&format!("rights = [\"{secret}\"]")), "line 3: unknown variant …, expected one of `infer`"),
            (with(&format!("rights = [\"`{secret}\"]")), "line 3: unknown variant …, expected one of `infer`"),
            (with(&format!("weight = \"{secret}\"")), "line 3: invalid type: string …, expected f64"),
            (with(&format!("{secret} = 1")), "line 3: unknown field …, expected one of `name`"),
            (with(&format!("keys = [{secret}]")), "line "),
            (with(&format!("keys = {secret}")), "line "),
            (with(&format!("keys = [\"{secret}")), "line "),
            (format!("[[tenant]]\nname = \"{secret}\""), "tenant `symphony_`: is no name"),
        ] {
            let refused = TenantsFile::parse(&text).unwrap_err().to_string();
            assert!(refused.contains(expected) && !refused.contains(&secret[10..]), "{text}: {refused}");
        }
        let long = " ".repeat(crate::CONFIG_BYTES_MAX as usize + 1);
        assert_eq!(TenantsFile::parse(&long), Err(TenantsError::TooLong(long.len())));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in r#"\PC{0,80}|(\[\[tenant\]\]\n|name = "a"\n|keys = \["sha256:[0-9a-fé]{0,66}"\]\n|weight = [0-9.e-]{1,6}\n){0,6}"#) {
            let _ = TenantsFile::parse(&text);
        }
    }
}
