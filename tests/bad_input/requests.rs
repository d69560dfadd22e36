//! Requests that do not fit.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use symphony_tests::{Shape, emulated_model, numbers, phase, tell};

/// The frontend's limit here.
const REQUEST_BYTES_MAX: usize = 1 << 16;

fn input(name: &str, datatype: &str, shape: &[i64], data: &Value) -> Value {
    json!({ "inputs": [{ "name": name, "datatype": datatype, "shape": shape, "data": data }] })
}

#[test]
fn requests_that_do_not_fit_are_refused_and_the_next_one_is_served() {
    let shape = Shape::emulated(&["default"]).with(&format!("frontend.request_bytes_max={REQUEST_BYTES_MAX}"));
    tell("bad-requests", &shape, |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();

        let data = json!(numbers(1.0));
        let good = input("INPUT0", "FP32", &[1, 16], &data);
        let with = |key: &str, value: Value| {
            let mut body = good.clone();
            body["inputs"][0][key] = value;
            body
        };
        let too_large = input("INPUT0", "FP32", &[32, 16], &json!(vec![0.123_456_789; REQUEST_BYTES_MAX / 8]));
        phase("an unknown model, and a request larger than the limit");
        let reply = cluster.block_on(async { cluster.rest().infer("nope", &good).await }).unwrap();
        assert_eq!((reply.status, reply.reason().as_str()), (404, "unknown_model"), "{reply:?}");
        assert!(reply.body.contains("there is no model `nope`"), "{reply:?}");
        let reply = cluster.block_on(async { cluster.rest().infer("resnet", &too_large).await }).unwrap();
        assert_eq!((reply.status, reply.reason().as_str()), (413, "request_too_large"), "{reply:?}");
        assert!(reply.body.contains("larger than 65536 bytes"), "{reply:?}");

        phase("a client that keeps its connections is not hurt by a refusal that came before its body was read");
        cluster.block_on(async {
            let client = cluster.rest();
            for _ in 0..10 {
                assert_eq!(client.infer("resnet", &too_large).await.unwrap().status, 413);
                client.check_emulated_in_any_time("resnet", 3.0).await.unwrap();
            }
        });

        // (what, body, words)
        let twice = json!({ "inputs": [good["inputs"][0], good["inputs"][0]] });
        let refusals = [
            ("wrong name", with("name", json!("x")), "no input `x`; it expects `INPUT0` FP32[-1,16]"),
            ("wrong type", with("datatype", json!("INT32")), "INT32; expected FP32"),
            ("no type", with("datatype", json!("FLOAT")), "FLOAT"),
            ("wrong shape", with("shape", json!([1, 15])), "expected [-1,16]"),
            ("too few dimensions", with("shape", json!([16])), "expected [-1,16]"),
            ("negative shape", with("shape", json!([-1, 16])), "has -1 items"),
            ("no items", with("shape", json!([0, 16])), "takes 1 to 32"),
            ("too many items", with("shape", json!([33, 16])), "takes 1 to 32"),
            ("too little data", with("data", json!([1.0])), "INPUT0"),
            ("words for numbers", with("data", json!(vec!["a"; 16])), "INPUT0"),
            ("no inputs", json!({ "inputs": [] }), "input `INPUT0` is missing"),
            ("twice", twice, "got 2"),
        ];
        for (what, body, words) in refusals {
            phase(what);
            let reply = cluster.block_on(async { cluster.rest().infer("resnet", &body).await }).unwrap();
            assert_eq!((reply.status, reply.reason().as_str()), (400, "invalid_request"), "{what}: {reply:?}");
            assert!(reply.body.contains(words), "{what}: `{words}` is not in {reply:?}");
        }

        phase("bodies that are no JSON, and a length that is a lie");
        for body in ["", "{", "[1,2", "null", "{\"inputs\": 7}", "\u{0}\u{1}"] {
            let reply = cluster.block_on(async { cluster.rest().post("/v2/models/resnet/infer", body).await }).unwrap();
            assert_eq!((reply.status, reply.reason().as_str()), (400, "invalid_request"), "{body:?}: {reply:?}");
        }

        phase("a deadline that nothing can meet is a timeout with a reason, not an error of the server");
        let mut hasty = good.clone();
        hasty["parameters"] = json!({ "timeout": 1 });
        let reply = cluster.block_on(async { cluster.rest().infer("resnet", &hasty).await }).unwrap();
        assert_eq!(reply.status, 504, "{reply:?}");
        assert!(
            ["slo_unreachable", "queue_expired", "late", "deadline_passed"].contains(&reply.reason().as_str()),
            "{reply:?}"
        );

        phase("less time than a batch takes is refused in numbers; a deadline that no request may have as well");
        for (parameters, status, reason, words) in [
            (
                json!({ "timeout": 1000 }),
                504,
                "slo_unreachable",
                "the deadline leaves 1 ms, and a batch of its 1 item alone takes 6 ms",
            ),
            (
                json!({ "timeout": 7_200_000_000_u64, "symphony_exceed_slo": true }),
                400,
                "invalid_request",
                "at most 3600000 ms",
            ),
        ] {
            let mut body = good.clone();
            body["parameters"] = parameters;
            let reply = cluster.block_on(async { cluster.rest().infer("resnet", &body).await }).unwrap();
            assert_eq!((reply.status, reply.reason().as_str()), (status, reason), "{reply:?}");
            assert!(reply.body.contains(words), "`{words}` is not in {reply:?}");
        }

        phase("paths and methods that are not served");
        let reply = cluster.block_on(async { cluster.rest().get("/v3").await }).unwrap();
        assert_eq!((reply.status, reply.reason().as_str()), (404, "unknown_path"));
        let reply = cluster.block_on(async { cluster.rest().get("/v2/models/resnet/infer").await }).unwrap();
        assert_eq!((reply.status, reply.reason().as_str()), (405, "wrong_method"));

        phase("what people try first with curl");
        let url = format!("http://{}/v2/models/resnet/infer", cluster.address("frontend", "rest"));
        let curl = || Command::new("curl").args(["-sS", "-d", &good.to_string(), &url]).stdin(Stdio::null()).output();
        if curl().is_ok() {
            // A machine that pauses misses deadlines.
            let answered = || {
                let answer: Value = serde_json::from_slice(&curl()?.stdout)?;
                anyhow::ensure!(answer["outputs"][0]["name"] == "OUTPUT0", "{answer}");
                Ok(())
            };
            symphony_testkit::wait_until("an answer", std::time::Duration::from_secs(60), answered).unwrap();
        }

        cluster.one_good_request("resnet").unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
