//! Where a cluster or a federation is, who asks, and which command it is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::BoolishValueParser;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches};
use symphony_net::{CredentialFiles, Credentials, Net, Role};
use symphony_transport::ControlClient;
use symphony_types::OperationId;

use crate::contexts::{self, Context, Contexts, Named};
use crate::exit::bad_input;

/// The operator that `symphony up` makes a certificate for, and the default identity of tools.
pub(crate) const OPERATOR: (Role, &str) = (Role::Operator, "admin");

/// The frontend that `symphony up` makes a certificate for, and the default identity of a load generator.
pub(crate) const LOAD_FRONTEND: (Role, &str) = (Role::Frontend, "load");

/// Where `symphony up` keeps certificates by default.
pub(crate) const PKI_OF_UP: &str = "symphony-up/pki";

/// Where the replicas of `symphony up` are by default.
pub(crate) const CLUSTER_OF_UP: &str = "127.0.0.1:7001,127.0.0.1:7011,127.0.0.1:7021";

/// Where the cluster is, and who asks: what counts of [`ClusterOptions`].
#[derive(Clone, Debug)]
pub(crate) struct ClusterArgs {
    options: ClusterOptions,
    /// The command line itself names the context: it is stronger than variables.
    names_context: bool,
}

/// The options and variables for the cluster's address and the caller's identity.
#[derive(Clone, Debug, Default, Args)]
struct ClusterOptions {
    /// Context to use, from the file that `symphony context` writes. It provides what no other option gives; other
    /// environment variables are ignored then. Given as SYMPHONY_CONTEXT, it provides what neither an option nor
    /// another variable gives. Default: the current context, unless the command line or SYMPHONY_CLUSTER says where the
    /// cluster is. An empty name means no context.
    #[arg(long, env = "SYMPHONY_CONTEXT", value_name = "NAME")]
    context: Option<String>,
    /// Control addresses of scheduler replicas, tried until one answers. Default: those of the context, or else of
    /// `symphony up`.
    #[arg(long = "cluster", env = "SYMPHONY_CLUSTER", value_name = "HOST:PORT,…", value_delimiter = ',')]
    cluster: Vec<String>,
    /// Folder with ca.pem and the caller's certificate. Default: symphony-up/pki, which `symphony up` makes, if it
    /// exists.
    #[arg(long, env = "SYMPHONY_PKI", value_name = "DIR")]
    pki: Option<PathBuf>,
    /// Identity of the caller: the name of its certificate's file, without .pem. Default: operator-admin, or
    /// frontend-load for `load --protocol native`.
    #[arg(long, env = "SYMPHONY_IDENTITY", value_name = "ROLE-NAME")]
    identity: Option<String>,
    /// Use plaintext, for a cluster without certificates.
    #[arg(long, env = "SYMPHONY_INSECURE_DEV", conflicts_with = "pki")]
    insecure_dev: bool,
}

/// Certificates, and whose they must be.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    dir: PathBuf,
    /// The operator, as the context names it.
    operator: Option<String>,
    /// The context, and the cluster whose certificates it names.
    of: Option<(String, String)>,
}

/// Whether an option is on the command line: a variable gives it a value, too.
fn is_on_line(matches: &ArgMatches, option: &str) -> bool {
    matches.value_source(option) == Some(ValueSource::CommandLine)
}

impl Args for ClusterArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        ClusterOptions::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        ClusterOptions::augment_args_for_update(command)
    }
}

