//! Shared memory that clients register belongs to their tenant, and harms no other.

use std::fs::File;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use symphony_executor::item_checksum;
use symphony_tests::{Shape, TestCluster, emulated_model, numbers, phase, tell};

use super::callers::{ANN, BOB, Files};

/// How long a request may be asked again for which there was no time, on a machine that pauses.
const SOON: Duration = Duration::from_secs(60);
/// An item of an emulated model, and its answer behind it.
const ITEM_BYTES: u64 = 64;
const ANSWER_BYTES: u64 = 4;

/// Shared memory whose name is gone when this is dropped.
struct Object(String);

impl Object {
    fn new(whose: &str, bytes: &[u8]) -> Self {
        let object = Self(format!("symphony-story-{whose}-{}", std::process::id()));
        std::fs::write(object.path(), bytes).unwrap();
        object
    }

    fn path(&self) -> String {
        format!("/dev/shm/{}", self.0)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path());
    }
}

struct Caller<'a> {
    base: String,
    key: &'a str,
}

impl Caller<'_> {
    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = reqwest::Client::new().post(format!("{}{path}", self.base)).header("x-api-key", self.key);
        let answer = request.json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn register(&self, object: &Object) -> (u16, Value) {
        let region = json!({ "key": format!("/{}", object.0), "byte_size": ITEM_BYTES + ANSWER_BYTES });
        self.post("/v2/systemsharedmemory/region/r/register", &region).await
    }

    /// Asks the model for the item in the region, until the frontend has it ready and there was time for it.
    async fn infer(&self) -> (u16, Value) {
        let at = |offset: u64, bytes: u64| {
            json!({
                "shared_memory_region": "r", "shared_memory_offset": offset, "shared_memory_byte_size": bytes,
            })
        };
        let body = json!({
            "inputs": [{ "name": "INPUT0", "datatype": "FP32", "shape": [1, 16], "parameters": at(0, ITEM_BYTES) }],
            "outputs": [{ "name": "OUTPUT0", "parameters": at(ITEM_BYTES, ANSWER_BYTES) }],
        });
        let began = Instant::now();
        loop {
            let (status, answer) = self.post("/v2/models/resnet/infer", &body).await;
            let later = matches!(status, 503 | 504) || answer["reason"] == "unknown_model";
            if !later || began.elapsed() > SOON {
                return (status, answer);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn caller<'a>(cluster: &TestCluster, key: &'a str) -> Caller<'a> {
    Caller { base: format!("http://{}", cluster.address("frontend", "rest")), key }
}

#[test]
fn a_region_is_its_tenants_own_and_one_that_is_cut_short_ends_no_process() {
    let files = Files::new("shared-memory");
    let right = "rights = [\"infer\"]";
    let tenants = files.tenants(&[("ann", ANN.1, right), ("bob", BOB.1, right)]);
    let shape = Shape::emulated(&["default"]).with("frontend.shared_memory=true");
    let shape = shape.with(&format!("frontend.tenants={tenants}"));
    tell("shared-memory", &shape, |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        let item: Vec<u8> = numbers(3.0).iter().flat_map(|n| n.to_le_bytes()).collect();
        let whole = [item.as_slice(), &[0; ANSWER_BYTES as usize]].concat();
        let (object, of_bob) = (Object::new("ann", &whole), Object::new("bob", &whole));
        let (ann, bob) = (caller(cluster, ANN.0), caller(cluster, BOB.0));
        let expected = item_checksum([item.as_slice()]).to_le_bytes();
        cluster.block_on(async {
            phase("ann has an item read from her memory, and its answer written there");
            assert_eq!(ann.register(&object).await, (200, json!({})));
            let (status, answer) = ann.infer().await;
            assert_eq!(status, 200, "{answer}");
            assert_eq!(std::fs::read(object.path()).unwrap()[ITEM_BYTES as usize..], expected);

            phase("bob neither uses it, nor registers it, nor forgets it for her, and may have one of that name");
            let (status, answer) = bob.infer().await;
            assert_eq!((status, &answer["reason"]), (404, &json!("unknown_region")), "{answer}");
            assert_eq!(bob.post("/v2/systemsharedmemory/unregister", &json!({})).await.0, 200);
            let (status, answer) = bob.register(&object).await;
            assert_eq!((status, &answer["reason"]), (409, &json!("region_exists")), "{answer}");
            assert_eq!(bob.register(&of_bob).await.0, 200);
            assert_eq!(bob.post("/v2/systemsharedmemory/region/r/unregister", &json!({})).await.0, 200);

            phase("she cuts her memory short: her request is refused, and whole again it is served");
            File::options().write(true).open(object.path()).unwrap().set_len(10).unwrap();
            let (status, answer) = ann.infer().await;
            assert_eq!((status, &answer["reason"]), (400, &json!("invalid_request")), "{answer}");
            std::fs::write(object.path(), &whole).unwrap();
            let (status, answer) = ann.infer().await;
            assert_eq!(status, 200, "{answer}");
            assert_eq!(std::fs::read(object.path()).unwrap()[ITEM_BYTES as usize..], expected);
        });
        assert_eq!(cluster.ended().unwrap(), None);
    });
}
