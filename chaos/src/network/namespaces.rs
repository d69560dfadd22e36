//! Each process in a network namespace of its own, on a bridge. A link is cut by telling the sender that the receiver
//! has the hardware address of a sink: what it sends arrives there and nowhere else.
//!
//! Real packets are dropped, silently, before any socket sees them: connections neither end nor refuse, and go on after
//! a retransmission once the address is right again. Everything is named after this process's id, made by this run and
//! removed with it. All of it is done with `ip` and `bridge`, and needs nothing of the kernel but namespaces, a bridge
//! and pairs of interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
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
/// Hardware address of the sink, which no interface has.
const SINK: &str = "02:00:00:00:ff:ff";

#[derive(Debug)]
struct Namespace {
    name: String,
    /// Its interface, inside.
    interface: String,
    address: String,
    hardware: String,
    ports_used: u16,
    /// The addresses that it does not reach.
    cut_from: BTreeSet<Process>,
}

#[derive(Debug)]
pub(crate) struct Namespaces {
    bridge: String,
    /// The interface of the bridge behind which everything vanishes.
    sink: String,
    each: BTreeMap<Process, Namespace>,
}

/// Runs a program, with lines to read if there are any; its complaint is the error.
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

fn bridge(args: &str) -> Result<()> {
    run("bridge", &args.split(' ').collect::<Vec<_>>(), None).map(drop)
}

impl Namespaces {
    /// Makes a bridge and one namespace for each process.
    ///
    /// # Errors
    /// Without root, without `ip` and `bridge`, or if no network is free.
    pub(crate) fn new(processes: &Processes) -> Result<Self> {
        let taken = ip("-o addr")?;
        let subnet = (0..=255).map(|n| format!("{PREFIX}.{n}")).find(|net| !taken.contains(&format!(" {net}.")));
        let subnet = subnet.with_context(|| format!("every network of {PREFIX}.0.0/16 is taken"))?;
        let id = std::process::id();
        // Interface names have at most 15 bytes.
        let (bridge, sink) = (format!("chaos{id}"), format!("cs{id}"));
        // The first thing that takes root.
        ip(&format!("link add {bridge} type bridge"))?;
        let mut this = Self { bridge, sink, each: BTreeMap::new() };
        ip(&format!("addr add {subnet}.1/24 dev {}", this.bridge))?;
        ip(&format!("link set {} up", this.bridge))?;
        this.make_sink()?;
        for (number, process) in (2..).zip(processes.all()) {
            ensure!(number < 255, "more processes than addresses");
            let name = format!("chaos{id}-{number}");
            let (outer, interface) = (format!("cv{id}x{number}"), format!("cw{id}x{number}"));
            let (address, hardware) = (format!("{subnet}.{number}"), format!("02:00:00:00:00:{number:02x}"));
            ip(&format!("netns add {name}"))?;
            let namespace = Namespace { name, interface, address, hardware, ports_used: 0, cut_from: BTreeSet::new() };
            let Namespace { name, interface, address, hardware, .. } = this.each.entry(process).or_insert(namespace);
            ip(&format!("link add {outer} type veth peer name {interface} address {hardware} netns {name}"))?;
            ip(&format!("link set {outer} master {} up", this.bridge))?;
            ip(&format!("-n {name} addr add {address}/24 dev {interface}"))?;
            ip(&format!("-n {name} link set {interface} up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(this)
    }

    /// A pair of interfaces that gets what is sent to [`SINK`] and nothing that is sent to all.
    fn make_sink(&self) -> Result<()> {
        let (sink, end) = (&self.sink, format!("{}e", self.sink));
        ip(&format!("link add {sink} type veth peer name {end}"))?;
        ip(&format!("link set {end} addrgenmode none up"))?;
        ip(&format!("link set {sink} addrgenmode none master {} up", self.bridge))?;
        bridge(&format!("link set dev {sink} flood off mcast_flood off bcast_flood off"))?;
        bridge(&format!("fdb add {SINK} dev {sink} master static"))
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

    /// This program inside the namespace. `ip` becomes that program: the process id stays.
    pub(crate) fn place(&self, process: Process, mut spec: ChildSpec) -> Result<ChildSpec> {
        let inside = ["netns", "exec", self.of(process)?.name.as_str()].map(str::to_owned);
        let program = spec.program.to_str().context("the program's path is no text")?.to_owned();
        spec.args.splice(0..0, inside.into_iter().chain([program]));
        spec.program = "ip".into();
        Ok(spec)
    }

    /// Has what is sent over links that are cut go to the sink; one command for each sender, all at once.
    pub(crate) fn set(&mut self, troubles: &Troubles) -> Result<()> {
        if let Some((ends, _)) = troubles.iter().find(|(_, trouble)| !trouble.effect.is_none()) {
            bail!("the link from {} to {} shall be slowed or harmed: that takes the fault proxy", ends.0, ends.1);
        }
        let mut wanted: BTreeMap<Process, BTreeSet<Process>> = BTreeMap::new();
        for ((from, to), _) in troubles.iter().filter(|(_, trouble)| trouble.cut) {
            wanted.entry(*from).or_default().insert(*to);
        }
        let mut running = Vec::new();
        let ends: BTreeMap<_, _> =
            self.each.iter().map(|(&to, n)| (to, (n.address.clone(), n.hardware.clone()))).collect();
        for (process, Namespace { name, interface, cut_from, .. }) in &mut self.each {
            let cut = wanted.remove(process).unwrap_or_default();
            let mut lines = String::new();
            for to in cut.symmetric_difference(cut_from) {
                let (address, hardware) = ends.get(to).with_context(|| format!("no namespace of {to}"))?;
                let hardware = if cut.contains(to) { SINK } else { hardware };
                writeln!(lines, "neigh replace {address} lladdr {hardware} dev {interface} nud permanent")?;
            }
            *cut_from = cut;
            if !lines.is_empty() {
                let name = name.clone();
                running.push(std::thread::spawn(move || run("ip", &["-n", &name, "-batch", "-"], Some(&lines))));
            }
        }
        for one in running {
            one.join().map_err(|_| anyhow::anyhow!("a thread that cuts links panicked"))??;
        }
        Ok(())
    }

    /// Packets dropped so far.
    pub(crate) fn dropped(&self) -> Result<u64> {
        let counter = format!("/sys/class/net/{}/statistics/tx_packets", self.sink);
        let packets = std::fs::read_to_string(&counter).with_context(|| format!("cannot read {counter}"))?;
        packets.trim().parse().with_context(|| format!("{counter} counts packets"))
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
        for link in [&self.sink, &self.bridge] {
            if let Err(error) = ip(&format!("link del {link}")) {
                eprintln!("interface {link} may be left behind: {error:#}");
            }
        }
    }
}