impl FromArgMatches for ClusterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self::of(ClusterOptions::from_arg_matches(matches)?, |option| is_on_line(matches, option)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl ClusterArgs {
    /// Which options count: those of the command line, then the context that it names, then variables, then the current
    /// context.
    fn of(mut options: ClusterOptions, is_on_line: impl Fn(&str) -> bool) -> Self {
        let names_context = is_on_line("context");
        if names_context && options.context.as_ref().is_some_and(|name| !name.is_empty()) {
            // Variables may be those of another cluster.
            let ClusterOptions { context: _, cluster, pki, identity, insecure_dev } = &mut options;
            if !is_on_line("cluster") {
                cluster.clear();
            }
            pki.take_if(|_| !is_on_line("pki"));
            identity.take_if(|_| !is_on_line("identity"));
            *insecure_dev &= is_on_line("insecure_dev");
        }
        let args = Self { options, names_context };
        if is_on_line("cluster") { args.at_another_place() } else { args }
    }

    /// For an address that the command line gives: nothing of a context is for it, unless the command line names the
    /// context, too.
    pub(crate) fn at_another_place(mut self) -> Self {
        if !self.names_context {
            self.options.context = Some(String::new());
        }
        self
    }

    /// Whether the command line names a context, so that variables do not count beside it.
    pub(crate) fn is_by_named_context(&self) -> bool {
        self.names_context && self.has_context()
    }

    /// The context that applies, if one does.
    ///
    /// # Errors
    /// If the file cannot be used, or has none of that name.
    pub(crate) fn context(&self) -> anyhow::Result<Option<Named>> {
        if !self.has_context() {
            return Ok(None);
        }
        let Some(path) = contexts::path() else { return self.choose(&Contexts::default(), Path::new("")) };
        self.choose(&Contexts::read(&path)?, path.parent().unwrap_or(Path::new("")))
    }

    /// An explicit address may be that of another cluster than the current context's: the context's certificates and
    /// keys are not for it.
    fn has_context(&self) -> bool {
        self.options.context.as_ref().map_or(self.options.cluster.is_empty(), |name| !name.is_empty())
    }

    fn choose(&self, contexts: &Contexts, folder: &Path) -> anyhow::Result<Option<Named>> {
        if !self.has_context() {
            return Ok(None);
        }
        contexts.choose(self.options.context.as_deref(), folder).map_err(bad_input)
    }

    /// Control addresses of the scheduler replicas.
    pub(crate) fn addresses(&self) -> anyhow::Result<Vec<String>> {
        if !self.options.cluster.is_empty() {
            return Ok(self.options.cluster.clone());
        }
        addresses_in(self.context()?, "schedulers", CLUSTER_OF_UP, |context| context.schedulers)
    }

    /// Control addresses of the federation's replicas.
    pub(crate) fn federation_addresses(&self) -> anyhow::Result<Vec<String>> {
        addresses_in(self.context()?, "federation", FEDERATION_OF_UP, |context| context.federation)
    }

    /// Where certificates are; none in plaintext.
    pub(crate) fn pki_dir(&self) -> anyhow::Result<Option<PathBuf>> {
        Ok(self.shown(|| self.context())?.map(|shown| shown.dir))
    }

    /// Certificates to show, and whose; none in plaintext.
    fn shown(&self, context: impl FnOnce() -> anyhow::Result<Option<Named>>) -> anyhow::Result<Option<Shown>> {
        if self.options.insecure_dev {
            return Ok(None);
        }
        let given = self.options.pki.clone();
        let Some(Named { name, context }) = context()? else {
            return Ok(Some(Shown { dir: given.map_or_else(pki_of_up, Ok)?, operator: None, of: None }));
        };
        if context.insecure_dev && given.is_none() {
            return Ok(None);
        }
        // Certificates kept elsewhere are still used as the context says: its identity and its cluster.
        let dir = given.or(context.pki).map_or_else(pki_of_up, Ok)?;
        let of = context.cluster.map(|cluster| (name, cluster));
        Ok(Some(Shown { dir, operator: context.identity, of }))
    }

    /// The connections to the cluster.
    pub(crate) fn net(&self) -> anyhow::Result<Net> {
        self.net_as(OPERATOR)
    }

    /// The connections to the cluster, as this role and name unless an identity is given.
    pub(crate) fn net_as(&self, (role, name): (Role, &str)) -> anyhow::Result<Net> {
        let Some(Shown { dir, operator, of }) = self.shown(|| self.context())? else { return Ok(Net::plaintext()) };
        // A context names an operator, not a frontend.
        let operator = operator.filter(|_| role == Role::Operator);
        let identity = self.options.identity.clone().or(operator).unwrap_or_else(|| format!("{role}-{name}"));
        let file = |extension: &str| dir.join(format!("{identity}.{extension}"));
        let files = CredentialFiles { ca: dir.join("ca.pem"), cert: file("pem"), key: file("key") };
        let credentials = Credentials::load(files).map_err(bad_input)?;
        if let Some((context, cluster)) = of {
            let own = credentials.facts().identity.cluster;
            if own != cluster {
                let cert = file("pem");
                return Err(bad_input(format!(
                    "context `{context}` is of cluster `{cluster}`, and {} is a certificate of cluster `{own}`",
                    cert.display()
                )));
            }
        }
        Ok(Net::secured(Arc::new(credentials)))
    }

    /// The connections to the federation.
    pub(crate) fn federation_net(&self) -> anyhow::Result<Net> {
        self.for_federation().net()
    }

    /// Certificates that are given are the federation's own, whatever cluster the context is of.
    fn for_federation(&self) -> Self {
        let mut args = self.clone();
        if args.options.pki.is_some() {
            args.options.context = Some(String::new());
        }
        args
    }

    /// The cluster's control surface.
    pub(crate) fn control(&self) -> anyhow::Result<ControlClient> {
        ControlClient::new(&self.net()?, &self.addresses()?).map_err(bad_input)
    }
}

/// Where `symphony up` keeps certificates, if it has run here.
fn pki_of_up() -> anyhow::Result<PathBuf> {
    let up = Path::new(PKI_OF_UP);
    up.is_dir().then(|| up.to_owned()).ok_or_else(|| {
        bad_input(
            "no certificates: give their folder with --pki or SYMPHONY_PKI (`symphony up` prints it, `symphony certs` \
             makes them), name it in a context (`symphony context set`; beside --context no variable counts), or give \
             --insecure-dev for a cluster without any",
        )
    })
}

/// The frontend of a context under this key; without a context that of `symphony up`. A context's key is for its own
/// frontends, whatever listens here.
pub(crate) fn frontend_in(
    context: Option<Named>,
    key: &str,
    of_up: &str,
    frontend: impl FnOnce(Context) -> Option<String>,
) -> anyhow::Result<String> {
    let Some(Named { name, context }) = context else { return Ok(of_up.to_owned()) };
    frontend(context).ok_or_else(|| {
        bad_input(format!(
            "context `{name}` has no {key}; give it with `symphony context set {name} --{key} HOST:PORT`, or --frontend"
        ))
    })
}

/// The addresses of a context under this key; without a context those of `symphony up`.
fn addresses_in(
    context: Option<Named>,
    key: &str,
    of_up: &str,
    addresses: impl FnOnce(Context) -> Vec<String>,
) -> anyhow::Result<Vec<String>> {
    let Some(Named { name, context }) = context else {
        return Ok(of_up.split(',').map(str::to_owned).collect());
    };
    let addresses = addresses(context);
    if addresses.is_empty() {
        return Err(bad_input(format!(
            "context `{name}` has no {key}; give them with `symphony context set {name} --{key} HOST:PORT,…`"
        )));
    }
    Ok(addresses)
}

/// The caller's key at the public ports of frontends, and the authority that it trusts; and which of these the command
/// line gives.
#[derive(Debug)]
pub(crate) struct PublicArgs {
    options: PublicOptions,
    says_key_file: bool,
    says_public_ca: bool,
    says_insecure_key: bool,
}

#[derive(Debug, Default, Args)]
struct PublicOptions {
    /// File with the key of a tenant, for frontends that have tenants.
    #[arg(long, env = "SYMPHONY_KEY_FILE", value_name = "FILE")]
    key_file: Option<OsString>,
    /// PEM file with the authority of the frontends' public certificates; frontends are then called over TLS.
    #[arg(long, env = "SYMPHONY_PUBLIC_CA", value_name = "FILE")]
    public_ca: Option<OsString>,
    /// Send the key in plaintext beyond loopback, too: trust the network.
    #[arg(long, env = "SYMPHONY_INSECURE_KEY", value_parser = BoolishValueParser::new())]
    insecure_key: bool,
}

/// The files that are shown to frontends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PublicFiles {
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) public_ca: Option<PathBuf>,
    pub(crate) insecure_key: bool,
}

