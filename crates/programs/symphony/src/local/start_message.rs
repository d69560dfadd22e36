//! The text of `symphony up` when everything is up: addresses, and commands to continue with.

use std::fmt::Write as _;
use std::num::NonZero;
use std::path::Path;

use symphony_config::{Address, ClusterConfig, ExecutorKind, FrontendConfig, Timing};

use super::layout::Layout;
use super::local_federation::FederationLayout;
use crate::cli::{CLUSTER_OF_UP, FEDERATION_OF_UP, PKI_OF_UP};
use crate::contexts::Contexts;

/// The default target of `symphony load`.
const GRPC_OF_UP: &str = "127.0.0.1:8001";
/// Requests per second well within the capacity of the four emulated GPUs.
const EXAMPLE_RPS: u32 = 100;

/// For a cluster with its files in `dir`.
pub(super) fn cluster(layout: &Layout, dir: &Path) -> String {
    let mut text = format!("cluster {} is up\n", layout.cluster.name);
    surface(&mut text, &layout.frontend, dir);
    let metrics =
        layout.schedulers.iter().map(|own| &own.metrics).chain(layout.backends.iter().map(|own| &own.metrics));
    let metrics: Vec<_> = metrics.map(|metrics| format!("http://{metrics}/metrics")).collect();
    let _ = writeln!(text, "  metrics of schedulers and backends: {}", metrics.join(" "));
    let mut export = Vec::new();
    let control = control(layout);
    if control != CLUSTER_OF_UP {
        export.push(format!("SYMPHONY_CLUSTER={control}"));
    }
    if layout.security.insecure_dev {
        text.push_str("  plaintext: tools need --insecure-dev\n");
        export.push("SYMPHONY_INSECURE_DEV=true".to_owned());
    } else {
        certificates(&mut text, &mut export, "", dir);
    }
    if let Some(repository) = &layout.frontend.repository.dir {
        let token = layout.frontend.repository.token_file.as_ref();
        let token = token.map_or_else(String::new, |token| format!("; token: {}", token.display()));
        let _ = writeln!(text, "  model repository: {}{token}", repository.display());
    }
    exports(&mut text, &export);
    text.push_str(&cpu_warning(&layout.cluster, std::thread::available_parallelism().map_or(1, NonZero::get)));
    text.push_str("  try:\n    symphony get members\n");
    let emulated = layout.backends.iter().find(|b| b.executor == ExecutorKind::Emulated && b.gpus.len() == 1);
    if let Some(backend) = emulated {
        let kind = match backend.gpus[0].kind.as_str() {
            "emulated" => String::new(),
            kind => format!(" --gpu-kind {kind}"),
        };
        let line = "--emulated --alpha-ms 1 --beta-ms 5 --slo-ms 100";
        let _ = writeln!(text, "    symphony model load resnet {line} --subcluster {}{kind}", backend.subcluster);
        let _ = writeln!(text, "    symphony load --model resnet={EXAMPLE_RPS}{}", to_frontend(&layout.frontend));
    } else if let Some(backend) = layout.backends.first() {
        let files = "--onnx my.onnx --profile my.profile.toml --slo-ms 300";
        let _ = writeln!(text, "    symphony model load my {files} --subcluster {}", backend.subcluster);
    }
    text.push_str("stop with Ctrl-C\n");
    text
}

/// For several clusters with their files in folders of `dir`.
pub(super) fn federation(layout: &FederationLayout, dir: &Path) -> String {
    let mut text = format!("federation {} of {} clusters is up\n", layout.name, layout.clusters.len());
    surface(&mut text, &layout.frontend, dir);
    let tools = |cluster: &Layout| {
        let (control, own) = (control(cluster), FederationLayout::dir(dir, cluster));
        format!("--cluster {control} --pki {}", own.join("pki").display())
    };
    for cluster in &layout.clusters {
        let logs = FederationLayout::dir(dir, cluster).join("logs");
        let _ = writeln!(text, "  {}: {}; logs: {}", cluster.cluster.name, tools(cluster), logs.display());
    }
    let mut export = Vec::new();
    certificates(&mut text, &mut export, " of the federation", dir);
    exports(&mut text, &export);
    let named = match layout.control() {
        control if control == FEDERATION_OF_UP => "--federation".to_owned(),
        control => format!("--federation={control}"),
    };
    let [first, second, ..] = layout.clusters.as_slice() else { return text };
    let line = "--alpha-ms 1 --beta-ms 5 --slo-ms 100";
    let (begin, end) = (&first.cluster.name, &second.cluster.name);
    let _ = writeln!(text, "  try:\n    symphony get clusters {named}");
    let _ = writeln!(text, "    symphony model load resnet {line} {named} --to-cluster {begin}");
    let (tools, to_frontend) = (tools(first), to_frontend(&layout.frontend));
    let _ = writeln!(text, "    symphony load --model resnet={EXAMPLE_RPS} {tools}{to_frontend}");
    let _ = writeln!(text, "    symphony plan move --model resnet {named} --to-cluster {end}");
    text.push_str("stop with Ctrl-C\n");
    text
}

