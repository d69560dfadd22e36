//! The text of models that are declared: YAML documents, or TOML tables.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use symphony_config::TenantsFile;
use symphony_policy::ModelPolicy;
use symphony_protocol::view::{Shadow, Traffic};
use symphony_repository::Repository;
use symphony_types::{VersionedName, parse_version};

use super::wanted::{Change, Source, Wanted};
use crate::tools::requested_model::{RequestedModel, Spelling};

/// The largest batch of a line of latencies if none is given, as `model load` has it.
const BATCH_MAX: u32 = 64;
/// The GPU kind of a line of latencies if none is given, as `model load` has it.
const GPU_KIND: &str = "emulated";

/// The syntax of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// Documents with a `kind`, separated by `---`.
    Yaml,
    /// Tables `[[model]]`, or `[[tenant]]` as in a file of tenants.
    Toml,
}

impl Syntax {
    /// The syntax of a file, by its name.
    pub(super) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "yaml" | "yml" => Some(Self::Yaml),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }
}

/// What a text declares.
#[derive(Debug)]
pub(super) enum Declared {
    Models(Vec<Document>),
    /// The names of tenants, which a cluster does not keep.
    Tenants(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Model,
}

/// A model as it is written. Everything but the name may be missing: what is missing is as `model load` has it for a
/// new model, and stays as it is for an existing one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Document {
    kind: Option<Kind>,
    name: String,
    repository: Option<PathBuf>,
    onnx: Option<PathBuf>,
    emulated: bool,
    own_trunk: bool,
    profile: Option<PathBuf>,
    alpha_ms: Option<f64>,
    beta_ms: Option<f64>,
    batch_max: Option<u32>,
    gpu_kind: Option<String>,
    transforms: Option<PathBuf>,
    slo_ms: Option<f64>,
    subcluster: Option<String>,
    policy: Option<ModelPolicy>,
    value: Option<f64>,
    traffic: Option<TrafficKeys>,
}

/// How requests that name no version are split; empty for all to the latest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TrafficKeys {
    weights: BTreeMap<Version, u32>,
    shadow: Option<ShadowKeys>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShadowKeys {
    version: Version,
    percent: u32,
}

/// A version as a number or, as keys of TOML are, as a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u64);

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Version;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a version, a number from 1")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Version, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Version, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Version, E> {
                parse_version(text).map(Version).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Number)
    }
}

/// Parses a text.
///
/// # Errors
/// If it is not of that syntax, with the line.
pub(super) fn parse(text: &str, syntax: Syntax) -> Result<Declared, String> {
    match syntax {
        Syntax::Yaml => {
            let documents: Vec<Document> =
                serde_saphyr::from_multiple(text).map_err(|error| error.without_snippet().to_string())?;
            if let Some(place) = documents.iter().position(|document| document.kind.is_none()) {
                return Err(format!("document {}: it has no `kind`; expected `kind: model`", place + 1));
            }
            Ok(Declared::Models(documents))
        }
        Syntax::Toml => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct File {
                #[serde(default)]
                model: Vec<Document>,
            }
            let has_tenants = toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("tenant"));
            if has_tenants {
                let file = TenantsFile::parse(text).map_err(|error| error.to_string())?;
                return Ok(Declared::Tenants(file.tenants.iter().map(|tenant| tenant.name.clone()).collect()));
            }
            let file: File = toml::from_str(text).map_err(|error| {
                let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
                format!("line {line}: {}", error.message())
            })?;
            Ok(Declared::Models(file.model))
        }
    }
}

impl Document {
    /// The declared models, with the files that they name. Their relative paths begin at a folder.
    ///
    /// # Errors
    /// If keys do not go together, or a file cannot be used.
    pub(super) fn wanted(&self, folder: &Path) -> anyhow::Result<Wanted> {
        let wanted = self.read(folder);
        wanted.map_err(|error| error.context(format!("model `{}`", self.name)))
    }