impl Args for PublicArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        PublicOptions::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        PublicOptions::augment_args_for_update(command)
    }
}

impl FromArgMatches for PublicArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            options: PublicOptions::from_arg_matches(matches)?,
            says_key_file: is_on_line(matches, "key_file"),
            says_public_ca: is_on_line(matches, "public_ca"),
            says_insecure_key: is_on_line(matches, "insecure_key"),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl PublicArgs {
    /// The options, or else the context; variables where the command line names no context. `of_named`: it names this
    /// one.
    pub(crate) fn files(&self, context: Context, of_named: bool) -> PublicFiles {
        let given = |path: &Option<OsString>, is_on_line: bool| {
            // The variables may be those of another cluster, whose key is not for this one.
            let counts = |path: &OsString| !path.is_empty() && (is_on_line || !of_named);
            path.clone().filter(counts).map(PathBuf::from)
        };
        let PublicOptions { key_file, public_ca, insecure_key } = &self.options;
        PublicFiles {
            key_file: given(key_file, self.says_key_file).or(context.key_file),
            public_ca: given(public_ca, self.says_public_ca).or(context.public_ca),
            insecure_key: *insecure_key && (self.says_insecure_key || !of_named),
        }
    }
}

/// Where the federation of `symphony up --clusters` is.
pub(crate) const FEDERATION_OF_UP: &str = "127.0.0.1:7501,127.0.0.1:7511,127.0.0.1:7521";

