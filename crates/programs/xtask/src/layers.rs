//! Which crate may depend on which: dependencies go down only, roles never depend on each other, and the core reaches
//! no I/O. The folder of a crate is its layer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::metadata::{Declared, Metadata, Package};

/// A layer. A package may depend on its own layer, roles excepted, and on those below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    /// The vocabulary.
    Types,
    /// Decisions, pure.
    Core,
    /// Bytes, clocks, disks, sockets.
    Edge,
    /// Edges wired to cores.
    Role,
    /// Programs and tests.
    Program,
}

/// What the core never reaches, not even through other packages: runtimes, networks, disks, clocks.
const BEYOND_THE_CORE: [&str; 18] = [
    "tokio",
    "tonic",
    "openraft",
    "sled",
    "redb",
    "axum",
    "hyper",
    "reqwest",
    "mio",
    "socket2",
    "ort",
    "nix",
    "crossbeam",
    "core_affinity",
    "tracing-subscriber",
    "prometheus-client",
    "highs",
    "highs-sys",
];

/// Features that plant bugs, and the only package that may enable them.
const PLANTED_BUGS: [(&str, &str, &str); 1] = [("symphony-consensus", "crash-suite", "symphony-crash")];

/// The layer of a package: its folder below `crates/`. None if that folder is not a layer.
pub(crate) fn layer(package: &Package) -> Option<Layer> {
    let mut folders = package.folder().iter().filter_map(|part| part.to_str());
    match (folders.next(), folders.next()) {
        (Some("crates"), Some("types")) => Some(Layer::Types),
        (Some("crates"), Some("core")) => Some(Layer::Core),
        (Some("crates"), Some("edges")) => Some(Layer::Edge),
        (Some("crates"), Some("roles")) => Some(Layer::Role),
        (Some("crates"), Some("programs" | "testing")) => Some(Layer::Program),
        (Some("crates"), _) => None,
        _ => Some(Layer::Program),
    }
}

/// All violations.
pub(crate) fn problems(metadata: &Metadata) -> Vec<String> {
    let members: BTreeSet<_> = metadata.members().map(|package| package.id.as_str()).collect();
    let edges = metadata.edges(true);
    let mut problems = Vec::new();
    for package in metadata.members() {
        let Some(from) = layer(package) else {
            problems.push(format!(
                "{} lies in {}, which is no layer; its folder belongs into one of crates/core, edges, roles, programs, testing",
                package.name,
                package.folder().display()
            ));
            continue;
        };
        let needed = edges.get(package.id.as_str()).into_iter().flatten();
        for other in needed.filter(|other| members.contains(other.id.as_str())) {
            let Some(to) = layer(other) else { continue };
            if to > from {
                problems.push(format!(
                    "{} ({from:?}) depends on {} ({to:?}); arrows go down only",
                    package.name, other.name
                ));
            } else if from == Layer::Role && to == Layer::Role {
                problems.push(format!("{} depends on {}; roles never depend on each other", package.name, other.name));
            }
        }
        for (of, feature, only) in PLANTED_BUGS {
            let asks =
                |dependency: &Declared| dependency.name == of && dependency.features.iter().any(|f| f == feature);
            if package.name != only && package.dependencies.iter().any(asks) {
                problems.push(format!("{} enables {of}/{feature}, which plants bugs; only {only} may", package.name));
            }
        }
        if from <= Layer::Core {
            problems.extend(impurities(package, &metadata.edges(false)));
        }
    }
    problems
}

/// Paths from a core package to something forbidden, shortest first, one per target.
fn impurities(package: &Package, edges: &BTreeMap<&str, Vec<&Package>>) -> Vec<String> {
    let mut came_from = BTreeMap::from([(package.id.as_str(), None)]);
    let mut open = VecDeque::from([package]);
    let mut found = Vec::new();
    while let Some(at) = open.pop_front() {
        if BEYOND_THE_CORE.contains(&at.name.as_str()) {
            let mut way = vec![at.name.as_str()];
            let mut step: &Package = at;
            while let Some(Some(before)) = came_from.get(step.id.as_str()).copied() {
                way.push(Package::name(before));
                step = before;
            }
            way.reverse();
            found.push(format!("{} must stay pure but reaches {}: {}", package.name, at.name, way.join(" → ")));
            continue;
        }
        for &next in edges.get(at.id.as_str()).into_iter().flatten() {
            if !came_from.contains_key(next.id.as_str()) {
                came_from.insert(next.id.as_str(), Some(at));
                open.push_back(next);
            }
        }
    }
    found
}

impl Package {
    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::planted;

    #[test]
    fn arrows_down_and_among_edges_are_fine() {
        let members = ["types", "core/simulator", "edges/config", "edges/telemetry", "roles/backend"];
        let edges: &[(&str, &[&str])] = &[
            ("symphony-simulator", &["symphony-types", "serde"]),
            ("symphony-telemetry", &["symphony-config", "tokio"]),
            ("symphony-backend", &["symphony-telemetry", "symphony-simulator", "tokio"]),
        ];
        assert_eq!(problems(&planted(&members, &["serde", "tokio"], edges)), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_up_a_meeting_of_roles_and_a_stranger_are_found() {
        let members = ["edges/config", "roles/backend", "roles/frontend", "gadget"];
        let edges: &[(&str, &[&str])] =
            &[("symphony-config", &["symphony-backend"]), ("symphony-backend", &["symphony-frontend"])];
        let found = problems(&planted(&members, &[], edges));
        assert_eq!(
            found,
            [
                "symphony-config (Edge) depends on symphony-backend (Role); arrows go down only",
                "symphony-backend depends on symphony-frontend; roles never depend on each other",
                "symphony-gadget lies in crates/gadget, which is no layer; its folder belongs into one of crates/core, edges, roles, programs, testing",
            ]
        );
    }

    #[test]
    fn planted_bugs_stay_where_they_are_wanted() {
        let mut metadata = planted(&["testing/crash", "testing/chaos"], &[], &[]);
        for package in &mut metadata.packages {
            let features = vec!["crash-suite".to_owned()];
            package.dependencies = vec![Declared { name: "symphony-consensus".into(), features }];
        }
        let expected =
            "symphony-chaos enables symphony-consensus/crash-suite, which plants bugs; only symphony-crash may";
        assert_eq!(problems(&metadata), [expected]);
    }

    #[test]
    fn a_core_that_reaches_a_runtime_through_others_is_found_with_the_way() {
        let members = ["types", "core/simulator"];
        let edges: &[(&str, &[&str])] = &[
            ("symphony-simulator", &["symphony-types", "helper"]),
            ("helper", &["deep"]),
            ("deep", &["tokio", "helper"]),
        ];
        let found = problems(&planted(&members, &["helper", "deep", "tokio"], edges));
        let expected =
            "symphony-simulator must stay pure but reaches tokio: symphony-simulator → helper → deep → tokio";
        assert_eq!(found, [expected]);
    }
}