    fn read(&self, folder: &Path) -> anyhow::Result<Wanted> {
        anyhow::ensure!(!self.name.is_empty(), "it has no `name`");
        let is_base_name = VersionedName::is_base_name(&self.name);
        let traffic = self.traffic.as_ref().map(TrafficKeys::traffic);
        anyhow::ensure!(traffic.is_none() || is_base_name, "traffic: expected beside a name without a version");
        let at = |path: &PathBuf| folder.join(path);
        if let Some(repository) = &self.repository {
            self.only(&["repository"], "the repository says everything but the traffic")?;
            let model = Repository::open(&at(repository))?.model(&self.name)?;
            let source = Some(Source::Repository(Box::new(model)));
            return Ok(Wanted { name: self.name.clone(), source, change: Change::default(), traffic });
        }
        let line_ms = (self.alpha_ms, self.beta_ms);
        anyhow::ensure!(self.onnx.is_none() || !self.emulated, "onnx and emulated: expected one of them");
        let is_line = line_ms.0.is_some() || line_ms.1.is_some();
        anyhow::ensure!(self.profile.is_none() || !is_line, "profile, and alpha_ms or beta_ms: expected one of them");
        if self.onnx.is_none() && !self.emulated && !is_line {
            self.only(&["slo_ms", "policy", "value"], "it has no onnx, emulated or repository to load it from")?;
            let change = Change {
                slo: self.slo_ms.map(|slo_ms| Spelling::Keys.slo(slo_ms)).transpose()?,
                policy: self.policy,
                value: self.value.map(|value| Spelling::Keys.value(value)).transpose()?,
            };
            anyhow::ensure!(!change.is_empty() || traffic.is_some(), "it says nothing but the name");
            return Ok(Wanted { name: self.name.clone(), source: None, change, traffic });
        }
        let (onnx, profile, transforms) =
            (self.onnx.as_ref().map(at), self.profile.as_ref().map(at), self.transforms.as_ref().map(at));
        let requested = RequestedModel {
            spelling: Spelling::Keys,
            name: &self.name,
            onnx: onnx.as_deref(),
            emulated: self.emulated,
            own_trunk: self.own_trunk,
            profile: profile.as_deref(),
            line_ms,
            batch_max: self.batch_max.unwrap_or(BATCH_MAX),
            gpu_kind: self.gpu_kind.as_deref().unwrap_or(GPU_KIND),
            transforms: transforms.as_deref(),
            slo_ms: self.slo_ms.ok_or_else(|| anyhow::anyhow!("it has no `slo_ms`"))?,
            subcluster: self.subcluster.as_deref().unwrap_or_default(),
            policy: self.policy.unwrap_or_default(),
            value: self.value.unwrap_or(1.0),
            values_count_anyway: false,
        };
        let source = Some(Source::Spec(Box::new(requested.spec()?)));
        Ok(Wanted { name: self.name.clone(), source, change: Change::default(), traffic })
    }

    /// Refuses all keys that are given but these; kind, name and traffic may be.
    fn only(&self, allowed: &[&str], why: &str) -> anyhow::Result<()> {
        let keys = [
            ("repository", self.repository.is_some()),
            ("onnx", self.onnx.is_some()),
            ("emulated", self.emulated),
            ("own_trunk", self.own_trunk),
            ("profile", self.profile.is_some()),
            ("alpha_ms", self.alpha_ms.is_some()),
            ("beta_ms", self.beta_ms.is_some()),
            ("batch_max", self.batch_max.is_some()),
            ("gpu_kind", self.gpu_kind.is_some()),
            ("transforms", self.transforms.is_some()),
            ("slo_ms", self.slo_ms.is_some()),
            ("subcluster", self.subcluster.is_some()),
            ("policy", self.policy.is_some()),
            ("value", self.value.is_some()),
        ];
        match keys.into_iter().find(|(key, is_given)| *is_given && !allowed.contains(key)) {
            Some((key, _)) => anyhow::bail!("{key}: {why}"),
            None => Ok(()),
        }
    }
}

