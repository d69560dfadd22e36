//! `symphony trace convert`: published traces become arrivals that a scenario plays; other files are refused with the
//! line.

use symphony_testkit::Workspace;
use symphony_tests::{ProgramOutput, alone, phase, run};

const AZURE_2019: &str = "HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f1,http,10,20\no,a,f2,queue,0,30\n";
const AZURE_2021: &str = "app,func,end_timestamp,duration\na,f1,5.5,0.5\na,f2,2.25,0.25\n";
const AZURE_LLM: &str = "offset_ms,context_tokens,generated_tokens\n0.0,374,44\n750.3,396,109\n";
const BLOX: &str = "<1, resnet50, 100, 2, 5.0>\n<2, vgg, 50.5, 1, 0>\n";
const SCENARIO: &str = "name = 'played'\nwarmup_s = 0\nduration_s = 120\nseeds = [1]\n[[gpu]]\nkind = 'x'\ncount = 1\n\
    [[model]]\nname = 'm'\nalpha_ms = 1\nbeta_ms = 5\nslo_ms = 50\n[[model]]\nname = 'n'\nalpha_ms = 1\nbeta_ms = 5\nslo_ms = 50\n\
    [workload]\narrival = { trace_csv = 'out.csv' }\n";

fn workspace() -> Workspace {
    let workspace = Workspace::new("trace").unwrap();
    let files = [("2019.csv", AZURE_2019), ("2021.csv", AZURE_2021), ("conv.csv", AZURE_LLM), ("blox.log", BLOX)];
    for (name, text) in files.into_iter().chain([("s.toml", SCENARIO)]) {
        workspace.write(name, text).unwrap();
    }
    workspace
}

fn convert(workspace: &Workspace, rest: &[&str]) -> ProgramOutput {
    let args: Vec<_> = ["trace", "convert", "-o", "out.csv", "--from"].iter().chain(rest).copied().collect();
    run(workspace.path(), &[], &args).unwrap()
}

