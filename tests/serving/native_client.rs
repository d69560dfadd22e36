//! The native client over two frontends, of which one is killed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use symphony_client::{Answer, Availability, Client, Error, Request, Tensor};
use symphony_executor::item_checksum;
use symphony_testkit::wait_until;
use symphony_tests::{Shape, TestCluster, emulated_model, numbers, phase, tell};

/// How long something may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);
/// Between two requests of the load.
const EVERY: Duration = Duration::from_millis(10);
/// Requests of the load; the kill comes in its middle.
const REQUESTS: u32 = 600;

/// The outcome of a request of the load.
type End = (u32, Result<Answer, Error>);

/// Waits until the client holds this many frontends to be ready.
fn wait_for_ready(client: &Client, count: usize) {
    let look = || {
        let frontends = client.frontends();
        ensure!(frontends.iter().filter(|f| f.availability == Availability::Ready).count() == count, "{frontends:?}");
        Ok(())
    };
    wait_until(&format!("{count} frontends"), SOON, look).unwrap();
}

fn request(number: u32) -> Request {
    let input = Tensor::new("INPUT0", &[1, 16], &numbers(number as f32)).unwrap();
    Request::new("resnet").input(input).id(number.to_string())
}

/// Whether it is the answer to that request and no other.
fn is_right(number: u32, answer: &Answer) -> bool {
    let bytes: Vec<u8> = numbers(number as f32).iter().flat_map(|n| n.to_le_bytes()).collect();
    let data = answer.outputs[0].data();
    data[..4] == item_checksum([bytes.as_slice()]).to_le_bytes() && answer.id == number.to_string()
}

/// Sends all requests, each when it is due, and waits for their ends.
async fn load(client: Client) -> Vec<End> {
    let mut ticks = tokio::time::interval(EVERY);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..REQUESTS {
        ticks.tick().await;
        let client = client.clone();
        tasks.spawn(async move { (number, client.infer(request(number)).await) });
    }
    tasks.join_all().await
}

/// Requests that a frontend has accepted since its start.
fn accepted(cluster: &TestCluster, frontend: &str) -> u64 {
    cluster.console_of(frontend).unwrap()["ledger"]["counts"]["accepted"].as_u64().unwrap()
}

#[test]
fn a_frontend_that_is_killed_costs_what_it_held_and_nothing_runs_twice() {
    tell("native-client", &Shape::emulated(&["default"]).with_frontends(2), |cluster| {
        let _ = cluster.cli(&emulated_model("resnet", "default")).ended_with(0);
        cluster.wait_until_it_serves("resnet").unwrap();
        let addresses = ["frontend", "frontend-2"].map(|name| cluster.address(name, "grpc"));
        let client = cluster.block_on(async {
            let builder = addresses.iter().fold(Client::builder(), |builder, address| builder.frontend(address));
            builder.build().unwrap()
        });
        wait_for_ready(&client, 2);
        let metadata = cluster.block_on(client.model_metadata("resnet")).unwrap();
        assert_eq!((metadata.name.as_str(), metadata.inputs[0].name.as_str()), ("resnet", "INPUT0"));
        let survivor_before = accepted(cluster, "frontend-2");

        phase("load over both; one is killed while it holds requests");
        let (sent, ends) = std::sync::mpsc::channel();
        let loading = client.clone();
        cluster.spawn(async move {
            let _ = sent.send(load(loading).await);
        });
        cluster.wait_for_accepted(u64::from(REQUESTS) / 4).unwrap();
        cluster.kill("frontend").unwrap();
        let ends = ends.recv_timeout(SOON).unwrap();

        phase("every request has one end; only what the dead one held has no answer");
        assert_eq!(ends.len(), REQUESTS as usize);
        let mut answered_by: BTreeMap<String, u64> = BTreeMap::new();
        let (mut lost, mut refused, mut unserved) = (0, 0, 0);
        for (number, end) in &ends {
            match end {
                Ok(answer) => {
                    assert!(is_right(*number, answer), "{number}: {answer:?}");
                    let owner = answer.request_id.as_deref().unwrap().split('/').next().unwrap().to_owned();
                    *answered_by.entry(owner).or_default() += 1;
                }
                Err(Error::Lost { frontend, .. }) => {
                    assert_eq!(*frontend, addresses[0], "the survivor lost nothing");
                    lost += 1;
                }
                // A machine that pauses makes requests late, or the survivor look dead for a moment.
                Err(error) if error.was_not_accepted() => unserved += 1,
                Err(Error::Refused(refusal)) => refused += u64::from(refusal.frontend == addresses[1]),
                Err(error) => panic!("request {number}: {error}"),
            }
        }
        assert_eq!(answered_by.len(), 2, "both have served: {answered_by:?}");
        assert!(lost + unserved < u64::from(REQUESTS) / 4, "{lost} of {REQUESTS} are lost, {unserved} unserved");
        // Requests of the dead one were not sent to the survivor: it accepted those that it answered or refused, and no
        // more.
        let survivor = accepted(cluster, "frontend-2") - survivor_before;
        let view = cluster.view().unwrap();
        let (id, _) = view.frontends.iter().find(|(_, f)| f.name == "frontend-2").unwrap();
        assert_eq!(survivor, answered_by[&id.to_string()] + refused, "{answered_by:?}, {lost} lost");

        phase("it comes back, and gets requests again");
        cluster.restart("frontend").unwrap();
        wait_for_ready(&client, 2);
        let again = || {
            cluster.block_on(client.infer(request(1)))?;
            ensure!(accepted(cluster, "frontend") > 0, "the frontend that is back has accepted nothing");
            Ok(())
        };
        wait_until("both to serve", SOON, again).unwrap();
        cluster.wait_for_a_balanced_ledger().unwrap();
    });
}