/// Whether a federation is asked instead of one cluster.
#[derive(Debug, Args)]
pub(crate) struct FederationArgs {
    /// Ask the federation, at these addresses of its replicas. Without addresses: those of the context, or of `symphony
    /// up --clusters`. --pki is then the folder of the federation's certificates.
    #[arg(long, value_name = "HOST:PORT,…", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) federation: Option<String>,
}

/// Which command it is.
#[derive(Debug, Args)]
pub(crate) struct OperationArgs {
    /// Operation id of an earlier command that got no answer, so that it is executed only once (among the last 1024
    /// operations); 32 hexadecimal digits. Default: a fresh id.
    #[arg(long, value_name = "ID")]
    pub(crate) operation_id: Option<OperationId>,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    /// The arguments as if nothing were in the environment.
    fn args(words: &[&str]) -> ClusterArgs {
        let cli = Cli::try_parse_from([&["symphony", "get", "models"][..], words].concat()).unwrap();
        let Command::Get(args) = cli.command else { panic!("another command") };
        args.cluster
    }

    fn contexts() -> Contexts {
        let context = |host: &str, identity: Option<&str>| Context {
            cluster: Some("blue".into()),
            schedulers: vec![format!("{host}:7001")],
            pki: Some("pki".into()),
            identity: identity.map(str::to_owned),
            ..Context::default()
        };
        let plain = Context { insecure_dev: true, ..Context::default() };
        let all =
            [("blue", context("blue", Some("operator-ann"))), ("other", context("other", None)), ("plain", plain)];
        Contexts {
            current: Some("blue".into()),
            contexts: all.map(|(name, context)| (name.to_owned(), context)).into(),
        }
    }

    /// The context that these words choose, by name.
    fn chosen(words: &[&str]) -> Option<Named> {
        args(words).choose(&contexts(), Path::new("/etc/ann")).unwrap()
    }

    #[test]
    fn options_are_stronger_than_a_context_and_another_cluster_has_nothing_of_the_current_one() {
        let name = |words: &[&str]| chosen(words).map(|named| named.name);
        assert_eq!(name(&[]).as_deref(), Some("blue"));
        assert_eq!(name(&["--context", "other"]).as_deref(), Some("other"));
        assert_eq!(name(&["--context="]), None);
        assert_eq!(name(&["--cluster", "h:1"]), None, "certificates and keys stay with their own cluster");
        assert_eq!(name(&["--cluster", "h:1", "--context", "other"]).as_deref(), Some("other"));
        let message = args(&["--context", "bleu"]).choose(&contexts(), Path::new("")).unwrap_err().to_string();
        assert!(message.contains("similar names: blue"), "{message}");

        let shown = |words: &[&str]| args(words).shown(|| Ok(chosen(words))).unwrap();
        let of_blue = Shown {
            dir: "/etc/ann/pki".into(),
            operator: Some("operator-ann".into()),
            of: Some(("blue".into(), "blue".into())),
        };
        let elsewhere = Shown { dir: "p".into(), operator: of_blue.operator.clone(), of: of_blue.of.clone() };
        assert_eq!(shown(&[]), Some(of_blue));
        assert_eq!(shown(&["--pki", "p"]), Some(elsewhere), "it still asks as the context says, and its cluster");
        let of_federation = |words: &[&str]| args(words).for_federation().has_context();
        assert!(of_federation(&[]) && !of_federation(&["--pki", "p"]), "they are of no cluster");
        assert_eq!(shown(&["--insecure-dev"]), None);
        assert_eq!(shown(&["--context", "plain"]), None);
        assert_eq!(shown(&["--context", "plain", "--pki", "p"]).unwrap().dir, Path::new("p"));
    }

    /// The arguments if these options are on the command line, and all others of `options` in the environment.
    fn given(options: &ClusterOptions, on_line: &[&str]) -> ClusterArgs {
        ClusterArgs::of(options.clone(), |option| on_line.contains(&option))
    }

    fn options(context: Option<&str>) -> ClusterOptions {
        ClusterOptions {
            context: context.map(str::to_owned),
            cluster: vec!["h:1".into()],
            pki: Some("p".into()),
            identity: Some("operator-bob".into()),
            insecure_dev: true,
        }
    }

