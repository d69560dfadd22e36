//! `symphony plan pack`: the Nexus paper's example, and what a change of rates moves.

use serde_json::Value;
use symphony_testkit::Workspace;
use symphony_tests::{ProgramOutput, phase, run};

/// Section 4.1 of the Nexus paper: Table 2 and the rates of Figure 2 (b).
const SESSIONS: &str = "
[[session]]
name = \"A\"
slo_ms = 200.0
rate_rps = 64.0
profile_csv = \"a.csv\"
[[session]]
name = \"B\"
slo_ms = 250.0
rate_rps = 32.0
profile_csv = \"b.csv\"
[[session]]
name = \"C\"
slo_ms = 250.0
rate_rps = 32.0
profile_csv = \"c.csv\"
";

fn workspace(name: &str) -> Workspace {
    let workspace = Workspace::new(name).unwrap();
    for (file, latencies) in [("a.csv", [50, 75, 100]), ("b.csv", [50, 90, 125]), ("c.csv", [60, 95, 125])] {
        let [four, eight, sixteen] = latencies;
        workspace.write(file, &format!("batch,latency_ms\n4,{four}\n8,{eight}\n16,{sixteen}\n")).unwrap();
    }
    workspace.write("s.toml", SESSIONS).unwrap();
    workspace
}

fn pack(workspace: &Workspace, rest: &[&str]) -> ProgramOutput {
    let args: Vec<_> = ["plan", "pack"].iter().chain(rest).copied().collect();
    run(workspace.path(), &[], &args).unwrap()
}

/// Name and batch of each session, node by node.
fn placed(pack: &Value) -> Vec<Vec<(String, u64)>> {
    let session = |session: &Value| (session["name"].as_str().unwrap().to_owned(), session["batch"].as_u64().unwrap());
    let node = |node: &Value| node["sessions"].as_array().unwrap().iter().map(session).collect();
    pack["nodes"].as_array().unwrap().iter().map(node).collect()
}

#[test]
fn the_papers_example_is_packed_as_in_its_figure_2() {
    let workspace = workspace("pack");
    let low = pack(&workspace, &["s.toml", "-o", "json"]).ended_with(0).json();
    let named = |nodes: &[&[(&str, u64)]]| -> Vec<Vec<(String, u64)>> {
        nodes.iter().map(|node| node.iter().map(|(name, batch)| ((*name).to_owned(), *batch)).collect()).collect()
    };
    assert_eq!(low["gpus"], 2);
    assert_eq!(placed(&low)[0], named(&[&[("A", 8), ("B", 4)]])[0]);
    assert_eq!(placed(&low)[1][0].0, "C", "60 ms do not fit beside A's 75 into 125");
    assert_eq!(low["nodes"][0]["duty_ms"], 125.0);
    let occupancy = |at: usize| low["nodes"][0]["sessions"][at]["occupancy"].as_f64().unwrap();
    assert!((occupancy(0) - 0.6).abs() < 1e-9 && (occupancy(1) - 0.4).abs() < 1e-9, "{low}");
    assert!(low["moves"].is_null());

    phase("(a): whole GPUs");
    let high = SESSIONS.replace("64.0", "320.0").replace("rate_rps = 32.0", "rate_rps = 128.0");
    workspace.write("high.toml", &high).unwrap();
    let high = pack(&workspace, &["high.toml", "-o", "json"]).ended_with(0).json();
    assert_eq!(placed(&high), named(&[&[("A", 16)], &[("A", 16)], &[("B", 16)], &[("C", 16)]]));
    let output = pack(&workspace, &["s.toml"]).ended_with(0);
    assert!(output.out.contains("8 × A (64.0 r/s), 4 × B (32.0 r/s)"), "{}", output.out);
    assert!(output.out.contains("2 GPUs"), "{}", output.out);
}

#[test]
fn with_the_packing_in_force_little_moves() {
    let workspace = workspace("repack");
    let first = pack(&workspace, &["s.toml", "-o", "json"]).ended_with(0);
    workspace.write("pack.json", &first.out).unwrap();
    let again = pack(&workspace, &["s.toml", "--previous", "pack.json", "-o", "json"]).ended_with(0).json();
    assert_eq!(again["moves"], 0);
    assert_eq!((&again["nodes"][0]["previous"], &again["nodes"][1]["previous"]), (&0.into(), &1.into()));

    phase("A grows, so that B has to go: to C");
    workspace.write("more.toml", &SESSIONS.replace("64.0", "90.0")).unwrap();
    let more = pack(&workspace, &["more.toml", "--previous", "pack.json", "-o", "json"]).ended_with(0).json();
    assert_eq!((&more["gpus"], &more["moves"]), (&2.into(), &1.into()), "{more}");
    assert_eq!(placed(&more)[0][0].0, "A");

    phase("A and B end: their GPU is given back");
    let rest = &SESSIONS[SESSIONS.rfind("[[session]]").unwrap()..];
    workspace.write("less.toml", rest).unwrap();
    let less = pack(&workspace, &["less.toml", "--previous", "pack.json", "-o", "json"]).ended_with(0).json();
    assert_eq!((&less["gpus"], &less["moves"]), (&1.into(), &0.into()), "{less}");
    let output = pack(&workspace, &["more.toml", "--previous", "pack.json"]).ended_with(0);
    assert!(output.out.contains("1 models are loaded where they were not"), "{}", output.out);
}

#[test]
fn what_cannot_be_served_and_bad_input_are_told_apart() {
    let workspace = workspace("no-pack");
    let run_with = |text: &str, more: &[&str]| {
        workspace.write("p.toml", text).unwrap();
        let args: Vec<_> = ["p.toml"].iter().chain(more).copied().collect();
        pack(&workspace, &args)
    };
    let _ = run_with(&SESSIONS.replace("200.0", "99.0"), &[]).ended_with(1).complains(&[
        "session A",
        "slo_ms is 99",
        "100",
    ]);
    let _ =
        run_with(&SESSIONS.replace("64.0", "1e9"), &[]).ended_with(2).complains(&["p.toml", "rate_rps", "100000 GPUs"]);
    let _ =
        run_with(&SESSIONS.replace("a.csv", "z.csv"), &[]).ended_with(2).complains(&["p.toml", "profile_csv", "z.csv"]);
    let _ =
        run_with(&SESSIONS.replace("slo_ms", "slo"), &[]).ended_with(2).complains(&["p.toml", "unknown field `slo`"]);
    let _ = run_with(&SESSIONS.replace("64.0", "-1.0"), &[]).ended_with(2).complains(&["session.0.rate_rps", "got -1"]);
    let _ = pack(&workspace, &["gone.toml"]).ended_with(2).complains(&["gone.toml"]);
    workspace.write("bad.json", "{\"gpus\": 2}").unwrap();
    let _ =
        run_with(SESSIONS, &["--previous", "bad.json"]).ended_with(2).complains(&["bad.json", "missing field `nodes`"]);
    let _ = run_with(SESSIONS, &["--previous", "gone.json"]).ended_with(2).complains(&["gone.json"]);
}