/// A note if the current context of tools is another cluster.
pub(super) fn context(contexts: &Contexts) -> String {
    let note = |current: &String| {
        format!("tools go by the context {current} by themselves; in their terminal: export SYMPHONY_CONTEXT=\n")
    };
    contexts.current.as_ref().map(note).unwrap_or_default()
}

/// Addresses for clients and people.
fn surface(text: &mut String, frontend: &FrontendConfig, dir: &Path) {
    let FrontendConfig { grpc, rest, metrics, .. } = frontend;
    let scheme = if frontend.tls.cert.is_some() { "https" } else { "http" };
    let _ = writeln!(text, "  Open Inference Protocol: gRPC {grpc}, REST {scheme}://{rest}/v2");
    let _ = writeln!(text, "  console: {scheme}://{metrics}/   metrics: {scheme}://{metrics}/metrics");
    if let Some(tenants) = &frontend.tenants {
        let _ = writeln!(text, "  clients need a key of {}; `symphony load` takes it by --key-file", tenants.display());
    }
    if scheme == "https" {
        text.push_str("  tools need the authority of the frontend's certificate: --public-ca\n");
    }
    let _ = writeln!(text, "  logs: {}", dir.join("logs").display());
}

fn certificates(text: &mut String, export: &mut Vec<String>, whose: &str, dir: &Path) {
    let pki = dir.join("pki");
    let _ = writeln!(text, "  certificates{whose}: {}, for tools run elsewhere: --pki or SYMPHONY_PKI", pki.display());
    if std::path::absolute(PKI_OF_UP).ok().as_ref() != Some(&pki) {
        export.push(format!("SYMPHONY_PKI={}", pki.display()));
    }
}

/// What replicas on one machine may run into: they need a core to spare each (docs/operating/replicas.md).
fn cpu_warning(cluster: &ClusterConfig, cores: usize) -> String {
    let replicas = cluster.scheduler.len();
    if cluster.timing != Timing::Lan || replicas < 2 || cores > replicas {
        return String::new();
    }
    format!(
        "  {replicas} replicas on {cores} cores with cluster.timing = \"lan\": one that waits 50 ms for a core is \
         declared down; `--set cluster.timing=relaxed` suits shared and small machines\n"
    )
}

/// Options that tools need to find this cluster.
fn exports(text: &mut String, export: &[String]) {
    if !export.is_empty() {
        let _ = writeln!(text, "  in the terminal of tools: export {}", export.join(" "));
    }
}

fn control(layout: &Layout) -> String {
    let control: Vec<_> = layout.cluster.scheduler.iter().map(|replica| replica.control.to_string()).collect();
    control.join(",")
}

