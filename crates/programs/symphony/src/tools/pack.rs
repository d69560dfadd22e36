//! `symphony plan pack`: how many GPUs sessions need, and which share one, without a cluster.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use symphony_packing::{
    NODES_MAX, PackedNode, PackedSession, RepackedNode, Session, moves, nodes_at_most, repack, squishy_bin_packing,
};
use symphony_placement::{NamedSession, read_sessions};
use symphony_types::Nanos;

use crate::cli::{Output, PackArgs};
use crate::exit::bad_input;
use crate::inspect::table;

/// The most nodes in the table; JSON has all.
const NODES_SHOWN: usize = 50;

pub(crate) fn run(args: &PackArgs) -> anyhow::Result<()> {
    let named = read(&args.sessions)?;
    let sessions: Vec<Session<'_>> = named.iter().map(NamedSession::session).collect();
    if let Some(hopeless) = named.iter().find(|session| !session.is_servable()) {
        let (slo, least) = (hopeless.slo.as_millis_f64(), hopeless.profile.latency(1).as_millis_f64());
        anyhow::bail!(
            "session {} can meet its SLO on no GPU: slo_ms is {slo}, and waiting for a batch of one item and running in the \
             next takes {}",
            hopeless.name,
            2.0 * least
        );
    }
    let needed = nodes_at_most(&sessions);
    if needed > NODES_MAX as f64 {
        let file = args.sessions.display();
        return Err(bad_input(format!(
            "{file}: key `session.rate_rps`: expected rates that at most {NODES_MAX} GPUs serve, got {needed:.0} GPUs"
        )));
    }
    let previous = args.previous.as_deref().map(|path| read_previous(path, &named)).transpose()?;
    let nodes = match &previous {
        Some(previous) => repack(&sessions, previous),
        None => squishy_bin_packing(&sessions).into_iter().map(|node| RepackedNode { node, from: None }).collect(),
    };
    let moved = previous.as_deref().map(|previous| moves(previous, &nodes));
    match args.output {
        Output::Json => {
            let nodes: Vec<_> = nodes.iter().map(|node| node_json(&named, node)).collect();
            let mut whole = json!({ "gpus": nodes.len(), "nodes": nodes });
            if let Some(moved) = moved {
                whole["moves"] = json!(moved);
            }
            println!("{}", serde_json::to_string_pretty(&whole)?);
        }
        Output::Table => show(&named, &nodes, moved),
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Vec<NamedSession>> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| bad_input(format!("{file}: {error}")))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let read_csv = |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string());
    read_sessions(&file, &text, &read_csv).map_err(bad_input)
}

/// What is needed of an earlier output.
#[derive(Debug, Deserialize)]
struct PackText {
    nodes: Vec<NodeText>,
}

#[derive(Debug, Deserialize)]
struct NodeText {
    sessions: Vec<PlaceText>,
}

#[derive(Debug, Deserialize)]
struct PlaceText {
    name: String,
    #[serde(default)]
    occupancy: f64,
}

/// The nodes in force. Sessions that are no longer there leave theirs; rates and batches are those of today.
fn read_previous(path: &Path, named: &[NamedSession]) -> anyhow::Result<Vec<PackedNode>> {
    let file = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| bad_input(format!("{file}: {error}")))?;
    let refused =
        |why: String| bad_input(format!("{file}: expected a packing as `symphony plan pack -o json` prints it: {why}"));
    let parsed: PackText = serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
    if parsed.nodes.len() > NODES_MAX {
        return Err(refused(format!("expected at most {NODES_MAX} nodes, got {}", parsed.nodes.len())));
    }
    let index: BTreeMap<&str, usize> =
        named.iter().enumerate().map(|(at, session)| (session.name.as_str(), at)).collect();
    let node = |node: &NodeText| {
        let known = node.sessions.iter().filter_map(|place| Some((*index.get(place.name.as_str())?, place.occupancy)));
        let (sessions, shares): (Vec<_>, Vec<f64>) =
            known.map(|(session, share)| (PackedSession { session, batch: 1, rate_per_second: 0.0 }, share)).unzip();
        PackedNode { duty: Nanos::ZERO, sessions, occupancy: shares.iter().sum() }
    };
    Ok(parsed.nodes.iter().map(node).collect())
}

/// The share of the duty cycle that a session uses.
fn occupancy(named: &[NamedSession], node: &PackedNode, packed: &PackedSession) -> f64 {
    named[packed.session].profile.latency(packed.batch).as_secs_f64() / node.duty.as_secs_f64()
}

fn node_json(named: &[NamedSession], repacked: &RepackedNode) -> Value {
    let node = &repacked.node;
    let session = |packed: &PackedSession| {
        json!({ "name": named[packed.session].name, "batch": packed.batch, "rate_rps": packed.rate_per_second,
                "occupancy": occupancy(named, node, packed) })
    };
    let sessions: Vec<_> = node.sessions.iter().map(session).collect();
    json!({ "duty_ms": node.duty.as_millis_f64(), "occupancy": node.occupancy, "previous": repacked.from,
            "sessions": sessions })
}

fn show(named: &[NamedSession], nodes: &[RepackedNode], moved: Option<usize>) {
    let row = |(at, repacked): (usize, &RepackedNode)| {
        let node = &repacked.node;
        let session = |packed: &PackedSession| {
            format!("{} × {} ({:.1} r/s)", packed.batch, named[packed.session].name, packed.rate_per_second)
        };
        let sessions: Vec<_> = node.sessions.iter().map(session).collect();
        vec![
            at.to_string(),
            repacked.from.map_or_else(|| "-".to_owned(), |from| from.to_string()),
            format!("{:.1}", node.duty.as_millis_f64()),
            format!("{:.0} %", 100.0 * node.occupancy),
            sessions.join(", "),
        ]
    };
    let rows: Vec<_> = nodes.iter().enumerate().take(NODES_SHOWN).map(row).collect();
    table::print(&["GPU", "WAS", "DUTY MS", "BUSY", "EACH DUTY CYCLE"], &rows);
    if nodes.len() > NODES_SHOWN {
        println!("… and {} more: -o json has all", nodes.len() - NODES_SHOWN);
    }
    // Not `sum`, which is −0 for nothing.
    let busy = nodes.iter().fold(0.0, |busy, repacked| busy + repacked.node.occupancy);
    let mean = 100.0 * busy / nodes.len().max(1) as f64;
    println!("{} GPUs, {mean:.0} % busy on average", nodes.len());
    if let Some(moved) = moved {
        println!("{moved} models are loaded where they were not");
    }
}