    #[test]
    fn a_context_on_the_command_line_is_stronger_than_variables_and_an_option_is_stronger_than_it() {
        let all = options(Some("blue"));
        let ClusterArgs { options: counts, .. } = given(&all, &["context"]);
        assert_eq!((counts.context.as_deref(), counts.cluster.len(), counts.pki), (Some("blue"), 0, None));
        assert_eq!((counts.identity, counts.insecure_dev), (None, false), "of another cluster");
        let ClusterArgs { options: counts, .. } = given(&all, &["context", "cluster", "identity"]);
        assert_eq!((counts.cluster.len(), counts.pki), (1, None));
        assert_eq!(counts.identity.as_deref(), Some("operator-bob"));
        let ClusterArgs { options: counts, .. } = given(&options(Some("")), &["context"]);
        assert_eq!((counts.cluster.len(), counts.insecure_dev), (1, true), "no context is meant: variables count");
        let ClusterArgs { options: counts, .. } = given(&all, &[]);
        assert_eq!((counts.context.as_deref(), counts.cluster.len()), (Some("blue"), 1), "variables, one by one");
    }

    #[test]
    fn an_address_on_the_command_line_has_nothing_of_a_context_that_a_variable_names() {
        let name = |args: &ClusterArgs| args.choose(&contexts(), Path::new("")).unwrap().map(|named| named.name);
        let of_variable = ClusterOptions { context: Some("blue".into()), ..ClusterOptions::default() };
        assert_eq!(name(&given(&of_variable, &[])).as_deref(), Some("blue"));
        assert_eq!(name(&given(&options(Some("blue")), &["cluster"])), None);
        assert_eq!(name(&given(&options(Some("blue")), &["cluster", "context"])).as_deref(), Some("blue"));
        // --federation=HOST and --frontend are such addresses, too.
        assert_eq!(name(&given(&of_variable, &[]).at_another_place()), None);
        assert_eq!(name(&given(&ClusterOptions::default(), &[]).at_another_place()), None, "nor of the current one");
        assert_eq!(name(&given(&of_variable, &["context"]).at_another_place()).as_deref(), Some("blue"));
    }

    #[test]
    fn the_key_of_a_variable_is_not_for_a_context_that_the_command_line_names() {
        let options = || PublicOptions { key_file: Some("variable".into()), ..PublicOptions::default() };
        let key = |says_key_file, of_named, of_context: Option<&str>| {
            let context = Context { key_file: of_context.map(PathBuf::from), ..Context::default() };
            let args =
                PublicArgs { options: options(), says_key_file, says_public_ca: false, says_insecure_key: false };
            args.files(context, of_named).key_file.map(|path| path.display().to_string())
        };
        let insecure = |says_insecure_key, of_named| {
            let options = PublicOptions { insecure_key: true, ..PublicOptions::default() };
            let args = PublicArgs { options, says_key_file: false, says_public_ca: false, says_insecure_key };
            args.files(Context::default(), of_named).insecure_key
        };
        assert_eq!([insecure(false, false), insecure(true, true), insecure(false, true)], [true, true, false]);
        assert_eq!(key(false, false, Some("blue")).as_deref(), Some("variable"));
        assert_eq!(key(false, true, Some("blue")).as_deref(), Some("blue"));
        assert_eq!(key(false, true, None), None);
        assert_eq!(key(true, true, Some("blue")).as_deref(), Some("variable"), "it is an option");
        let cluster = args(&["--context", "blue"]);
        assert!(cluster.is_by_named_context() && !args(&[]).is_by_named_context());
    }

    #[test]
    fn a_context_without_a_frontend_does_not_send_its_key_to_this_machine() {
        let of = |context| frontend_in(context, "frontend-grpc", "127.0.0.1:8001", |context| context.frontend_grpc);
        assert_eq!(of(None).unwrap(), "127.0.0.1:8001");
        let message = of(chosen(&[])).unwrap_err().to_string();
        assert!(message.contains("context `blue` has no frontend-grpc"), "{message}");
        let context = Context { frontend_grpc: Some("f:8001".into()), ..Context::default() };
        assert_eq!(of(Some(Named { name: "blue".into(), context })).unwrap(), "f:8001");
    }

    #[test]
    fn addresses_are_those_of_the_context_and_without_one_those_of_up() {
        let of =
            |words: &[&str]| addresses_in(chosen(words), "schedulers", CLUSTER_OF_UP, |context| context.schedulers);
        assert_eq!(of(&[]).unwrap(), ["blue:7001"]);
        assert_eq!(of(&["--context="]).unwrap().join(","), CLUSTER_OF_UP);
        let message = of(&["--context", "plain"]).unwrap_err().to_string();
        assert!(message.contains("context `plain` has no schedulers"), "{message}");
        assert_eq!(args(&["--cluster", "h:1,h:2"]).addresses().unwrap(), ["h:1", "h:2"]);
    }
}