/// Options that `symphony load` needs to find the frontend.
fn to_frontend(frontend: &FrontendConfig) -> String {
    let option = |grpc: &Address| format!(" --frontend {grpc}");
    if frontend.grpc.to_string() == GRPC_OF_UP { String::new() } else { option(&frontend.grpc) }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command, UpArgs};
    use crate::local::up;

    fn args(words: &[&str]) -> UpArgs {
        match Cli::try_parse_from([&["symphony", "up"], words].concat()).unwrap().command {
            Command::Up(args) => args,
            other => panic!("{other:?} is not `up`"),
        }
    }

    /// The commands in the text, each of which this program must accept.
    #[track_caller]
    fn commands(text: &str) -> Vec<&str> {
        let commands: Vec<_> = text.lines().map(str::trim).filter(|line| line.starts_with("symphony ")).collect();
        for command in &commands {
            Cli::try_parse_from(command.split_whitespace()).unwrap_or_else(|error| panic!("{command}: {error}"));
        }
        commands
    }

    fn standard_dir() -> std::path::PathBuf {
        std::path::absolute(PKI_OF_UP).unwrap().parent().unwrap().to_owned()
    }

    #[test]
    fn where_tools_look_by_themselves_they_are_told_nothing() {
        let text = cluster(&up::layout(&args(&[])).unwrap(), &standard_dir());
        assert!(!text.contains("export"), "{text}");
        let commands = commands(&text);
        assert!(commands[1].ends_with("--subcluster emulated"), "{commands:?}");
        assert_eq!(commands[2], "symphony load --model resnet=100");
    }

    #[test]
    fn who_has_a_current_context_is_told_how_not_to_go_by_it() {
        let current = Contexts { current: Some("blue".into()), ..Contexts::default() };
        assert!(context(&current).contains("blue") && context(&current).contains("SYMPHONY_CONTEXT="));
        assert_eq!(context(&Contexts::default()), "");
    }

    #[test]
    fn elsewhere_they_are_told_all_that_they_need() {
        let text = cluster(&up::layout(&args(&["--host", "127.0.0.2"])).unwrap(), Path::new("/elsewhere"));
        let export = "export SYMPHONY_CLUSTER=127.0.0.2:7001,127.0.0.2:7011,127.0.0.2:7021 SYMPHONY_PKI=/elsewhere/pki";
        assert!(text.contains(export) && text.contains("http://127.0.0.2:8002/metrics"), "{text}");
        assert!(!text.contains("127.0.0.1"), "{text}");
        assert_eq!(commands(&text)[2], "symphony load --model resnet=100 --frontend 127.0.0.2:8001");
        let plain = up::layout(&args(&["--set", "security.insecure_dev=true"])).unwrap();
        assert!(cluster(&plain, &standard_dir()).contains("export SYMPHONY_INSECURE_DEV=true"));
    }

    #[test]
    fn replicas_that_may_wait_for_cores_are_warned_of() {
        let cpu_warning = |set: &[&str], cores| super::cpu_warning(&up::layout(&args(set)).unwrap().cluster, cores);
        let lan = ["--set", "cluster.timing=lan"];
        let warning = cpu_warning(&lan, 2);
        assert!(
            warning.contains("3 replicas on 2 cores") && warning.contains("--set cluster.timing=relaxed"),
            "{warning}"
        );
        assert_eq!((cpu_warning(&lan, 4), cpu_warning(&[], 2)), (String::new(), String::new()));
    }

    #[test]
    fn the_example_fits_the_backend_that_the_configuration_has() {
        let dir = tempfile::tempdir().unwrap();
        let example = |backend: &str| {
            let file = dir.path().join("up.toml");
            let replica = "[[cluster.scheduler]]\nid = 1\ncontrol = \"127.0.0.1:7001\"\ndispatch = \"127.0.0.1:7002\"\n\
                           beat = \"127.0.0.1:7003\"\n";
            let rest = "[scheduler]\nid = 1\ndata_dir = \"raft\"\n[frontend]\nname = \"f\"\n[backend]\nname = \"b\"\n";
            std::fs::write(&file, format!("{replica}{rest}{backend}")).unwrap();
            cluster(&up::layout(&args(&["--config", file.to_str().unwrap()])).unwrap(), &standard_dir())
        };
        let gpus = "gpus = [{ kind = \"a100\", count = 2, memory_mb = 4096 }]\n";
        let emulated = example(&format!("subcluster = \"pool\"\nexecutor = \"emulated\"\n{gpus}"));
        assert!(commands(&emulated)[1].ends_with("--subcluster pool --gpu-kind a100"), "{emulated}");
        let real = example(&format!("subcluster = \"pool\"\n{}", gpus.replace("a100", "cpu")));
        assert!(commands(&real)[1].contains("--onnx my.onnx") && commands(&real)[1].ends_with("pool"), "{real}");
    }

    #[test]
    fn a_federation_says_how_it_is_asked_and_loaded() {
        let text_with = |words: &[&str]| {
            let args = args(&[&["--clusters", "2"], words].concat());
            let layout = up::federation(&up::layout(&args).unwrap(), 2, 10_000, up::federation_host(&args));
            federation(&layout, Path::new("/elsewhere"))
        };
        let text = text_with(&[]);
        assert_eq!(commands(&text)[0], "symphony get clusters --federation");
        let load = "symphony load --model resnet=100 --cluster 127.0.0.1:7001,127.0.0.1:7011,127.0.0.1:7021 --pki \
                    /elsewhere/dev-1/pki";
        assert_eq!(commands(&text)[2], load);
        let text = text_with(&["--host", "127.0.0.2"]);
        assert!(!text.contains("127.0.0.1"), "{text}");
        assert!(commands(&text)[3].contains("--federation=127.0.0.2:7501,127.0.0.2:7511,127.0.0.2:7521"), "{text}");
    }
}
