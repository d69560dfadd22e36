use proptest::prelude::*;

use super::*;

const GOOD: &str = r#"
disruption_max = 3
[[gpu]]
kind = "a100"
memory_mb = 40960
count = 2
[[gpu]]
kind = "t4"
memory_mb = 16384
names = ["left", "right"]
part = "b"
[[part]]
name = "a"
count = 2
kinds = ["a100"]
rate_max_rps = 1000
[[part]]
name = "b"
share = 2
memory_mb = { t4 = 8000 }
[[model]]
name = "m"
rate_rps = 10
slo_ms = 50
alpha_ms = { a100 = 1, t4 = 3 }
beta_ms = { a100 = 5, t4 = 9 }
static_mb = 100
dynamic_mb = { a100 = 1000, t4 = 500 }
[[model]]
name = "n"
count = 3
rate_rps = 0
slo_ms = 50
profile_csv = "n.csv"
static_mb = 100
dynamic_mb = 10
move_cost = 4
pin = { kind = "a100" }
"#;

fn read(text: &str) -> Result<Problem, ProblemError> {
    let csv = |name: &str| match name {
        "n.csv" => Ok("gpu_kind,batch,latency_ms\na100,1,5\na100,4,8\n".to_owned()),
        _ => Err("is not there".to_owned()),
    };
    Problem::parse("p.toml", text, &csv)
}

#[test]
fn a_problem_is_read_with_names_kinds_and_pins() {
    let problem = read(GOOD).unwrap();
    let names = |names: Vec<&String>| names.into_iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    assert_eq!(names(problem.parts.iter().map(|part| &part.name).collect()), "a-0 a-1 b");
    assert_eq!(names(problem.gpus.iter().map(|gpu| &gpu.name).collect()), "a100-0 a100-1 left right");
    assert_eq!(names(problem.models.iter().map(|model| &model.name).collect()), "m n-0 n-1 n-2");
    assert_eq!(problem.gpus[2], Gpu { name: "left".into(), kind: 1, part: Some(2) });
    assert_eq!(problem.parts[2].kinds[1], PartKind { kind: 1, memory_max_bytes: 8000 << 20 });
    assert!(problem.parts[2].rate_max_rps.is_infinite() && problem.parts[0].kinds.len() == 1);
    let n = &problem.models[1];
    assert!(n.needs[0].is_some() && n.needs[1].is_none() && n.pin == Some(Pin::Kind(0)) && n.move_cost == 4.0);
    assert_eq!(problem.models[0].needs[1].as_ref().unwrap().dynamic_memory_bytes, 500 << 20);
    assert_eq!((problem.memory_weight, problem.disruption_max), (1.0, Some(3.0)));
}

#[test]
fn every_mistake_is_named_with_key_and_expectation() {
    let refused = |from: &str, to: &str, words: &str| {
        assert!(GOOD.contains(from), "{from}");
        let error = read(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with("p.toml: ") && error.contains(words), "{error}");
    };
    refused("disruption_max", "disruption", "unknown field `disruption`");
    refused("rate_rps = 10", "rate_rps = -1", "key `model.0.rate_rps`: expected a number from 0 to 1000000000, got -1");
    refused("slo_ms = 50", "slo_ms = 0", "key `model.0.slo_ms`: expected a number above 0");
    refused(
        "static_mb = 100",
        "static_mb = { a100 = 1 }",
        "key `model.0.static_mb`: expected a number for GPU kind `t4`",
    );
    refused("n.csv", "o.csv", "key `model.1.profile_csv`: expected latencies of this model, got o.csv: is not there");
    let toml = "profile = \"n.toml\"";
    refused("profile_csv = \"n.csv\"", toml, "key `model.1.profile`: expected latencies of this model, got n.toml");
    refused(
        "{ kind = \"a100\" }",
        "{ kind = \"h100\" }",
        "key `model.1.pin.kind`: expected one of the GPU kinds a100, t4",
    );
    refused("{ kind = \"a100\" }", "{ node = 1 }", "expected { part = \"name\" } or { kind = \"name\" }");
    refused("part = \"b\"", "part = \"c\"", "key `gpu.1.part`: expected the name of a part, got `c`");
    refused("count = 2", "count = 70000", "key `gpu.0.count`: expected 1 or more, and at most 65536 in all");
    refused("count = 3", "count = 3000000", "key `model.1.count`: expected 1 or more");
    refused("count = 2\n[[gpu]]", "[[gpu]]", "key `gpu.0.count`: expected either count or names");
    refused("name = \"n\"\ncount = 3", "name = \"m\"", "model `m` is there twice");
    refused(
        "beta_ms = { a100 = 5, t4 = 9 }",
        "",
        "key `model.0`: expected alpha_ms and beta_ms, or profile, or profile_csv",
    );
    refused("rate_rps = 10", "rate_rps = nan", "got NaN");
    refused("part = \"b\"", "part = \"a-0\"", "GPU left is t4 and belongs to a-0, which has no GPUs of that kind");
    let error = read("").unwrap_err().to_string();
    assert!(error.contains("key `gpu`: expected 1 to 16 GPU kinds"), "{error}");
}

proptest! {
    #[test]
    fn no_text_brings_the_reader_down(cut in 0_usize..GOOD.len(), rubbish in "[ -~\n]{0,40}") {
        if let Some((before, after)) = GOOD.split_at_checked(cut) {
            let _ = read(&format!("{before}{rubbish}{after}"));
            let _ = read(before);
        }
    }
}