/// The rows of what was written: time, model, items, deadline.
fn rows(workspace: &Workspace) -> Vec<(f64, String, String, String)> {
    let text = std::fs::read_to_string(workspace.file("out.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("time_s,model,items,slo_ms"));
    let row = |line: &str| {
        let fields: Vec<_> = line.split(',').map(str::to_owned).collect();
        (fields[0].parse::<f64>().unwrap(), fields[1].clone(), fields[2].clone(), fields[3].clone())
    };
    let rows: Vec<_> = lines.map(row).collect();
    assert!(rows.is_sorted_by_key(|row: &(f64, String, String, String)| row.0));
    rows
}

#[test]
fn each_trace_becomes_arrivals_and_a_scenario_plays_them() {
    let _alone = alone();
    let workspace = workspace();

    phase("counts of minutes, ranked onto models: f2 and f1 are invoked 30 times each, f1 is named first");
    let output = convert(&workspace, &["azure2019", "2019.csv", "--models", "m,n"]).ended_with(0);
    assert!(output.out.contains("out.csv: 60 arrivals of 2 models"), "{output:?}");
    let rows_of = rows(&workspace);
    let of = |model: &str| rows_of.iter().filter(|row| row.1 == model).count();
    assert_eq!((of("m"), of("n")), (30, 30));
    assert_eq!(rows_of.iter().filter(|row| row.0 < 60.0).count(), 10);

    phase("a scenario plays them");
    let output = run(workspace.path(), &[], &["sim", "s.toml", "-o", "json"]).unwrap().ended_with(0).json();
    let offered = |model: usize| output["runs"][0]["models"][model]["offered"].as_u64().unwrap();
    assert_eq!((offered(0), offered(1)), (30, 30));
    let short = run(workspace.path(), &[], &["sim", "s.toml", "--set", "duration_s=60"]).unwrap().ended_with(0);
    let _ = short.complains(&["50 of the trace's 60 arrivals come after 60 s", "do not count"]);

    phase("the same seed writes the same, another another; two days follow each other");
    let text = || std::fs::read_to_string(workspace.file("out.csv")).unwrap();
    let first = text();
    let _ = convert(&workspace, &["azure2019", "2019.csv", "--models", "m,n", "--seed", "1"]).ended_with(0);
    assert_eq!(text(), first);
    let _ = convert(&workspace, &["azure2019", "2019.csv", "--models", "m,n", "--spread", "uniform"]).ended_with(0);
    assert_ne!(text(), first);
    let _ = convert(&workspace, &["azure2019", "2019.csv", "2019.csv"]).ended_with(0);
    assert_eq!(rows(&workspace).iter().filter(|row| row.0 >= 120.0).count(), 60);

    phase("invocations, at twice their speed, under other names");
    let _ = convert(&workspace, &["azure2021", "2021.csv", "--map", "a/f1=m", "--speed", "2"]).ended_with(0);
    let times: Vec<_> = rows(&workspace).into_iter().map(|row| (row.0, row.1)).collect();
    assert_eq!(times, [(1.0, "a/f2".to_owned()), (2.5, "m".to_owned())]);

    phase("requests of a language model, a part of them");
    let _ = convert(&workspace, &["azurellm", "conv.csv", "--from-s", "0.5", "--for-s", "1"]).ended_with(0);
    assert_eq!(rows(&workspace), [(0.2503, "conv".to_owned(), String::new(), String::new())]);

    phase("jobs of a replay log, and then of our own form");
    let _ = convert(&workspace, &["blox", "blox.log", "--job-s", "10"]).ended_with(0);
    let rows_of = rows(&workspace);
    let of = |model: &str, slo_ms: &str| rows_of.iter().filter(|row| row.1 == model && row.3 == slo_ms).count();
    assert_eq!((of("resnet50", "100"), of("vgg", "50.5")), (20, 10));
    std::fs::rename(workspace.file("out.csv"), workspace.file("in.csv")).unwrap();
    let _ = convert(&workspace, &["arrivals", "in.csv", "--map", "vgg=n", "--only-mapped"]).ended_with(0);
    assert!(rows(&workspace).len() == 10 && rows(&workspace).iter().all(|row| row.1 == "n"));
}

#[test]
fn what_is_no_trace_is_refused_with_file_and_line_and_nothing_is_written() {
    let _alone = alone();
    let workspace = workspace();
    let refused = |rest: &[&str], words: &[&str]| {
        let _ = convert(&workspace, rest).ended_with(2).complains(words);
        assert!(!workspace.file("out.csv").exists(), "{rest:?}");
    };
    refused(&["azure2019", "nowhere.csv"], &["nowhere.csv"]);
    refused(&["azure2019", "2021.csv"], &["2021.csv: line 1: expected the columns HashOwner,HashApp"]);
    workspace.write("bad.csv", &AZURE_2019.replace(",20\n", ",-20\n")).unwrap();
    refused(&["azure2019", "bad.csv"], &["bad.csv: line 2: expected invocations of a minute", "got `-20`"]);
    workspace.write("bad.csv", &AZURE_2019.replace(",20\n", ",99999999999\n")).unwrap();
    refused(&["azure2019", "bad.csv"], &["bad.csv: line 2: expected at most 20000000 arrivals (ARRIVALS_MAX)"]);
    workspace.write("bad.csv", &format!("{AZURE_LLM}700,1,1\n")).unwrap();
    refused(&["azurellm", "bad.csv"], &["bad.csv: line 4: expected times that do not fall", "got `700`"]);
    refused(&["blox", "2021.csv"], &["2021.csv: line 1: expected <job, model, slo in ms"]);
    refused(&["azure2021", "2021.csv", "--map", "f3=m"], &["--map: the trace has no `f3`; it has a/f1, a/f2"]);
    refused(&["azure2021", "2021.csv", "--map", "f1=m", "--map", "f1=n"], &["f1 is m already"]);
    refused(&["azure2021", "2021.csv", "--seed", "1"], &["--seed: has no meaning with --from azure2021"]);
    refused(&["azure2021", "2021.csv", "--speed", "0"], &["--speed 0: expected a factor"]);
    refused(&["azure2021", "2021.csv", "--from-s", "1000"], &["no arrivals are left", "from 1000 s on"]);

    phase("a scenario without the model of a row says which row");
    let _ = convert(&workspace, &["azure2021", "2021.csv"]).ended_with(0);
    let output = run(workspace.path(), &[], &["sim", "s.toml"]).unwrap().ended_with(2);
    let _ = output.complains(&["key `workload.arrival.trace_csv`", "row 1: the scenario has no model `a/f2`"]);
    let map = "workload.arrival.map={ 'a/f1' = 'm', 'a/f2' = 'n' }";
    let _ = run(workspace.path(), &[], &["sim", "s.toml", "--set", map]).unwrap().ended_with(0);
}
