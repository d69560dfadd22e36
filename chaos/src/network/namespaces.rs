//! Each process in a network namespace of its own, on a bridge; nftables drops what shall not arrive.
//!
//! Real packets are dropped by the kernel, silently, before any socket sees them: connections neither end nor refuse, and
//! go on after a retransmission once the rule is gone. Everything is named after this process's id, made by this run and
//! removed with it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use symphony_config::Address;
use symphony_testkit::ChildSpec;

use super::Troubles;
use crate::cluster::{Process, Processes};

/// Networks of this prefix are tried in turn: 10.83.0.0/24 and so on. Private, and no network of anybody's by habit.
const PREFIX: &str = "10.83";
/// First port that a process listens on.
const FIRST_PORT: u16 = 7000;
/// Drops what comes from a blocked address before any socket sees it, and counts.
const RULES: &str = "table inet chaos {
    set blocked { type ipv4_addr; }
    counter dropped { }
    chain arriving {
        type filter hook input priority -300; policy accept;
        ip saddr @blocked counter name dropped drop
    }
}";

#[derive(Debug)]
struct Namespace {
    name: String,
    address: String,
    ports_used: u16,
    blocked: BTreeSet<String>,
}

#[derive(Debug)]
pub(crate) struct Namespaces {
    bridge: String,
    each: BTreeMap<Process, Namespace>,
}

/// Runs a program; its complaint is the error.
fn run(program: &str, args: &[&str], input: Option<&str>) -> Result<String> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = Command::new(program)
        .args(args)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", args.join(" "), complaint.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ip(args: &str) -> Result<String> {
    run("ip", &args.split(' ').collect::<Vec<_>>(), None)
}

impl Namespaces {
    /// Makes a bridge and one namespace for each process.
    ///
    /// # Errors
    /// Without root, without `ip` or `nft`, or if no network is free.
    pub(crate) fn new(processes: &Processes) -> Result<Self> {
        run("nft", &["--version"], None)?;
        let taken = ip("-o addr")?;
        let subnet = (0..=255).map(|n| format!("{PREFIX}.{n}")).find(|net| !taken.contains(&format!(" {net}.")));
        let subnet = subnet.with_context(|| format!("every network of {PREFIX}.0.0/16 is taken"))?;
        let id = std::process::id();
        // Interface names have at most 15 bytes.
        let bridge = format!("chaos{id}");
        // The first thing that takes root.
        ip(&format!("link add {bridge} type bridge"))?;
        let mut this = Self { bridge, each: BTreeMap::new() };
        ip(&format!("addr add {subnet}.1/24 dev {}", this.bridge))?;
        ip(&format!("link set {} up", this.bridge))?;
        for (number, process) in (2..).zip(processes.all()) {
            ensure!(number < 255, "more processes than addresses");
            let name = format!("chaos{id}-{number}");
            let (outer, inner) = (format!("cv{id}x{number}"), format!("cw{id}x{number}"));
            let address = format!("{subnet}.{number}");
            ip(&format!("netns add {name}"))?;
            let namespace = Namespace { name, address, ports_used: 0, blocked: BTreeSet::new() };
            let Namespace { name, address, .. } = this.each.entry(process).or_insert(namespace);
            ip(&format!("link add {outer} type veth peer name {inner} netns {name}"))?;
            ip(&format!("link set {outer} master {} up", this.bridge))?;
            ip(&format!("-n {name} addr add {address}/24 dev {inner}"))?;
            ip(&format!("-n {name} link set {inner} up"))?;
            ip(&format!("-n {name} link set lo up"))?;
            run("ip", &["netns", "exec", name, "nft", "-f", "-"], Some(RULES))?;
        }
        Ok(this)
    }

    fn of(&self, process: Process) -> Result<&Namespace> {
        self.each.get(&process).with_context(|| format!("no namespace of {process}"))
    }

    /// A fresh port at the process's address.
    pub(crate) fn address(&mut self, process: Process) -> Result<Address> {
        let namespace = self.each.get_mut(&process).with_context(|| format!("no namespace of {process}"))?;
        let port = FIRST_PORT + namespace.ports_used;
        namespace.ports_used += 1;
        Ok(format!("{}:{port}", namespace.address).parse()?)
    }

    /// The same program inside the namespace. `ip` becomes that program: the process id stays.
    pub(crate) fn place(&self, process: Process, mut spec: ChildSpec) -> Result<ChildSpec> {
        let inside = ["netns", "exec", self.of(process)?.name.as_str()].map(str::to_owned);
        let program = spec.program.to_str().context("the program's path is no text")?.to_owned();
        spec.args.splice(0..0, inside.into_iter().chain([program]));
        spec.program = "ip".into();
        Ok(spec)
    }

    /// Has every namespace drop what comes from those that are cut off from it; one transaction each, all at once.
    pub(crate) fn set(&mut self, troubles: &Troubles) -> Result<()> {
        if let Some((ends, _)) = troubles.iter().find(|(_, trouble)| !trouble.effect.is_none()) {
            bail!("the link from {} to {} shall be slowed or harmed: that takes the fault proxy", ends.0, ends.1);
        }
        let mut wanted: BTreeMap<Process, BTreeSet<String>> = BTreeMap::new();
        for ((from, to), _) in troubles.iter().filter(|(_, trouble)| trouble.cut) {
            wanted.entry(*to).or_default().insert(self.of(*from)?.address.clone());
        }
        let mut running = Vec::new();
        for (process, namespace) in &mut self.each {
            let blocked = wanted.remove(process).unwrap_or_default();
            if blocked == namespace.blocked {
                continue;
            }
            let mut script = "flush set inet chaos blocked\n".to_owned();
            for address in &blocked {
                script += &format!("add element inet chaos blocked {{ {address} }}\n");
            }
            let name = namespace.name.clone();
            running.push(std::thread::spawn(move || {
                run("ip", &["netns", "exec", &name, "nft", "-f", "-"], Some(&script))
            }));
            namespace.blocked = blocked;
        }
        for one in running {
            one.join().map_err(|_| anyhow::anyhow!("a thread that cuts links panicked"))??;
        }
        Ok(())
    }

    /// Packets dropped so far.
    pub(crate) fn dropped(&self) -> Result<u64> {
        let mut sum = 0;
        for Namespace { name, .. } in self.each.values() {
            let listed =
                run("ip", &["netns", "exec", name, "nft", "list", "counter", "inet", "chaos", "dropped"], None)?;
            let packets = listed.split_whitespace().skip_while(|word| *word != "packets").nth(1);
            sum += packets.and_then(|word| word.parse::<u64>().ok()).context("nft counts packets")?;
        }
        Ok(sum)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // A namespace takes its end of the pair with it, which takes the other end.
        for Namespace { name, .. } in self.each.values() {
            if let Err(error) = ip(&format!("netns del {name}")) {
                eprintln!("network namespace {name} may be left behind: {error:#}");
            }
        }
        if let Err(error) = ip(&format!("link del {}", self.bridge)) {
            eprintln!("bridge {} may be left behind: {error:#}", self.bridge);
        }
    }
}