impl TrafficKeys {
    fn traffic(&self) -> Traffic {
        let shadow = self.shadow.map(|ShadowKeys { version, percent }| Shadow { version: version.0, percent });
        Traffic { weights: self.weights.iter().map(|(version, &weight)| (version.0, weight)).collect(), shadow }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "kind: model
name: m
emulated: true
alpha_ms: 1
beta_ms: 5
slo_ms: 100
policy: { name: timeout, share: 0.1 }
traffic:
  weights: { 1: 95, 2: 5 }
  shadow: { version: 3, percent: 10 }
---
kind: model
name: other@2
slo_ms: 50
";

    const TOML: &str = "[[model]]
name = \"m\"
emulated = true
alpha_ms = 1
beta_ms = 5
slo_ms = 100
policy = { name = \"timeout\", share = 0.1 }
traffic = { weights = { 1 = 95, 2 = 5 }, shadow = { version = 3, percent = 10 } }

[[model]]
name = \"other@2\"
slo_ms = 50
";

    fn models(text: &str, syntax: Syntax) -> Vec<Wanted> {
        let Declared::Models(models) = parse(text, syntax).unwrap() else { panic!("no models") };
        models.iter().map(|model| model.wanted(Path::new("/etc")).unwrap()).collect()
    }

    #[test]
    fn both_syntaxes_say_the_same() {
        let yaml = models(YAML, Syntax::Yaml);
        assert_eq!(yaml, models(TOML, Syntax::Toml));
        let [m, other] = yaml.as_slice() else { panic!("{yaml:?}") };
        let shadow = Some(Shadow { version: 3, percent: 10 });
        assert_eq!(m.traffic, Some(Traffic { weights: [(1, 95), (2, 5)].into(), shadow }));
        let Some(Source::Spec(spec)) = &m.source else { panic!("{m:?}") };
        assert_eq!((spec.slo.as_millis_f64(), spec.policy.to_string().contains("timeout")), (100.0, true));
        assert_eq!((other.source.is_none(), other.change.slo.map(|slo| slo.as_millis_f64())), (true, Some(50.0)));
    }

    #[test]
    fn mistakes_in_the_text_are_told_with_their_line() {
        let refused = |text: &str, syntax| match parse(text, syntax) {
            Err(message) => message,
            Ok(declared) => panic!("{text} is taken: {declared:?}"),
        };
        let message = refused("kind: model\nname: m\n---\nkind: model\nname: n\nslo: 5\n", Syntax::Yaml);
        assert!(message.contains("unknown field `slo`") && message.contains("line 6"), "{message}");
        let message = refused("name: m\n", Syntax::Yaml);
        assert!(message.contains("expected `kind: model`"), "{message}");
        let message = refused("kind: pod\nname: m\n", Syntax::Yaml);
        assert!(message.contains("pod") && message.contains("model"), "{message}");
        let message = refused("kind: model\nname: m\ntraffic: { weights: { 0: 5 } }\n", Syntax::Yaml);
        assert!(message.contains("a version, a number from 1"), "{message}");
        let message = refused("[[model]]\nname = \"m\"\n\nslo = 5\n", Syntax::Toml);
        assert!(message.contains("line 4") && message.contains("unknown field `slo`"), "{message}");
        let message = refused("[[tenant]]\nname = \"ann\"\nkeys = [\"secret\"]\n", Syntax::Toml);
        assert!(!message.contains("secret"), "{message}");
    }

    #[test]
    fn keys_that_do_not_go_together_are_refused_by_name() {
        let mistakes = [
            ("name: m", "it says nothing but the name"),
            ("slo_ms: 5", "it has no `name`"),
            ("name: m\nrepository: r\nslo_ms: 5", "slo_ms: the repository says everything"),
            ("name: m\nonnx: m.onnx\nemulated: true\nslo_ms: 5", "onnx and emulated"),
            ("name: m\nprofile: p.toml", "profile: it has no onnx"),
            ("name: m\nemulated: true\nprofile: p\nalpha_ms: 1\nslo_ms: 5", "alpha_ms or beta_ms"),
            ("name: m\nemulated: true\nalpha_ms: 1\nslo_ms: 5", "give profile FILE"),
            ("name: m\nemulated: true\nalpha_ms: 1\nbeta_ms: 5", "it has no `slo_ms`"),
            ("name: m\nemulated: true\nalpha_ms: 1\nbeta_ms: 5\nslo_ms: 0", "slo_ms 0: expected a positive number"),
            ("name: m@2\ntraffic: {}", "traffic: expected beside a name without a version"),
        ];
        for (keys, word) in mistakes {
            let text = format!("kind: model\n{keys}\n");
            let Declared::Models(models) = parse(&text, Syntax::Yaml).unwrap() else { panic!("no models") };
            let message = format!("{:#}", models[0].wanted(Path::new("/etc")).unwrap_err());
            assert!(message.contains(word), "{keys}: {message}");
        }
    }
}
